//! A server elsewhere as a source for the viewer: its event feed is read on a thread of its own and
//! taken up again when it breaks; requests typed here go out as API calls.

use crate::live::Wake;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tilewright::base::{Limits, Policies};
use tilewright::trace::{FeedReader, Told};
use tilewright::viewer::{EngineState, Note, Submission, Viewer};
use ureq::http::Response;
use ureq::{Agent, Body};

/// Frames that may wait for the window; one more, and the feed is begun anew with a snapshot.
const WAITING_MAX: usize = 1 << 17;
/// Servers say something at least this often, if only a comment.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(2);
/// Bytes of an answer or of a line of the feed.
const BYTES_MAX: u64 = 64 << 20;

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
    fn call(&self, path: &str, body: Option<&Value>) -> Result<Response<Body>> {
        let url = format!("{}{path}", self.url);
        let key = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let sent = match body {
            None => {
                let request = self.agent.get(&url);
                match key {
                    Some(key) => request.header("authorization", key).call(),
                    None => request.call(),
                }
            }
            Some(body) => {
                let request = self.agent.post(&url);
                match key {
                    Some(key) => request.header("authorization", key).send_json(body),
                    None => request.send_json(body),
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
        let mut body = BufReader::new(response.into_body().into_with_config().limit(u64::MAX).reader());
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = Read::take(&mut body, BYTES_MAX).read_until(b'\n', &mut line)?;
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

    /// The first model's name.
    fn model(&self) -> Result<String> {
        let models: Value = self.call("/v1/models", None)?.into_body().read_json()?;
        let name = models["data"][0]["id"].as_str();
        Ok(name.with_context(|| format!("{} serves no model", self.url))?.to_string())
    }

    /// Sends a request and reads its answer to the end: one that nobody reads is cancelled.
    fn ask(&self, submission: &Submission) -> Result<()> {
        let mut body = json!({
            "model": self.model()?,
            "stream": true,
            "max_tokens": submission.max_tokens,
            "temperature": submission.temperature,
            "top_k": submission.top_k,
            "top_p": submission.top_p,
            "seed": submission.seed,
            "ignore_eos": submission.ignore_eos,
        });
        let path = if submission.chat {
            body["messages"] = json!([{"role": "user", "content": submission.prompt}]);
            "/v1/chat/completions"
        } else {
            body["prompt"] = json!(submission.prompt);
            "/v1/completions"
        };
        let response = self.call(path, Some(&body))?;
        for line in BufReader::new(response.into_body().into_reader().take(BYTES_MAX)).lines() {
            let line = line?;
            let frame = line.strip_prefix("data: ").and_then(|d| serde_json::from_str(d).ok());
            let frame: Value = frame.unwrap_or_default();
            if let Some(message) = frame["error"]["message"].as_str() {
                bail!("{message}");
            }
        }
        Ok(())
    }
}

/// What the threads tell the window.
struct Shared {
    waiting: Mutex<VecDeque<Told>>,
    notes: Mutex<Vec<Note>>,
    state: Mutex<EngineState>,
    woken: AtomicBool,
    wake: Wake,
    /// The window looks at something else by now.
    left: AtomicBool,
}

/// A lock whose holder panicked still guards whole values.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn tell(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    fn set(&self, state: EngineState) {
        *locked(&self.state) = state;
        self.tell();
    }

    /// Keeps what was told for the window; false when nobody looks, or too much waits.
    fn take(&self, told: Told) -> bool {
        let mut waiting = locked(&self.waiting);
        if matches!(told, Told::Snapshot(_)) {
            waiting.clear();
        } else if waiting.len() >= WAITING_MAX {
            return false;
        }
        waiting.push_back(told);
        drop(waiting);
        self.tell();
        !self.left.load(Ordering::Acquire)
    }
}

/// A watched server.
pub struct Remote {
    server: Server,
    shared: Arc<Shared>,
}

impl Remote {
    /// Begins to watch; returns at once.
    pub fn start(server: Server, wake: Wake) -> Result<Self> {
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            notes: Mutex::default(),
            state: Mutex::new(EngineState::Loading(format!("asking {}", server.url))),
            woken: AtomicBool::new(false),
            wake,
            left: AtomicBool::new(false),
        });
        let (from, to) = (server.clone(), shared.clone());
        let thread = std::thread::Builder::new().name("tilewright-remote".to_string());
        thread.spawn(move || follow(&from, &to))?;
        Ok(Self { server, shared })
    }

    /// Shows what came since the last call.
    pub fn pump(&self, viewer: &mut Viewer) {
        self.shared.woken.store(false, Ordering::Release);
        for told in std::mem::take(&mut *locked(&self.shared.waiting)) {
            match told {
                Told::Snapshot(picture) => viewer.resume(*picture),
                Told::Event(event) => viewer.push(&event),
            }
        }
        for note in std::mem::take(&mut *locked(&self.shared.notes)) {
            viewer.note(note);
        }
        viewer.set_engine(locked(&self.shared.state).clone());
    }

    /// Sends a request from a thread of its own.
    pub fn submit(&self, submission: Submission) {
        self.background(move |server| server.ask(&submission));
    }

    /// Changes the server's limits or policies.
    pub fn set(&self, limits: Option<Limits>, policies: Option<Policies>) {
        let body = json!({"limits": limits, "policies": policies});
        self.background(move |server| server.call("/v1/engine/policies", Some(&body)).map(|_| ()));
    }

    fn background(&self, work: impl FnOnce(&Server) -> Result<()> + Send + 'static) {
        let (server, shared) = (self.server.clone(), self.shared.clone());
        std::thread::spawn(move || {
            if let Err(error) = work(&server) {
                locked(&shared.notes).push(Note::Problem(crate::told(&error)));
                shared.tell();
            }
        });
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.shared.left.store(true, Ordering::Release);
    }
}

/// Watches until the window looks at something else; a broken feed is begun anew.
fn follow(server: &Server, shared: &Shared) {
    while !shared.left.load(Ordering::Acquire) {
        let watched = server.watch(|told| {
            if matches!(told, Told::Snapshot(_)) {
                shared.set(EngineState::Running);
            }
            shared.take(told)
        });
        if let Err(error) = watched {
            let why = format!("{}; trying again every {} s", crate::told(&error), RETRY.as_secs());
            shared.set(EngineState::Failed(why));
            std::thread::sleep(RETRY);
        }
    }
}
