//! POST /v1/chat/completions.

use super::access::key_holder;
use super::app::{App, unix_seconds};
use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use super::params::{Params, check_model, note_unknown};
use super::reply::{Reply, Shape};
use super::{body, messages};
use crate::base::TokenId;
use crate::engine::{EngineHandle, TOP_LOGPROBS_MAX};
use crate::text::{Message, RenderOptions};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value};
use std::sync::Arc;

const ROUTE: &str = "/v1/chat/completions";

pub(super) async fn post(State(app): State<Arc<App>>, request: Request) -> ApiResult<Response> {
    let engine = app.engine()?;
    let holder = key_holder(&request);
    let body = body::object(&app, request).await?;
    let (mut params, messages, options) = read(&app, &engine, &body)?;
    params.request.tenant = holder.or(params.request.tenant);
    let prompt = app.off_thread(&engine, move |engine| tokens(engine, &messages, &options)).await?;
    let reply = Reply::new(&app, &engine, Shape::Chat, &params);
    super::reply::generate(&app, &engine, params, prompt, reply, "messages").await
}

fn read(
    app: &App,
    engine: &EngineHandle,
    body: &Map<String, Value>,
) -> ApiResult<(Params, Vec<Message>, RenderOptions)> {
    let mut fields = Fields::new(body, "");
    check_model(&mut fields, engine)?;
    let mut params = Params::read(&mut fields)?;
    params.request.logprobs = logprobs(&mut fields)?;
    let kwargs = fields.object("chat_template_kwargs")?.cloned().unwrap_or_default();
    let messages = messages::read(&mut fields)?;
    note_unknown(app, ROUTE, &fields);
    let options = RenderOptions {
        add_generation_prompt: true,
        tools: None,
        kwargs,
        now: i64::try_from(unix_seconds()).ok(),
    };
    Ok((params, messages, options))
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

/// The conversation as the model reads it.
fn tokens(
    engine: &EngineHandle,
    messages: &[Message],
    options: &RenderOptions,
) -> ApiResult<Vec<TokenId>> {
    let card = engine.card();
    let Some(template) = &card.template else {
        let message = "this model has no chat template; use /v1/completions, or start the \
                       server with one";
        return Err(ApiError::field("messages", message).with_code("no_chat_template"));
    };
    let rendered = template.render(messages, options).map_err(|error| {
        let message = error.to_string();
        if error.is_from_request() {
            ApiError::field("messages", message).with_code("chat_template_error")
        } else {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            ApiError::server(status, "chat_template_error", message)
        }
    })?;
    Ok(card.tokenizer.encode_rendered(&rendered))
}
