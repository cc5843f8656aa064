//! A server elsewhere: its API, and the feed of its engine's events.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;
use tilewright::trace::{FeedReader, Told};
use ureq::http::Response;
use ureq::{Agent, Body};

/// Servers say something at least this often, if only a comment.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes of a line of the feed.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// A server's address and key.
#[derive(Clone)]
pub struct Server {
    url: String,
    key: Option<String>,
    agent: Agent,
}

/// Whether a source is named by its address.
pub fn is_url(source: &str) -> bool {
    source.starts_with("http://") || source.starts_with("https://")
}

impl Server {
    pub fn new(url: &str, key: Option<String>) -> Self {
        let config = Agent::config_builder()
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_per_read(Some(SILENCE_MAX))
            .http_status_as_error(false);
        let url = url.trim_end_matches('/').trim_end_matches("/v1").to_string();
        Self { url, key, agent: config.build().new_agent() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Calls `path`, with `body` as a POST; anything but success is an error in the server's words.
    pub fn call(&self, path: &str, body: Option<&Value>) -> Result<Response<Body>> {
        let url = format!("{}{path}", self.url);
        let key = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let sent = match body {
            None => match key {
                Some(key) => self.agent.get(&url).header("authorization", key).call(),
                None => self.agent.get(&url).call(),
            },
            Some(body) => {
                let request = self.agent.post(&url).content_type("application/json");
                match key {
                    Some(key) => request.header("authorization", key).send(body.to_string()),
                    None => request.send(body.to_string()),
                }
            }
        };
        let mut response = sent.with_context(|| format!("{url} cannot be reached"))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let text = response.body_mut().with_config().limit(1 << 16).read_to_string();
        let text = text.unwrap_or_default();
        let told = serde_json::from_str::<Value>(&text).ok();
        let told = told.as_ref().and_then(|v| v["error"]["message"].as_str());
        let status = response.status();
        bail!("{url} answered {status}: {}", told.unwrap_or(text.trim()));
    }

    /// The feed from its snapshot on; `each` says whether to go on.
    pub fn watch(&self, mut each: impl FnMut(Told) -> bool) -> Result<()> {
        let response = self.call("/v1/engine/events", None)?;
        let mut reader = FeedReader::default();
        let mut body = BufReader::new(response.into_body().into_reader());
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = Read::take(&mut body, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if read == 0 {
                bail!("the server {} has ended its feed", self.url);
            }
            let text = String::from_utf8_lossy(&line);
            let told = reader.line(text.trim_end_matches(['\r', '\n']))?;
            if told.is_some_and(|told| !each(told)) {
                return Ok(());
            }
        }
    }
}
