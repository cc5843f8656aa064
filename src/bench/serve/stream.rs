//! One request as a client sees it: sent, streamed, timed.

use super::{Load, LoadError};
use crate::sim::Arrival;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::time::Instant;
use ureq::Agent;

/// Words that most vocabularies have as one token each, with the space before.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "is", "that", "it", "for", "was", "on", "are", "as", "with",
    "they", "be", "at", "one", "have", "this", "from", "or", "had", "by", "hot", "but", "some",
    "what", "there", "we", "can", "out", "other", "were", "all", "your", "when", "up", "use",
    "word", "how", "said", "an", "each", "she", "which", "do", "their", "time", "if", "will",
    "way", "about", "many", "then", "them", "would", "write", "like", "so", "these", "her", "long",
    "make",
];

/// Which route is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    Chat,
    Completions,
}

/// What one request took. Times are in seconds.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Timed {
    /// When it was sent, from the start of the run.
    pub sent: f64,
    /// From its sending to the first token.
    pub first: Option<f64>,
    /// Between one chunk with text and the next.
    pub gaps: Vec<f64>,
    /// From its sending to its end.
    pub whole: f64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    /// What was answered, without the thoughts before.
    pub text: String,
    pub error: Option<String>,
}

impl Timed {
    pub(super) fn failed(error: String) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    /// Time per token after the first, in seconds.
    pub fn per_token(&self) -> Option<f64> {
        let first = self.first?;
        (self.output_tokens > 1).then(|| (self.whole - first) / (self.output_tokens - 1) as f64)
    }
}

pub(super) struct Client<'a> {
    load: &'a Load,
    agent: Agent,
    base: String,
    pub model: String,
}

impl<'a> Client<'a> {
    pub fn open(load: &'a Load) -> Result<Self, LoadError> {
        let base = load.url.trim_end_matches('/').trim_end_matches("/v1").to_string();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(load.patience))
            .max_idle_connections(4096)
            .max_idle_connections_per_host(4096)
            .user_agent(concat!("tilewright-bench/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let mut client = Self { load, agent, base, model: String::new() };
        client.model = match &load.model {
            Some(model) => model.clone(),
            None => client.first_model()?,
        };
        Ok(client)
    }

    fn first_model(&self) -> Result<String, LoadError> {
        let url = format!("{}/v1/models", self.base);
        let unreached = |reason: String| LoadError::Unreached { url: url.clone(), reason };
        let mut request = self.agent.get(&url);
        if let Some(key) = &self.load.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = request.call().map_err(|e| unreached(e.to_string()))?;
        let body = response.body_mut().read_to_string().map_err(|e| unreached(e.to_string()))?;
        if response.status() != 200 {
            return Err(unreached(format!("{} {}", response.status(), short(&body))));
        }
        let body: Value = serde_json::from_str(&body).map_err(|e| unreached(e.to_string()))?;
        let model = body["data"][0]["id"].as_str().map(str::to_string);
        model.ok_or(LoadError::NoModel { url })
    }

    fn body(&self, arrival: &Arrival) -> Value {
        let ids = arrival.prompt.ids(0, WORDS.len() as u32);
        let words: Vec<&str> = ids.iter().map(|id| WORDS[*id as usize % WORDS.len()]).collect();
        let prompt = words.join(" ");
        let mut body = json!({
            "model": self.model,
            "max_tokens": arrival.output,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        match self.load.endpoint {
            Endpoint::Chat => body["messages"] = json!([{"role": "user", "content": prompt}]),
            Endpoint::Completions => body["prompt"] = json!(prompt),
        }
        if self.load.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        if let Some(temperature) = self.load.temperature {
            body["temperature"] = json!(temperature);
        }
        body
    }

    /// Sends one request and reads its stream to the end.
    pub fn ask(&self, arrival: &Arrival, start: Instant) -> Timed {
        let body = self.body(arrival).to_string();
        let sent = Instant::now();
        let mut timed = Timed {
            sent: (sent - start).as_secs_f64(),
            prompt_tokens: u64::from(arrival.prompt.tokens()),
            ..Timed::default()
        };
        if let Err(error) = self.read(&body, sent, &mut timed) {
            timed.error = Some(error);
        }
        timed.whole = sent.elapsed().as_secs_f64();
        timed
    }

    fn read(&self, body: &str, sent: Instant, timed: &mut Timed) -> Result<(), String> {
        let path = match self.load.endpoint {
            Endpoint::Chat => "chat/completions",
            Endpoint::Completions => "completions",
        };
        let mut request = self.agent.post(format!("{}/v1/{path}", self.base));
        request = request.header("content-type", "application/json");
        if let Some(key) = &self.load.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = request.send(body).map_err(|e| e.to_string())?;
        if response.status() != 200 {
            let body = response.body_mut().read_to_string().unwrap_or_default();
            return Err(format!("{} {}", response.status(), short(&body)));
        }
        let lines = response.into_body().into_with_config().limit(u64::MAX).reader();
        let (mut chunks, mut last, mut done) = (0, sent, false);
        for line in BufReader::new(lines).lines() {
            let line = line.map_err(|e| e.to_string())?;
            let Some(data) = line.strip_prefix("data:").map(str::trim_start) else { continue };
            if data == "[DONE]" {
                done = true;
                break;
            }
            let now = Instant::now();
            let chunk: Value = serde_json::from_str(data).map_err(|e| e.to_string())?;
            if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
                return Err(short(&error.to_string()));
            }
            if has_text(&chunk) {
                chunks += 1;
                match timed.first {
                    None => timed.first = Some((now - sent).as_secs_f64()),
                    Some(_) => timed.gaps.push((now - last).as_secs_f64()),
                }
                last = now;
            }
            timed.text += content(&chunk);
            let usage = |name: &str| chunk["usage"][name].as_u64();
            timed.prompt_tokens = usage("prompt_tokens").unwrap_or(timed.prompt_tokens);
            timed.output_tokens = usage("completion_tokens").unwrap_or(timed.output_tokens);
        }
        // Servers that tell no usage send a token a chunk, more or less.
        if timed.output_tokens == 0 {
            timed.output_tokens = chunks;
        }
        match (done, timed.first) {
            (false, _) => Err("the stream ended without [DONE]".to_string()),
            (true, None) => Err("the answer had no text".to_string()),
            (true, Some(_)) => Ok(()),
        }
    }
}

/// The part of the answer's text that a chunk brings.
fn content(chunk: &Value) -> &str {
    let choice = &chunk["choices"][0];
    choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default()
}

/// Whether a chunk brings a part of the answer, be it a thought or a call.
fn has_text(chunk: &Value) -> bool {
    let delta = &chunk["choices"][0]["delta"];
    let thought = delta["reasoning_content"].as_str().unwrap_or_default();
    !content(chunk).is_empty() || !thought.is_empty() || delta["tool_calls"].is_array()
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}
