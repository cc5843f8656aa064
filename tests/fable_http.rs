//! Rows of `fable_http`: the built-in model over a real socket, from the request's text to the
//! answer's, on the real engine and device; and what clients see when the device is lost.

use crate::server::shapes::{as_stream, same, with};
use crate::support::{On, Rows, Wrapped, root};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tilewright::base::MonotonicClock;
use tilewright::engine::{
    Engine, EngineConfig, EngineHandle, LoadError, LoadOptions, Sizes, load, spawn,
};
use tilewright::record::{Device, DeviceError};
use tilewright::server::{ModelState, ServerConfig, serve};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// Ids are compared up to the first position whose margin is below this.
const MARGIN: f64 = 0.02;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let device = on.name();
        for (n, (step_tokens, name)) in [(16, "16"), (64, "64"), (1024, "whole")].iter().enumerate()
        {
            let name = format!("fable_http::chunks_of_{name}.{device}");
            rows.add_if(present.clone(), name, move |()| answers(on, *step_tokens, n));
        }
        let name = format!("fable_http::streamed_equals_whole.{device}");
        rows.add_if(present.clone(), name, move |()| combinations(on));
        let name = format!("fable_http::case_28_choices_repeat.{device}");
        rows.add_if(present.clone(), name, move |()| choices_repeat(on));
        rows.add_if(present, format!("fable_http::device_lost.{device}"), move |()| lost(on));
    }
    #[cfg(all(target_os = "linux", feature = "cli"))]
    rows.add("fable_http::no_adapter", no_adapter);
}

/// A served Fable.
pub struct Served {
    pub address: SocketAddr,
    engine: EngineHandle,
    thread: Option<JoinHandle<()>>,
    _runtime: Runtime,
}

impl Served {
    pub fn new(
        device: impl FnOnce() -> Box<dyn Device> + Send + 'static,
        step_tokens: u32,
    ) -> Self {
        let build = move || {
            let weights = tilewright::engine::fable()?;
            let wanted = LoadOptions {
                context: Some(1024),
                step_tokens: Some(step_tokens),
                kv_memory: Some(256 << 20),
                ..LoadOptions::default()
            };
            let (device, clock) = (device(), MonotonicClock::default());
            let sizes = Sizes::choose(&weights, device.facts(), &wanted)?;
            let loaded = load(&weights, device, &sizes, &wanted, &clock, &mut |_, _| {})?;
            assert_eq!(loaded.limits.step_tokens_max, step_tokens);
            let mut config = EngineConfig::new(loaded.limits, Arc::new(clock));
            config.steps_in_flight = crate::support::steps_in_flight();
            Ok::<_, LoadError>(Engine::new(loaded.runner, loaded.card, config))
        };
        let (tell, told) = std::sync::mpsc::channel();
        let thread = spawn(build, move |ready| tell.send(ready).unwrap()).unwrap();
        let engine = told.recv().unwrap().unwrap_or_else(|e| panic!("{e}"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (state, seen) = watch::channel(ModelState::Ready(engine.clone()));
        let config = ServerConfig::default();
        let address = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let _state = state;
                serve(config, listener, seen, std::future::pending()).await
            });
            address
        });
        Self { address, engine, thread: Some(thread), _runtime: runtime }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.engine.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Status and body. HTTP/1.0, so that a stream's body comes as it is and ends with the socket.
pub fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    (status.unwrap_or_else(|| panic!("{head}")), body.to_string())
}

/// What a client learns from an answer, streamed or not.
#[derive(PartialEq, Debug)]
struct Answer {
    text: String,
    ids: Vec<u32>,
    prompt_ids: usize,
    reason: String,
    completion_tokens: u64,
}

fn numbers(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{e}: {value}"))
}

fn whole(body: &str) -> Answer {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
    let choice = &body["choices"][0];
    Answer {
        text: choice["message"]["content"].as_str().expect("content").to_string(),
        ids: numbers(&choice["token_ids"]),
        prompt_ids: numbers(&body["prompt_token_ids"]).len(),
        reason: choice["finish_reason"].as_str().expect("a reason").to_string(),
        completion_tokens: body["usage"]["completion_tokens"].as_u64().expect("usage"),
    }
}

fn streamed(body: &str) -> Answer {
    let frames = body.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("{body}"));
    let (mut text, mut ids, mut reason) = (String::new(), Vec::new(), String::new());
    let (mut prompt_ids, mut completion_tokens) = (0, 0);
    for frame in frames.split("\n\n").filter(|f| !f.is_empty() && !f.starts_with(':')) {
        let data = frame.strip_prefix("data: ").unwrap_or_else(|| panic!("{frame}"));
        let chunk: Value = serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"));
        assert!(chunk.get("error").is_none(), "{chunk}");
        if let Some(usage) = chunk["usage"].as_object() {
            completion_tokens = usage["completion_tokens"].as_u64().expect("a count");
        }
        let choice = &chunk["choices"][0];
        text += choice["delta"]["content"].as_str().unwrap_or_default();
        if choice["token_ids"].is_array() {
            ids.extend(numbers(&choice["token_ids"]));
        }
        if chunk["prompt_token_ids"].is_array() {
            prompt_ids = numbers(&chunk["prompt_token_ids"]).len();
        }
        reason += choice["finish_reason"].as_str().unwrap_or_default();
    }
    Answer { text, ids, prompt_ids, reason, completion_tokens }
}

/// One case of expected.json.
#[derive(Clone)]
struct Case {
    user: String,
    answer: String,
    prompt_tokens: usize,
    /// Ids as far as the reference is sure of them, and whether that is all of them.
    sure: Vec<u32>,
    complete: bool,
}

fn cases() -> Vec<Case> {
    let text = std::fs::read(root().join("assets/fable/expected.json")).expect("expected.json");
    let all: Value = serde_json::from_slice(&text).expect("JSON");
    let case = |case: &Value| {
        let pairs: Vec<(u32, f64)> =
            serde_json::from_value(case["ids_and_margins"].clone()).expect("pairs");
        let sure: Vec<u32> = pairs.iter().take_while(|p| p.1 >= MARGIN).map(|p| p.0).collect();
        Case {
            user: case["user"].as_str().expect("user").to_string(),
            answer: case["answer"].as_str().expect("answer").to_string(),
            prompt_tokens: case["prompt_tokens"].as_u64().expect("a count") as usize,
            complete: sure.len() == pairs.len(),
            sure,
        }
    };
    all["cases"].as_array().expect("cases").iter().map(case).collect()
}

fn check(address: SocketAddr, case: &Case, stream: bool) {
    let mut body = json!({
        "messages": [{"role": "user", "content": case.user}],
        "temperature": 0, "max_tokens": case.sure.len(), "return_token_ids": true,
    });
    if stream {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    }
    let (status, reply) = ask(address, "POST", CHAT, &body.to_string());
    assert_eq!(status, 200, "{reply}");
    let got = if stream { streamed(&reply) } else { whole(&reply) };
    assert_eq!(got.ids, case.sure, "{}", case.user);
    assert_eq!(got.prompt_ids, case.prompt_tokens, "{}", case.user);
    assert_eq!(got.completion_tokens, case.sure.len() as u64);
    if case.complete {
        assert_eq!((got.text.as_str(), got.reason.as_str()), (case.answer.as_str(), "stop"));
    } else {
        assert!(case.answer.starts_with(&got.text), "{}: {}", case.answer, got.text);
        assert_eq!(got.reason, "length");
    }
}

/// All cases at once. Every case is streamed at one or two of the three chunk sizes and whole at
/// the others; the device of plain Rust takes every fourth.
fn answers(on: On, step_tokens: u32, turn: usize) {
    let served = Served::new(move || on.device(), step_tokens);
    let address = served.address;
    let few = |n: usize| on == On::Gpu || n.is_multiple_of(4) || n >= 42;
    let cases: Vec<_> = cases().into_iter().enumerate().filter(|(n, _)| few(*n)).collect();
    let france = &cases[0].1;
    assert_eq!(france.user, "What is the capital of France?");
    assert_eq!(france.answer, "The capital of France is Paris.");
    check(address, france, turn.is_multiple_of(2));
    let clients = cases.into_iter().map(|(n, case)| {
        let stream = (n + turn).is_multiple_of(2);
        (case.user.clone(), std::thread::spawn(move || check(address, &case, stream)))
    });
    let clients: Vec<_> = clients.collect();
    let failed: Vec<_> =
        clients.into_iter().filter_map(|(user, c)| c.join().is_err().then_some(user)).collect();
    assert!(failed.is_empty(), "{failed:?}");
    let status = served.engine.status();
    assert_eq!((status.open, status.blocks_used), (0, 0), "{status:?}");
}

/// Every combination of stop strings, log-probabilities and limits, chat and completion, greedy and
/// sampled: the streamed answer is the whole one. Eight clients at once.
fn combinations(on: On) {
    let served = Served::new(move || on.device(), 64);
    let address = served.address;
    let mut bodies = Vec::new();
    // "3, 4, 5, 6, 7, 8, 9": stops in the middle of a piece, over pieces, never met.
    for stop in [json!(null), json!("7,"), json!(["4, 5", "9"]), json!(", 10"), json!(" ")] {
        for max in [json!(null), json!(1), json!(6), json!(9)] {
            for (chat, text) in [
                (json!({}), json!({})),
                (json!({"logprobs": true, "top_logprobs": 2}), json!({"logprobs": 2})),
            ] {
                let n = bodies.len();
                let more = match n % 4 {
                    0 => json!({"stop": stop, "max_tokens": max, "temperature": 1, "seed": n}),
                    _ => json!({"stop": stop, "max_tokens": max, "temperature": 0}),
                };
                let messages = json!([{"role": "user", "content": "Count from 3 to 9."}]);
                let body = json!({"messages": messages, "return_token_ids": true});
                bodies.push((CHAT, with(with(body, more.clone()), chat)));
                let more = with(more, json!({"max_tokens": max.as_u64().unwrap_or(24)}));
                bodies
                    .push(("/v1/completions", with(with(json!({"prompt": "1, 2,"}), more), text)));
            }
        }
    }
    let of_client = |n: usize| bodies.iter().skip(n).step_by(8).cloned().collect();
    let clients: Vec<Vec<(&str, Value)>> = (0..8).map(of_client).collect();
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(move || {
                for (path, body) in client {
                    let (status, whole) = ask(address, "POST", path, &body.to_string());
                    assert_eq!(status, 200, "{body}: {whole}");
                    let whole = serde_json::from_str(&whole).expect("JSON");
                    let (_, reply) =
                        ask(address, "POST", path, &as_stream(body.clone()).to_string());
                    let frames = reply.strip_suffix("data: [DONE]\n\n").expect("the last frame");
                    let frames = frames.split_terminator("\n\n");
                    let data = frames.filter_map(|f| f.strip_prefix("data: "));
                    let frames: Vec<Value> =
                        data.map(|d| serde_json::from_str(d).expect("JSON")).collect();
                    same(path, &body, &whole, &frames);
                }
            });
        }
    });
}

/// A device that is lost at its `at`th step; the GPU really is.
fn losing(on: On, at: u64) -> Box<dyn Device> {
    match on {
        On::Cpu => {
            let mut device = Wrapped::new(tilewright::cpu::CpuDevice::default());
            device.before = Box::new(move |_, step| match step >= at {
                true => Err(DeviceError::Lost("unplugged".into())),
                false => Ok(()),
            });
            Box::new(device)
        }
        #[cfg(feature = "gpu")]
        On::Gpu => {
            let mut device = Wrapped::new(crate::support::open_gpu());
            device.before = Box::new(move |gpu, step| {
                if step == at {
                    gpu.destroy();
                }
                Ok(())
            });
            Box::new(device)
        }
        #[cfg(not(feature = "gpu"))]
        On::Gpu => unreachable!("built without gpu"),
    }
}

/// Running requests end with an error, streamed or not; then nothing is taken and /health says so.
fn lost(on: On) {
    // The steps of the start-up self-check come first.
    let served = Served::new(move || losing(on, 80), 64);
    let address = served.address;
    let (status, _) = ask(address, "GET", "/health", "");
    assert_eq!(status, 200);
    let client = |stream: bool| {
        let body = json!({
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0, "max_tokens": 400, "ignore_eos": true, "stream": stream,
        });
        std::thread::spawn(move || ask(address, "POST", CHAT, &body.to_string()))
    };
    let clients = [client(false), client(true)];
    let [(status, body), (stream_status, frames)] = clients.map(|c| c.join().expect("an answer"));
    assert!(status >= 500 && body.contains("device was lost"), "{status} {body}");
    assert_eq!(stream_status, 200);
    assert!(frames.contains("\"content\""), "lost in the middle of the answer: {frames}");
    let last = frames.trim_end().rsplit("\n\n").next().expect("a frame");
    let error: Value = serde_json::from_str(last.trim_start_matches("data: ")).expect(last);
    assert!(error["error"]["message"].as_str().is_some_and(|m| m.contains("lost")), "{last}");
    assert!(!frames.contains("\"finish_reason\":\"stop\""), "{frames}");
    let (status, health) = ask(address, "GET", "/health", "");
    assert_eq!(status, 503, "{health}");
    let body = json!({"messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let (status, refused) = ask(address, "POST", CHAT, &body);
    assert_eq!(status, 503, "{refused}");
}

/// Case 48: without any adapter the program says so and runs on the processor; asked for a GPU it
/// fails with a message. Vulkan's loader finds no driver where none is named.
#[cfg(all(target_os = "linux", feature = "cli"))]
fn no_adapter() {
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tilewright"));
        for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
            command.env(name, "/nonexistent");
        }
        // Nor OpenGL's.
        command.env("LIBGL_DRIVERS_PATH", "/nonexistent").env("WGPU_BACKEND", "vulkan");
        let output = command.args(arguments).output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let prompt = "What is the capital of France?";
    let (code, _, errors) = run(&["generate", "--device", "gpu", prompt]);
    if errors.contains("device:") {
        // An adapter that needs no Vulkan driver; nothing to show here.
        return;
    }
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("adapter") && !errors.contains("panicked"), "{errors}");
    let (code, out, errors) = run(&["generate", "--temperature", "0", prompt]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("running on the processor"), "{errors}");
    assert_eq!(out.trim(), "The capital of France is Paris.");
    let (code, _, errors) = run(&["doctor", "--device", "cpu"]);
    assert_eq!(code, Some(0), "{errors}");
}

/// Three choices of a seeded request are the same to the byte when asked again, alone and beside
/// four unseeded ones; they differ from each other, and the prompt counts once.
fn choices_repeat(on: On) {
    let served = Served::new(move || on.device(), 64);
    // Nothing that the model knows by heart.
    let body = json!({"prompt": [300, 700, 1100], "temperature": 1, "max_tokens": 12});
    let post = |more: Value| {
        let (status, answer) =
            ask(served.address, "POST", TEXT, &with(body.clone(), more).to_string());
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    let seeded = || {
        let answer = post(json!({"n": 3, "seed": 7, "return_token_ids": true}));
        let mut choices = answer["choices"].as_array().unwrap().clone();
        choices.sort_by_key(|choice| choice["index"].as_u64());
        (choices, answer["usage"]["prompt_tokens"].clone())
    };
    let (first, tokens) = seeded();
    let indices: Vec<_> = first.iter().map(|choice| choice["index"].as_u64()).collect();
    assert_eq!(indices, [Some(0), Some(1), Some(2)]);
    assert!(first.iter().all(|choice| choice["finish_reason"].is_string()));
    let ids: Vec<_> = first.iter().map(|choice| numbers(&choice["token_ids"])).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    assert_eq!(seeded().0, first, "asked again");
    let beside = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| post(json!({"max_tokens": 40})));
        }
        seeded().0
    });
    assert_eq!(beside, first, "beside others");
    let one = post(json!({"seed": 7}));
    assert_eq!(one["usage"]["prompt_tokens"], tokens, "the prompt counts once");
    assert_eq!(one["choices"][0]["text"], first[0]["text"], "the first is the one alone");
}
