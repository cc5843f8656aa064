//! What a generating route answers: one JSON document, or a stream of chunks of the same
//! pieces. Both walk the same outputs of the engine, so their text is the same.

use super::app::{App, unix_seconds};
use super::error::{ApiError, ApiResult, json_response};
use super::logprobs::{self, TextLogprobs};
use super::params::Params;
use super::sse;
use crate::base::TokenId;
use crate::engine::{EngineHandle, GenerateError, Generation, ModelCard, Output, Usage};
use crate::trace::FinishReason;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

const FINGERPRINT: &str = concat!("tilewright-", env!("CARGO_PKG_VERSION"));

/// Which of the two routes answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Chat,
    Text,
}

/// The parts that all chunks of one answer share, and what was asked for.
pub(super) struct Reply {
    shape: Shape,
    id: String,
    created: u64,
    card: Arc<ModelCard>,
    include_usage: bool,
    logprobs: bool,
    /// The prompt's ids, if ids were asked for.
    prompt_ids: Option<Vec<TokenId>>,
    /// Characters let out so far, where the next token's text begins.
    offset: usize,
}

/// Submits, waits until the engine has taken the request, and answers.
pub(super) async fn generate(
    app: &App,
    engine: &EngineHandle,
    mut params: Params,
    prompt: Vec<TokenId>,
    mut reply: Reply,
    field: &'static str,
) -> ApiResult<Response> {
    reply.prompt_ids = params.return_token_ids.then(|| prompt.clone());
    params.request.prompt = prompt;
    let request = std::mem::take(&mut params.request);
    let mut generation =
        engine.submit(request).map_err(|error| params.rename(ApiError::submit(&error, field)))?;
    match generation.next().await {
        Some(Output::Started { .. }) => {}
        Some(Output::Failed(error)) => return Err(ApiError::generate(&error, field)),
        _ => return Err(ApiError::generate(&GenerateError::Stopped, field)),
    }
    if params.stream {
        return Ok(sse::response(app, generation, reply, field));
    }
    let whole = reply.whole(generation).await;
    match whole {
        Ok(body) => Ok(json_response(StatusCode::OK, &body)),
        Err(error) => Err(ApiError::generate(&error, field)),
    }
}

impl Reply {
    pub fn new(app: &App, engine: &EngineHandle, shape: Shape, params: &Params) -> Self {
        let lead = if shape == Shape::Chat { "chatcmpl" } else { "cmpl" };
        Self {
            shape,
            id: format!("{lead}-{}", app.fresh_id()),
            created: unix_seconds(),
            card: engine.card().clone(),
            include_usage: params.include_usage,
            logprobs: params.request.logprobs.is_some(),
            prompt_ids: None,
            offset: 0,
        }
    }

    /// The chunk that opens a stream: the role, no text. Plain completions have none.
    pub fn opening(&self) -> Option<Value> {
        let mut chunk = match self.shape {
            Shape::Chat => {
                self.chunk(json!({"role": "assistant", "content": ""}), Value::Null, None)
            }
            Shape::Text if self.prompt_ids.is_some() => self.chunk(json!(""), Value::Null, None),
            Shape::Text => return None,
        };
        if let Some(ids) = &self.prompt_ids {
            match self.shape {
                Shape::Chat => chunk["prompt_token_ids"] = json!(ids),
                Shape::Text => chunk["choices"][0]["prompt_token_ids"] = json!(ids),
            }
        }
        Some(chunk)
    }

    /// The chunks of one output. A finish reason has a chunk of its own, with nothing else.
    pub fn chunks(&mut self, output: Output) -> Result<Vec<Value>, GenerateError> {
        match output {
            Output::Started { .. } => Ok(Vec::new()),
            Output::Token { id, text, logprobs, end } => {
                let logprobs = match logprobs.filter(|_| !end && self.logprobs) {
                    Some(found) if self.shape == Shape::Chat => {
                        json!({"content": [logprobs::chat(&self.card, id, &found)],
                               "refusal": null})
                    }
                    Some(found) => {
                        let mut list = TextLogprobs::default();
                        list.push(&self.card, id, &found, self.offset);
                        list.value()
                    }
                    None => Value::Null,
                };
                self.offset += text.chars().count();
                let ids = self.prompt_ids.is_some();
                if text.is_empty() && logprobs.is_null() && !ids {
                    return Ok(Vec::new());
                }
                let delta = match self.shape {
                    Shape::Chat => json!({"content": text}),
                    Shape::Text => json!(text),
                };
                let mut chunk = self.chunk(delta, logprobs, None);
                if ids {
                    chunk["choices"][0]["token_ids"] = json!([id]);
                }
                Ok(vec![chunk])
            }
            Output::Finished { reason, usage } => {
                let empty = if self.shape == Shape::Chat { json!({}) } else { json!("") };
                let mut chunks = vec![self.chunk(empty, Value::Null, Some(reason))];
                if self.include_usage {
                    let mut chunk = self.frame("chunk");
                    chunk["choices"] = json!([]);
                    chunk["usage"] = usage_value(&usage);
                    chunks.push(chunk);
                }
                Ok(chunks)
            }
            Output::Failed(error) => Err(error),
        }
    }

    /// The whole answer as one document.
    async fn whole(mut self, mut generation: Generation) -> Result<Value, GenerateError> {
        let (mut text, mut ids) = (String::new(), Vec::new());
        let (mut chat, mut list) = (Vec::new(), TextLogprobs::default());
        let mut end = (FinishReason::Failed, Usage::default());
        while let Some(output) = generation.next().await {
            match output {
                Output::Started { .. } => {}
                Output::Token { id, text: piece, logprobs, end } => {
                    if let Some(found) = logprobs.filter(|_| !end && self.logprobs) {
                        match self.shape {
                            Shape::Chat => chat.push(logprobs::chat(&self.card, id, &found)),
                            Shape::Text => list.push(&self.card, id, &found, self.offset),
                        }
                    }
                    self.offset += piece.chars().count();
                    text.push_str(&piece);
                    ids.push(id);
                }
                Output::Finished { reason, usage } => end = (reason, usage),
                Output::Failed(error) => return Err(error),
            }
        }
        let logprobs = match (self.logprobs, self.shape) {
            (false, _) => Value::Null,
            (true, Shape::Chat) => json!({"content": chat, "refusal": null}),
            (true, Shape::Text) => list.value(),
        };
        Ok(self.document(&text, &ids, logprobs, end))
    }

    fn document(
        &self,
        text: &str,
        ids: &[TokenId],
        logprobs: Value,
        (reason, usage): (FinishReason, Usage),
    ) -> Value {
        let mut choice = json!({"index": 0});
        match self.shape {
            Shape::Chat => {
                choice["message"] = json!({"role": "assistant", "content": text, "refusal": null});
            }
            Shape::Text => choice["text"] = json!(text),
        }
        choice["logprobs"] = logprobs;
        choice["finish_reason"] = json!(reason_name(reason));
        let mut body = self.frame("whole");
        if let Some(prompt) = &self.prompt_ids {
            choice["token_ids"] = json!(ids);
            match self.shape {
                Shape::Chat => body["prompt_token_ids"] = json!(prompt),
                Shape::Text => choice["prompt_token_ids"] = json!(prompt),
            }
        }
        body["choices"] = json!([choice]);
        body["usage"] = usage_value(&usage);
        body
    }

    /// A chunk with one choice.
    fn chunk(&self, delta: Value, logprobs: Value, reason: Option<FinishReason>) -> Value {
        let content = if self.shape == Shape::Chat { "delta" } else { "text" };
        let mut choice = json!({"index": 0});
        choice[content] = delta;
        choice["logprobs"] = logprobs;
        choice["finish_reason"] = json!(reason.map(reason_name));
        let mut chunk = self.frame("chunk");
        chunk["choices"] = json!([choice]);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn frame(&self, part: &str) -> Value {
        let object = match (self.shape, part) {
            (Shape::Text, _) => "text_completion",
            (Shape::Chat, "chunk") => "chat.completion.chunk",
            (Shape::Chat, _) => "chat.completion",
        };
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.card.name,
            "system_fingerprint": FINGERPRINT,
        })
    }
}

fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        _ => "stop",
    }
}

fn usage_value(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}
