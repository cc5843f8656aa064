//! POST /v1/embeddings: the final hidden state of each input, of its last token or the mean over
//! all, as numbers or as the bytes of little-endian f32 in base64 (what the `openai` client asks
//! for unless told otherwise).

use super::access::key_holder;
use super::app::App;
use super::body;
use super::completions::{Input, inputs};
use super::error::{ApiError, ApiResult, Origin, json_response};
use super::fields::Fields;
use super::params::{check_model, note_unknown, tenant, timeout};
use super::reply::started;
use crate::engine::{EngineHandle, GenerateRequest, Pooling, Question};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const ROUTE: &str = "/v1/embeddings";
/// Most inputs of one request, as the API has it.
const INPUTS_MAX: usize = 2048;
/// Inputs of one request that the engine has at once, so that one request does not fill the queue.
const AT_ONCE: usize = 32;

struct Asked {
    /// For each input, its prompt still missing.
    request: GenerateRequest,
    normalize: bool,
    base64: bool,
    dimensions: Option<u32>,
}

pub(super) async fn post(State(app): State<Arc<App>>, request: Request) -> ApiResult<Response> {
    let engine = app.engine()?;
    let holder = key_holder(&request);
    let body = body::object(&app, request).await?;
    let (mut asked, inputs) = read(&app, &engine, &body)?;
    asked.request.tenant = holder.or(asked.request.tenant);
    let encode = move |engine: &EngineHandle| {
        let tokenizer = &engine.card().tokenizer;
        let ids = |input| match input {
            // Documents are data: control markers in them stay text.
            Input::Text(text) => tokenizer.encode_as(&text, false, true),
            Input::Ids(ids) => Ok(ids),
        };
        let all = inputs.into_iter().map(ids).collect::<Result<Vec<_>, _>>();
        all.map_err(|error| ApiError::encode(&error))
    };
    let prompts = app.off_thread(&engine, encode).await?;
    let several = prompts.len() > 1;
    let one = |(index, prompt)| {
        let field = if several { format!("input[{index}]") } else { "input".to_string() };
        let request = GenerateRequest { prompt, ..asked.request.clone() };
        pooled(&engine, request, field)
    };
    let states: Vec<(Vec<f32>, u32)> = stream::iter(prompts.into_iter().enumerate().map(one))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let tokens: u64 = states.iter().map(|state| u64::from(state.1)).sum();
    let mut data = Vec::with_capacity(states.len());
    for (index, (state, _)) in states.into_iter().enumerate() {
        let embedding = asked.value(state)?;
        data.push(json!({"object": "embedding", "index": index, "embedding": embedding}));
    }
    let answer = json!({
        "object": "list",
        "data": data,
        "model": engine.card().name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    });
    Ok(json_response(StatusCode::OK, &answer))
}

fn read(
    app: &App,
    engine: &EngineHandle,
    body: &Map<String, Value>,
) -> ApiResult<(Asked, Vec<Input>)> {
    let mut fields = Fields::new(body, "");
    check_model(&mut fields, engine)?;
    let pooling = match fields.string("pooling")? {
        None | Some("last") => Pooling::Last,
        Some("mean") => Pooling::Mean,
        Some(_) => return Err(fields.wrong("pooling", "must be \"last\" or \"mean\"")),
    };
    let request = GenerateRequest {
        question: Some(Question::Pooled(pooling)),
        priority: fields.count("priority")?,
        tenant: tenant(&mut fields)?,
        timeout_ms: timeout(&mut fields)?,
        ..GenerateRequest::default()
    };
    let asked = Asked {
        request,
        normalize: fields.boolean("normalize")?.unwrap_or(true),
        base64: match fields.string("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => {
                return Err(fields.wrong("encoding_format", "must be \"float\" or \"base64\""));
            }
        },
        dimensions: fields.count("dimensions")?,
    };
    let inputs = inputs(&mut fields, "input", INPUTS_MAX)?;
    note_unknown(app, ROUTE, &mut fields);
    Ok((asked, inputs))
}

/// The pooled state of one input, and its tokens.
async fn pooled(
    engine: &EngineHandle,
    request: GenerateRequest,
    field: String,
) -> ApiResult<(Vec<f32>, u32)> {
    let submitted = engine.submit(request);
    let mut generation = submitted.map_err(|error| {
        let error = ApiError::submit(&error, &field);
        // The engine knows it as the prompt.
        match error.param.as_deref() {
            Some("prompt") => error.with_param(&field),
            _ => error,
        }
    })?;
    let origin = Origin::of_prompt(field);
    started(&mut generation, &origin).await?;
    let done = generation.collect().await;
    let done = done.map_err(|error| ApiError::generate(&error, &origin))?;
    Ok((done.pooled, done.usage.prompt_tokens))
}

impl Asked {
    fn value(&self, mut state: Vec<f32>) -> ApiResult<Value> {
        if let Some(asked) = self.dimensions
            && asked as usize != state.len()
        {
            let message = format!(
                "dimensions: this model's embeddings have {} dimensions and cannot be shortened",
                state.len()
            );
            return Err(ApiError::field("dimensions", message));
        }
        if self.normalize {
            let norm = state.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
            if norm > 0.0 {
                state.iter_mut().for_each(|v| *v = (f64::from(*v) / norm) as f32);
            }
        }
        if self.base64 {
            let bytes: Vec<u8> = state.iter().flat_map(|v| v.to_le_bytes()).collect();
            return Ok(json!(BASE64_STANDARD.encode(bytes)));
        }
        Ok(json!(state))
    }
}
