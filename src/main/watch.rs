//! A server elsewhere as a source for the window: its event feed is read on a thread of its own and
//! taken up again when it breaks; requests typed here go out as API calls.

use crate::remote::Server;
use crate::wake::{Wake, Waker, locked};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tilewright::base::{Limits, Policies};
use tilewright::trace::Told;
use tilewright::viewer::{EngineState, Note, Submission, Viewer};

/// Frames that may wait for the window; one more, and the feed is begun anew with a snapshot.
const WAITING_MAX: usize = 1 << 17;
/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(2);

/// What the threads tell the window.
struct Shared {
    waiting: Mutex<VecDeque<Told>>,
    notes: Mutex<Vec<Note>>,
    state: Mutex<EngineState>,
    waker: Waker,
    /// The window looks at something else by now.
    left: AtomicBool,
}

impl Shared {
    fn set(&self, state: EngineState) {
        *locked(&self.state) = state;
        self.waker.tell();
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
        self.waker.tell();
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
            state: Mutex::new(EngineState::Loading(format!("asking {}", server.url()))),
            waker: Waker::new(wake),
            left: AtomicBool::new(false),
        });
        let (from, to) = (server.clone(), shared.clone());
        let thread = std::thread::Builder::new().name("tilewright-remote".to_string());
        thread.spawn(move || follow(&from, &to))?;
        Ok(Self { server, shared })
    }

    /// Shows what came since the last call.
    pub fn pump(&self, viewer: &mut Viewer) {
        self.shared.waker.looked();
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
        self.background(move |server| ask(server, &submission));
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
                shared.waker.tell();
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

/// The first model's name.
fn model(server: &Server) -> Result<String> {
    let models = server.call("/v1/models", None)?.into_body().read_to_string()?;
    let models: Value = serde_json::from_str(&models).context("/v1/models")?;
    let name = models["data"][0]["id"].as_str();
    Ok(name.with_context(|| format!("{} serves no model", server.url()))?.to_string())
}

/// Sends a request and reads its answer to the end: one that nobody reads is cancelled.
fn ask(server: &Server, submission: &Submission) -> Result<()> {
    let mut body = json!({
        "model": model(server)?,
        "stream": true,
        "max_tokens": submission.max_tokens,
        "temperature": submission.temperature,
        "top_k": submission.top_k,
        "top_p": submission.top_p,
        "seed": submission.seed,
        "ignore_eos": submission.ignore_eos,
    });
    let path = if submission.chat {
        let turns = submission.turns().map(|(role, text)| json!({"role": role, "content": text}));
        body["messages"] = turns.collect();
        "/v1/chat/completions"
    } else {
        body["prompt"] = json!(submission.prompt);
        "/v1/completions"
    };
    let response = server.call(path, Some(&body))?;
    for line in BufReader::new(response.into_body().into_reader()).lines() {
        let line = line?;
        let frame = line.strip_prefix("data: ").and_then(|d| serde_json::from_str(d).ok());
        let frame: Value = frame.unwrap_or_default();
        if let Some(message) = frame["error"]["message"].as_str() {
            bail!("{message}");
        }
    }
    Ok(())
}
