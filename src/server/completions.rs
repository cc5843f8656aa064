//! POST /v1/completions: raw text or token ids in, text out.

use super::access::key_holder;
use super::app::App;
use super::body;
use super::error::ApiResult;
use super::fields::Fields;
use super::params::{Params, check_model, note_unknown, token_ids};
use super::reply::{Reply, Shape};
use crate::base::TokenId;
use crate::engine::EngineHandle;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value};
use std::sync::Arc;

const ROUTE: &str = "/v1/completions";
/// Most alternatives per token of this route's `logprobs`.
const LOGPROBS_MAX: u32 = 5;

enum Prompt {
    Text(String),
    Ids(Vec<TokenId>),
}

pub(super) async fn post(State(app): State<Arc<App>>, request: Request) -> ApiResult<Response> {
    let engine = app.engine()?;
    let holder = key_holder(&request);
    let body = body::object(&app, request).await?;
    let (mut params, prompt) = read(&app, &engine, &body)?;
    params.request.tenant = holder.or(params.request.tenant);
    let prompt = match prompt {
        Prompt::Ids(ids) => ids,
        Prompt::Text(text) => {
            let encode =
                move |engine: &EngineHandle| Ok(engine.card().tokenizer.encode_prompt(&text));
            app.off_thread(&engine, encode).await?
        }
    };
    let reply = Reply::new(&app, &engine, Shape::Text, &params);
    super::reply::generate(&app, &engine, params, prompt, reply, "prompt").await
}

fn read(
    app: &App,
    engine: &EngineHandle,
    body: &Map<String, Value>,
) -> ApiResult<(Params, Prompt)> {
    let mut fields = Fields::new(body, "");
    check_model(&mut fields, engine)?;
    let mut params = Params::read(&mut fields)?;
    params.request.logprobs = fields.count("logprobs")?;
    if params.request.logprobs.is_some_and(|top| top > LOGPROBS_MAX) {
        return Err(fields.wrong("logprobs", format!("must be at most {LOGPROBS_MAX}")));
    }
    if fields.boolean("echo")? == Some(true) {
        return Err(fields.wrong("echo", "is not supported; the prompt is not repeated"));
    }
    if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(fields.wrong("suffix", "is not supported by this model"));
    }
    let prompt = prompt(&mut fields)?;
    note_unknown(app, ROUTE, &fields);
    Ok((params, prompt))
}

/// A string, an array of one string, an array of token ids, or an array of one such array.
fn prompt(fields: &mut Fields<'_>) -> ApiResult<Prompt> {
    let list = match fields.get("prompt") {
        Some(Value::String(text)) => return Ok(Prompt::Text(text.clone())),
        Some(Value::Array(list)) => list,
        Some(_) => {
            let message = "must be a string or an array of token ids";
            return Err(fields.wrong("prompt", message));
        }
        None => return Err(fields.wrong("prompt", "is required")),
    };
    match list.as_slice() {
        [Value::String(text)] => Ok(Prompt::Text(text.clone())),
        [Value::Array(ids)] => Ok(Prompt::Ids(token_ids(ids, "prompt")?)),
        [Value::String(_) | Value::Array(_), ..] => {
            Err(fields.wrong("prompt", "must be a single prompt: send one request for each"))
        }
        ids => Ok(Prompt::Ids(token_ids(ids, "prompt")?)),
    }
}
