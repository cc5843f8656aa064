//! POST /v1/completions: raw text or token ids in, one prompt or many; text out, with the prompt
//! before it and its log-probabilities if asked for.

use super::access::key_holder;
use super::app::App;
use super::body;
use super::choice::Shape;
use super::error::{ApiError, ApiResult, Origin};
use super::fields::Fields;
use super::params::{Params, check_model, note_unknown, token_ids};
use super::reply::Prompt;
use super::structured::Form;
use super::tools::{self, Tools};
use crate::base::TokenId;
use crate::engine::{EngineHandle, Question};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value};
use std::sync::Arc;

const ROUTE: &str = "/v1/completions";
/// Most alternatives per token of this route's `logprobs`.
const LOGPROBS_MAX: u32 = 5;
/// Tokens an answer gets where the request does not say, as the API has it.
const MAX_TOKENS_DEFAULT: u32 = 16;
/// Most prompts of one request.
const PROMPTS_MAX: usize = 128;

/// A prompt or an embedding's input as it was sent.
pub(super) enum Input {
    Text(String),
    Ids(Vec<TokenId>),
}

pub(super) async fn post(State(app): State<Arc<App>>, request: Request) -> ApiResult<Response> {
    let engine = app.engine()?;
    let holder = key_holder(&request);
    let body = body::object(&app, request).await?;
    let (mut params, inputs) = read(&app, &engine, &body)?;
    params.request.tenant = holder.or(params.request.tenant);
    let grammar = params.form.as_ref().map(|form| form.field.clone());
    let origin = Origin { grammar, ..Origin::of_prompt("prompt") };
    let (echo, form, shared) = (params.echo, params.form.take(), app.clone());
    let work = move |engine: &EngineHandle| {
        let compile = |form: Form| {
            let grammar = shared.grammars(engine)?.compile(&form.source, None, None);
            grammar.map_err(|error| tools::fault(&error, &form.field))
        };
        Ok((form.map(compile).transpose()?, prompts(engine, inputs, echo)?))
    };
    let (grammar, prompts) = app.off_thread(&engine, work).await?;
    params.request.grammar = grammar;
    super::reply::generate(&app, &engine, params, Shape::Text, prompts, origin).await
}

fn prompts(engine: &EngineHandle, inputs: Vec<Input>, echo: bool) -> ApiResult<Vec<Prompt>> {
    let tokenizer = &engine.card().tokenizer;
    let one = |input| match input {
        Input::Text(text) => {
            let ids = tokenizer.encode_prompt(&text).map_err(|error| ApiError::encode(&error))?;
            Ok(Prompt { ids, text })
        }
        Input::Ids(ids) => {
            let text = if echo { tokenizer.decode(&ids) } else { String::new() };
            Ok(Prompt { ids, text })
        }
    };
    inputs.into_iter().map(one).collect()
}

fn read(
    app: &App,
    engine: &EngineHandle,
    body: &Map<String, Value>,
) -> ApiResult<(Params, Vec<Input>)> {
    let mut fields = Fields::new(body, "");
    check_model(&mut fields, engine)?;
    let mut params = Params::read(&mut fields)?;
    let logprobs = fields.count("logprobs")?;
    if logprobs.is_some_and(|top| top > LOGPROBS_MAX) {
        return Err(fields.wrong("logprobs", format!("must be at most {LOGPROBS_MAX}")));
    }
    params.request.logprobs = logprobs;
    params.echo = fields.boolean("echo")?.unwrap_or(false);
    let max_tokens = *params.request.max_tokens.get_or_insert(MAX_TOKENS_DEFAULT);
    if params.echo && (logprobs.is_some() || max_tokens == 0) {
        params.request.question = Some(Question::Logprobs(logprobs.unwrap_or(0)));
    }
    if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        let message = "is not supported: this model has no tokens for filling in the middle";
        return Err(fields.wrong("suffix", message));
    }
    if Tools::read(&mut fields)?.is_some() {
        return Err(fields.wrong("tools", "are called in /v1/chat/completions only"));
    }
    let inputs = inputs(&mut fields, "prompt", PROMPTS_MAX)?;
    note_unknown(app, ROUTE, &mut fields);
    Ok((params, inputs))
}

/// A string, an array of token ids, or an array of several of one of these.
pub(super) fn inputs(
    fields: &mut Fields<'_>,
    name: &'static str,
    most: usize,
) -> ApiResult<Vec<Input>> {
    let wrong = "must be a string, an array of strings, an array of token ids, or an array of \
                 such arrays";
    let list = match fields.get(name) {
        Some(Value::String(text)) => return Ok(vec![Input::Text(text.clone())]),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(fields.wrong(name, wrong)),
        None => return Err(fields.wrong(name, "is required")),
    };
    let several = matches!(list.first(), Some(Value::String(_) | Value::Array(_)));
    if !several {
        return Ok(vec![Input::Ids(token_ids(list, name)?)]);
    }
    if list.len() > most {
        let message = format!("must hold at most {most} entries, it has {}", list.len());
        return Err(fields.wrong(name, message));
    }
    let one = |value: &Value| match (value, &list[0]) {
        (Value::String(text), Value::String(_)) => Ok(Input::Text(text.clone())),
        (Value::Array(ids), Value::Array(_)) => Ok(Input::Ids(token_ids(ids, name)?)),
        _ => Err(fields.wrong(name, wrong)),
    };
    list.iter().map(one).collect()
}
