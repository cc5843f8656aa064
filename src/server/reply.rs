//! Answers in the API's shape: chunks for streams, one document otherwise. One answer may have
//! several choices, `n` for each prompt, whose outputs come in any order.

use super::app::{App, unix_seconds};
use super::choice::{Choice, Shape};
use super::error::{ApiError, ApiResult, Origin, json_response};
use super::params::Params;
use super::sse;
use super::timings::Timings;
use crate::base::TokenId;
use crate::engine::{EngineHandle, GenerateError, Generation, ModelCard, Output, Usage};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::{SelectAll, select_all};
use serde_json::{Value, json};
use std::sync::Arc;

const FINGERPRINT: &str = concat!("tilewright-", env!("CARGO_PKG_VERSION"));

/// A prompt: its ids, and its text where an echo may need it.
pub(super) struct Prompt {
    pub ids: Vec<TokenId>,
    pub text: String,
}

/// The parts that all chunks of one answer share, and its choices.
pub(super) struct Reply {
    shape: Shape,
    id: String,
    created: u64,
    card: Arc<ModelCard>,
    include_usage: bool,
    token_ids: bool,
    timings: Option<Timings>,
    /// Those of a prompt follow each other.
    choices: Vec<Choice>,
    /// Choices of each prompt.
    n: usize,
}

/// The outputs of all choices, each with the index of its choice.
pub(super) type Outputs = SelectAll<futures_util::stream::BoxStream<'static, (usize, Output)>>;

/// Submits a request for each prompt, waits until the engine has taken all, and answers.
pub(super) async fn generate(
    app: &App,
    engine: &EngineHandle,
    params: Params,
    shape: Shape,
    prompts: Vec<Prompt>,
    origin: Origin,
) -> ApiResult<Response> {
    // What never fits is no matter of trying again. (Of one prompt the engine says so.)
    let (each, most) = (params.request.n.unwrap_or(1), engine.status().limits.queue_max.max(1));
    let all = prompts.len() as u64 * u64::from(each);
    if prompts.len() > 1 && all > u64::from(most) {
        let message = format!(
            "{} asks for {all} answers at once, more than the queue holds, which is {most}",
            origin.prompt
        );
        return Err(ApiError::field(origin.prompt, message));
    }
    let mut reply = Reply::new(app, engine, shape, &params);
    let mut generations = Vec::new();
    for prompt in prompts {
        let mut request = params.request.clone();
        request.prompt = prompt.ids.clone();
        let submitted = engine
            .submit_choices(request)
            .map_err(|error| params.rename(ApiError::submit(&error, &origin.prompt)))?;
        for generation in submitted {
            let index = generations.len();
            if let Some(timings) = &mut reply.timings
                && timings.requests.last() != Some(&generation.id())
            {
                timings.requests.push(generation.id());
            }
            generations.push(generation);
            let (asked, ids) = (params.asked(shape), prompt.ids.clone());
            let mut choice = Choice::new(asked, index, ids, prompt.text.clone());
            if let Some(reading) = &params.reading {
                choice.read_parts(reading.clone(), app.fresh_id());
            }
            reply.choices.push(choice);
        }
    }
    app.config.telemetry.observe_choices(generations.len());
    for generation in &mut generations {
        started(generation, &origin).await?;
    }
    let outputs = generations.into_iter().enumerate();
    let outputs = select_all(outputs.map(|(index, g)| g.map(move |o| (index, o)).boxed()));
    if params.stream {
        return Ok(sse::response(app, outputs, reply, origin));
    }
    match reply.whole(outputs).await {
        Ok(body) => Ok(json_response(StatusCode::OK, &body)),
        Err(error) => Err(ApiError::generate(&error, &origin)),
    }
}

/// Waits until the engine has taken a request.
pub(super) async fn started(generation: &mut Generation, origin: &Origin) -> ApiResult<()> {
    match generation.next().await {
        Some(Output::Started { .. }) => Ok(()),
        Some(Output::Failed(error)) => Err(ApiError::generate(&error, origin)),
        _ => Err(ApiError::generate(&GenerateError::Stopped, origin)),
    }
}

impl Reply {
    fn new(app: &App, engine: &EngineHandle, shape: Shape, params: &Params) -> Self {
        let lead = if shape == Shape::Chat { "chatcmpl" } else { "cmpl" };
        Self {
            shape,
            id: format!("{lead}-{}", app.fresh_id()),
            created: unix_seconds(),
            card: engine.card().clone(),
            include_usage: params.include_usage,
            token_ids: params.return_token_ids,
            timings: params.timings.then(|| Timings::start(app.config.telemetry.ask_waits())),
            choices: Vec::new(),
            n: params.request.n.unwrap_or(1).max(1) as usize,
        }
    }

    /// The chunks that open a stream, before the engine has computed anything.
    pub fn opening(&mut self) -> Vec<Value> {
        let card = self.card.clone();
        let parts: Vec<_> = self.choices.iter_mut().filter_map(|c| c.opening(&card)).collect();
        let mut chunks: Vec<_> = parts.into_iter().map(|part| self.chunk(part)).collect();
        if self.token_ids
            && self.shape == Shape::Chat
            && let (Some(first), Some(choice)) = (chunks.first_mut(), self.choices.first())
        {
            first["prompt_token_ids"] = json!(choice.prompt());
        }
        chunks
    }

    /// The chunks of one output of choice `index`, and whether the answer is complete with it.
    pub fn chunks(
        &mut self,
        index: usize,
        output: Output,
    ) -> Result<(Vec<Value>, bool), GenerateError> {
        if let Output::Failed(error) = output {
            return Err(error);
        }
        let last = matches!(output, Output::Finished { .. });
        self.observe(&output);
        let card = self.card.clone();
        let choice = self.choices.get_mut(index);
        let parts = choice.map(|choice| choice.take(&card, output)).unwrap_or_default();
        let mut chunks: Vec<_> = parts.into_iter().map(|part| self.chunk(part)).collect();
        let complete = last && self.choices.iter().all(|choice| choice.end.is_some());
        if complete && self.include_usage {
            let mut chunk = self.frame("chunk");
            chunk["choices"] = json!([]);
            chunk["usage"] = usage_value(&self.usage());
            chunks.push(chunk);
        }
        if complete
            && let Some(timings) = &self.timings
            && let Some(chunk) = chunks.last_mut()
        {
            chunk["timings"] = timings.value(&self.usage());
        }
        Ok((chunks, complete))
    }

    /// The whole answer as one document.
    async fn whole(mut self, mut outputs: Outputs) -> Result<Value, GenerateError> {
        let card = self.card.clone();
        // An echo without scores is due before anything is computed.
        for choice in &mut self.choices {
            choice.opening(&card);
        }
        while let Some((index, output)) = outputs.next().await {
            match output {
                Output::Failed(error) => return Err(error),
                output => {
                    self.observe(&output);
                    if let Some(choice) = self.choices.get_mut(index) {
                        choice.take(&card, output);
                    }
                }
            }
        }
        let mut body = self.frame("whole");
        if self.token_ids
            && self.shape == Shape::Chat
            && let Some(choice) = self.choices.first()
        {
            body["prompt_token_ids"] = json!(choice.prompt());
        }
        let usage = self.usage();
        let timings = self.timings.as_ref().map(|timings| timings.value(&usage));
        let choices: Vec<_> = self.choices.into_iter().map(Choice::document).collect();
        body["choices"] = Value::Array(choices);
        body["usage"] = usage_value(&usage);
        if let Some(timings) = timings {
            body["timings"] = timings;
        }
        Ok(body)
    }

    fn observe(&mut self, output: &Output) {
        if let (Some(timings), Output::Token { .. }) = (&mut self.timings, output) {
            timings.token();
        }
    }

    /// The sum over all prompts, each counted once, and all choices.
    fn usage(&self) -> Usage {
        let mut all = Usage::default();
        for (at, choice) in self.choices.iter().enumerate() {
            let Some((_, usage)) = choice.end else { continue };
            all.completion_tokens = all.completion_tokens.saturating_add(usage.completion_tokens);
            if at.is_multiple_of(self.n) {
                all.prompt_tokens = all.prompt_tokens.saturating_add(usage.prompt_tokens);
                all.cached_tokens = all.cached_tokens.saturating_add(usage.cached_tokens);
            }
        }
        all
    }

    /// A chunk with one choice.
    fn chunk(&self, part: Value) -> Value {
        let mut chunk = self.frame("chunk");
        chunk["choices"] = json!([part]);
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

fn usage_value(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens.saturating_add(usage.completion_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}
