//! The `timings` of an answer, in llama-server's words. Measured where the answer is written: the
//! prompt's time runs from the engine's taking of the request to the first token, waiting
//! included, and the rest from there to the last token. `attribution` splits the time of all tokens
//! by what it was spent on, from the engine's own events.

use super::telemetry::Asking;
use crate::base::RequestId;
use crate::engine::Usage;
use serde_json::{Value, json};
use std::time::Instant;

pub(super) struct Timings {
    began: Instant,
    first: Option<Instant>,
    last: Instant,
    asking: Asking,
    pub requests: Vec<RequestId>,
}

impl Timings {
    /// Before the request is sent.
    pub fn start(asking: Asking) -> Self {
        let now = Instant::now();
        Self { began: now, first: None, last: now, asking, requests: Vec::new() }
    }

    /// A token has come.
    pub fn token(&mut self) {
        self.last = Instant::now();
        self.first.get_or_insert(self.last);
    }

    pub fn value(&self, usage: &Usage) -> Value {
        let first = self.first.unwrap_or_else(Instant::now);
        let prompt = first.duration_since(self.began).as_secs_f64() * 1e3;
        let predicted = self.last.saturating_duration_since(first).as_secs_f64() * 1e3;
        let prompt_n = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
        let predicted_n = usage.completion_tokens;
        let each = |ms: f64, n: u32| if n > 0 { ms / f64::from(n) } else { 0.0 };
        let rate = |ms: f64, n: u32| if ms > 0.0 { f64::from(n) * 1e3 / ms } else { 0.0 };
        json!({
            "cache_n": usage.cached_tokens,
            "prompt_n": prompt_n,
            "prompt_ms": prompt,
            "prompt_per_token_ms": each(prompt, prompt_n),
            "prompt_per_second": rate(prompt, prompt_n),
            "predicted_n": predicted_n,
            "predicted_ms": predicted,
            "predicted_per_token_ms": each(predicted, predicted_n),
            "predicted_per_second": rate(predicted, predicted_n),
            "attribution": self.asking.value(&self.requests),
        })
    }
}
