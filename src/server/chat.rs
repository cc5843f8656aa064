//! POST /v1/chat/completions.

use super::access::key_holder;
use super::app::App;
use super::body;
use super::choice::Shape;
use super::error::ApiResult;
use super::fields::Fields;
use super::params::{Params, check_model, note_unknown};
use super::prompt::Conversation;
use super::reply::Prompt;
use crate::engine::{EngineHandle, TOP_LOGPROBS_MAX};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value};
use std::sync::Arc;

const ROUTE: &str = "/v1/chat/completions";

pub(super) async fn post(State(app): State<Arc<App>>, request: Request) -> ApiResult<Response> {
    let engine = app.engine()?;
    let holder = key_holder(&request);
    let body = body::object(&app, request).await?;
    let (mut params, conversation) = read(&app, &engine, &body)?;
    params.request.tenant = holder.or(params.request.tenant);
    let tokens = move |engine: &EngineHandle| {
        let rendered = conversation.render(engine)?;
        Ok(engine.card().tokenizer.encode_rendered(&rendered))
    };
    let ids = app.off_thread(&engine, tokens).await?;
    let prompts = vec![Prompt { ids, text: String::new() }];
    super::reply::generate(&app, &engine, params, Shape::Chat, prompts, "messages").await
}

fn read(
    app: &App,
    engine: &EngineHandle,
    body: &Map<String, Value>,
) -> ApiResult<(Params, Conversation)> {
    let mut fields = Fields::new(body, "");
    check_model(&mut fields, engine)?;
    let mut params = Params::read(&mut fields)?;
    params.request.logprobs = logprobs(&mut fields)?;
    let conversation = Conversation::read(app, &mut fields)?;
    note_unknown(app, ROUTE, &mut fields);
    Ok((params, conversation))
}

/// `logprobs` switches them on, `top_logprobs` says how many alternatives.
fn logprobs(fields: &mut Fields<'_>) -> ApiResult<Option<u32>> {
    let on = fields.boolean("logprobs")?.unwrap_or(false);
    match fields.count("top_logprobs")? {
        Some(top) if top > TOP_LOGPROBS_MAX => {
            Err(fields.wrong("top_logprobs", format!("must be at most {TOP_LOGPROBS_MAX}")))
        }
        Some(_) if !on => Err(fields.wrong("top_logprobs", "is allowed only with logprobs: true")),
        top => Ok(on.then_some(top.unwrap_or(0))),
    }
}
