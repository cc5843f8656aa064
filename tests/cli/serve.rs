//! `serve` over a real model: answers, a recording that folds, and how Ctrl-C ends it.

use crate::support::program::{QUICK, Serving, run};
use crate::support::{Rows, root};
use serde_json::{Value, json};
use std::io::{BufReader, Read};
use std::net::TcpStream;
use tilewright::trace::{FinishReason, Picture, Reader, fold};

pub fn rows(rows: &mut Rows) {
    rows.add("cli::serve_answers_and_records", serve_answers_and_records);
    rows.add("cli::serve_tells_invariance", serve_tells_invariance);
    rows.add("cli::view_draws_a_server", view_draws_a_server);
    rows.add("cli::serve_ends_where_the_model_cannot_load", cannot_load);
    #[cfg(unix)]
    rows.add("cli::interrupt_drains", interrupt_drains);
    #[cfg(unix)]
    rows.add("cli::second_interrupt_ends_at_once", second_interrupt_ends_at_once);
}

fn start(more: &[&str]) -> Serving {
    Serving::start(&[&["--device", "cpu"][..], &QUICK, more].concat())
}

fn body_of(answer: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

fn serve_answers_and_records() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let path = path.to_str().expect("a path");
    let mut serving = start(&["--record", path, "--served-model-name", "small"]);
    let health = body_of(&serving.ask("GET", "/health", ""));
    assert_eq!((&health["status"], &health["model"]), (&json!("ok"), &json!("small")));
    let question = json!({"messages": [
        {"role": "user", "content": "What is the capital of France?"}]});
    let answer = body_of(&serving.ask("POST", "/v1/chat/completions", &question.to_string()));
    let content = &answer["choices"][0]["message"]["content"];
    assert_eq!(content, "The capital of France is Paris.");
    assert_eq!(answer["model"], "small");
    end_politely(&mut serving);
    let file = std::fs::File::open(path).expect("the recording");
    let mut picture = Picture::default();
    for event in Reader::new(BufReader::new(file)).expect("a header") {
        fold(&mut picture, &event.expect("an event"));
    }
    let counters = &picture.counters;
    assert_eq!(counters.finished.get(&FinishReason::Stop), Some(&1));
    assert_eq!(answer["usage"]["completion_tokens"], counters.sampled_tokens);
    assert_eq!(picture.free_blocks() as usize, picture.blocks.len());
}

fn serve_tells_invariance() {
    for invariance in ["on", "off"] {
        let serving = start(&["--invariance", invariance]);
        assert_eq!(body_of(&serving.ask("GET", "/props", ""))["invariance"], invariance);
    }
}

/// A tokenizer.json that makes its library panic ends the server with an error.
fn cannot_load() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(root().join("tests/data/llama3-rope")).expect("a model") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("a copy");
    }
    let tokenizer = std::fs::read(root().join("assets/fable/tokenizer.json")).expect("a file");
    let mut tokenizer: Value = serde_json::from_slice(&tokenizer).expect("json");
    tokenizer["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).expect("written");
    let path = folder.path().to_str().expect("a path");
    let ran = run(&["serve", "--port", "0", "--device", "cpu", "-m", path]);
    let last = ran.err.lines().last().unwrap_or_default();
    assert!(ran.code == Some(1) && last.starts_with("error: "), "{ran:?}");
    assert!(last.contains("tokenizer.json") && !ran.err.contains("RUST_BACKTRACE"), "{ran:?}");
}

fn view_draws_a_server() {
    let serving = start(&["--api-key", "secret"]);
    let folder = tempfile::tempdir().expect("a folder");
    let (png, csv) = (folder.path().join("now.png"), folder.path().join("now.csv"));
    let (png, csv) = (png.to_str().expect("a path"), csv.to_str().expect("a path"));
    let url = format!("http://{}", serving.address);
    let view = |url: &str, key| {
        run(&["view", url, "--api-key", key, "--screenshot", png, "--export", csv])
    };
    view(&url, "secret").good();
    assert!(std::fs::read(png).expect("a picture").starts_with(b"\x89PNG"));
    let refused = view(&url, "wrong");
    assert!(refused.code == Some(1) && refused.err.contains("401"), "{}", refused.err);
    assert!(!refused.err.contains("secret"));
    let nobody = view("http://127.0.0.1:9", "secret");
    assert!(nobody.code == Some(1) && nobody.err.contains("127.0.0.1:9"), "{}", nobody.err);
}

#[cfg(unix)]
fn end_politely(serving: &mut Serving) {
    serving.signal("TERM");
    assert_eq!(serving.ended(), Some(0), "{}", serving.log());
}

/// The recording is flushed whenever nothing waits.
#[cfg(not(unix))]
fn end_politely(serving: &mut Serving) {
    serving.until_log("serving");
}

/// A stream of `tokens` tokens whose first has arrived.
fn stream(serving: &Serving, tokens: u32) -> TcpStream {
    let body = json!({"prompt": "Once", "max_tokens": tokens, "ignore_eos": true, "stream": true});
    let mut stream = serving.send("POST", "/v1/completions", &body.to_string());
    let (mut all, mut piece) = (Vec::new(), [0; 256]);
    while !String::from_utf8_lossy(&all).contains("data: ") {
        let count = stream.read(&mut piece).expect("a stream");
        assert!(count > 0, "{}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&piece[..count]);
    }
    stream
}

#[cfg(unix)]
fn interrupt_drains() {
    let mut serving = start(&[]);
    let mut stream = stream(&serving, 80);
    serving.signal("INT");
    serving.until_log("press Ctrl-C again");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the rest of the stream");
    assert!(rest.contains("\"finish_reason\":\"length\""), "{rest}");
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(serving.ended(), Some(0), "{}", serving.log());
}

#[cfg(unix)]
fn second_interrupt_ends_at_once() {
    let mut serving = start(&[]);
    let mut stream = stream(&serving, 2000);
    serving.signal("INT");
    serving.until_log("press Ctrl-C again");
    serving.signal("INT");
    assert_eq!(serving.ended(), Some(130), "{}", serving.log());
    let mut rest = Vec::new();
    // Cut off: an error, or the end without the last frame.
    let _ = stream.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"), "it was answered to the end");
}
