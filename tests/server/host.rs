//! A server over the fake runner, asked in process, and checks that every answer must pass.

use crate::engine::fake::{self, Answer, Knobs};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tilewright::base::{Clock, Limits, MonotonicClock, Policies};
use tilewright::engine::{EngineConfig, EngineHandle, LoadError, ModelCard, spawn};
use tilewright::server::{ModelState, ServerConfig, router};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tower::ServiceExt;

pub const CHAT: &str = "/v1/chat/completions";
pub const TEXT: &str = "/v1/completions";

/// What a host is made of; change what a test needs.
pub struct Setup {
    pub card: ModelCard,
    pub limits: Limits,
    pub policies: Policies,
    pub answer: Answer,
    pub output_buffer: usize,
    pub server: ServerConfig,
}

impl Setup {
    pub fn new(answer: Answer) -> Self {
        let limits = Limits { blocks: 512, ..fake::limits() };
        let server = ServerConfig::default();
        let policies = Policies::default();
        Self { card: fake::card(), limits, policies, answer, output_buffer: 4096, server }
    }

    pub fn start(self) -> Host {
        let (tell, told) = std::sync::mpsc::channel();
        let (knob, knobs) = std::sync::mpsc::channel();
        let telemetry = self.server.telemetry.clone();
        let build = move || {
            let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
            let mut config = EngineConfig::new(self.limits, clock);
            config.output_buffer = self.output_buffer;
            config.steps_in_flight = crate::support::steps_in_flight();
            config.policies = self.policies;
            config.sinks.push(telemetry.tap());
            let (engine, knobs) = fake::engine(self.card, config, self.answer);
            knob.send(knobs).unwrap();
            Ok::<_, LoadError>(engine)
        };
        let thread = spawn(build, move |ready| tell.send(ready).unwrap()).unwrap();
        let engine = told.recv().unwrap().unwrap();
        let (model, seen) = watch::channel(ModelState::Ready(engine.clone()));
        Host {
            router: router(self.server, seen),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            engine,
            model,
            knobs: knobs.recv().unwrap(),
            thread: Some(thread),
        }
    }
}

/// A running engine and the routes over it.
pub struct Host {
    pub router: Router,
    pub runtime: Runtime,
    pub engine: EngineHandle,
    pub model: watch::Sender<ModelState>,
    pub knobs: Arc<Knobs>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.engine.stop();
        self.knobs.pass(u64::MAX);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Host {
    /// One that says `text`.
    pub fn says(text: &str) -> Self {
        Setup::new(fake::script(fake::ids(text))).start()
    }

    pub fn send(&self, request: Request<Body>) -> Reply {
        self.runtime.block_on(ask(self.router.clone(), request))
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path).body(Body::empty()).unwrap())
    }

    pub fn post_bytes(&self, path: &str, kind: Option<&str>, body: Vec<u8>) -> Reply {
        let mut request = Request::post(path);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        self.send(request.body(Body::from(body)).unwrap())
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_bytes(path, Some("application/json"), body.to_string().into_bytes())
    }

    /// A chat or completion that must succeed.
    pub fn ok(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.body);
        reply.json()
    }

    /// One that must be refused: the fields of the error, its shape checked.
    pub fn refused(&self, path: &str, body: &Value) -> Refused {
        self.post(path, body).refused()
    }

    /// The frames of a stream that must succeed.
    pub fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.body);
        let (frames, done) = reply.frames();
        assert!(done, "a finished stream ends with [DONE]: {}", reply.body);
        frames
    }
}

pub async fn ask(router: Router, request: Request<Body>) -> Reply {
    let response = router.oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(bytes.to_vec()).expect("answers are UTF-8");
    Reply { status: head.status.as_u16(), headers: head.headers, body }
}

/// An error as a client reads it.
#[derive(PartialEq, Eq, Debug)]
pub struct Refused {
    pub status: u16,
    pub param: String,
    pub code: String,
    pub message: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json", "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub fn refused(&self) -> Refused {
        assert!(self.status >= 400, "{} is no error: {}", self.status, self.body);
        refused(self.status, &self.json())
    }

    /// The JSON frames of an event stream, and whether `[DONE]` came last.
    pub fn frames(&self) -> (Vec<Value>, bool) {
        assert_eq!(self.headers["content-type"], "text/event-stream");
        assert_eq!(self.headers["cache-control"], "no-cache");
        assert_eq!(self.headers["x-accel-buffering"], "no");
        let body = self.body.strip_suffix("\n\n").expect("ends with a blank line");
        let mut frames = Vec::new();
        let mut done = false;
        for frame in body.split("\n\n").filter(|frame| !frame.starts_with(':')) {
            assert!(!done, "nothing follows [DONE]");
            let data = frame.strip_prefix("data: ").unwrap_or_else(|| panic!("{frame:?}"));
            match data {
                "[DONE]" => done = true,
                data => frames.push(serde_json::from_str(data).unwrap()),
            }
        }
        (frames, done)
    }
}

/// Checks the error's shape: exactly four keys, of the right types.
pub fn refused(status: u16, body: &Value) -> Refused {
    let error = body["error"].as_object().unwrap_or_else(|| panic!("no error in {body}"));
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    let keys: Vec<_> = error.keys().map(String::as_str).collect();
    assert_eq!(keys, ["message", "type", "param", "code"], "{body}");
    let text = |name: &str| match &error[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => panic!("{name} is {other}"),
    };
    assert!(!text("message").is_empty() && !text("type").is_empty(), "{body}");
    Refused { status, param: text("param"), code: text("code"), message: text("message") }
}

/// What is logged on this thread while `run` runs.
pub fn logged(run: impl FnOnce()) -> String {
    let kept = Kept::default();
    let writer = kept.clone();
    let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
    tracing::subscriber::with_default(lines.json().finish(), run);
    let bytes = kept.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
