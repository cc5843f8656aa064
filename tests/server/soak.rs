//! The program under load: 200 streams at once over Fable, some of which leave at random. Whoever
//! stays gets the whole and right answer, every block comes back, memory does not grow. Fifteen
//! seconds, or as many as `TILEWRIGHT_SOAK` says.

use crate::support::Rows;
use crate::support::program::Serving;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub fn rows(rows: &mut Rows) {
    rows.add("server::soak_of_200_streams", soak);
}

const STREAMS: u64 = 200;
const QUESTIONS: &[&str] = &[
    "What is the capital of France?",
    "Count from 3 to 9.",
    "Tell me a story about a fox.",
    "What is 2 plus 3?",
    "Hi",
    "Name three colours.",
];

fn body(question: &str) -> String {
    let messages = json!([{"role": "user", "content": question}]);
    json!({"messages": messages, "temperature": 0, "max_tokens": 24, "stream": true}).to_string()
}

/// What a stream said, or `None` if it was left after `leave` frames.
fn stream(serving: &Serving, question: &str, leave: Option<u64>) -> Option<String> {
    let socket = serving.send("POST", "/v1/chat/completions", &body(question));
    let (mut text, mut frames, mut reason) = (String::new(), 0, Value::Null);
    for line in BufReader::new(socket).lines() {
        let line = line.expect("the stream goes on");
        if line.starts_with("HTTP/1.1 ") {
            assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        }
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            assert!(reason.is_string(), "a finish before the end");
            return Some(text);
        }
        frames += 1;
        if leave.is_some_and(|after| frames > after) {
            return None;
        }
        let chunk: Value = serde_json::from_str(data).expect("JSON");
        assert!(chunk.get("error").is_none(), "{chunk}");
        let choice = &chunk["choices"][0];
        text += choice["delta"]["content"].as_str().unwrap_or_default();
        reason = choice["finish_reason"].clone();
    }
    panic!("the stream to {question:?} ended without [DONE] after {text:?}");
}

fn health(serving: &Serving) -> Value {
    let answer = serving.ask("GET", "/health", "");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

/// Resident kilobytes; 0 where the system does not tell.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn soak() {
    let seconds = std::env::var("TILEWRIGHT_SOAK").ok().and_then(|s| s.parse().ok()).unwrap_or(15);
    // What is swapped out takes memory when it first is: little here, so that a leak stands out.
    let arguments = [
        "--kv-memory",
        "32MiB",
        "--swap-memory",
        "4MiB",
        "--max-num-batched-tokens",
        "128",
        "--log-level",
        "warn",
    ];
    let serving = Arc::new(Serving::start(&arguments));
    let start = health(&serving);
    let expected: Arc<Vec<String>> =
        Arc::new(QUESTIONS.iter().map(|q| stream(&serving, q, None).expect("it stays")).collect());
    let began = Instant::now();
    let (stayed, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let client = |number: u64| {
        let (serving, expected) = (serving.clone(), expected.clone());
        let (stayed, left) = (stayed.clone(), left.clone());
        let run = move || {
            let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut random = |n: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % n
            };
            let mut turn = 0;
            while turn == 0 || began.elapsed() < Duration::from_secs(seconds) {
                turn += 1;
                let which = random(QUESTIONS.len() as u64) as usize;
                let leave = (random(3) == 0).then(|| random(12));
                match stream(&serving, QUESTIONS[which], leave) {
                    Some(text) => {
                        assert_eq!(text, expected[which], "{}", QUESTIONS[which]);
                        stayed.fetch_add(1, Ordering::Relaxed);
                    }
                    None => {
                        left.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(run).expect("a thread")
    };
    let clients: Vec<_> = (1..=STREAMS).map(client).collect();
    std::thread::sleep(Duration::from_secs(seconds / 3).saturating_sub(began.elapsed()));
    let early = resident(serving.pid());
    for client in clients {
        client.join().expect("every stream that stays is right");
    }
    let late = resident(serving.pid());
    let (stayed, left) = (stayed.load(Ordering::Relaxed), left.load(Ordering::Relaxed));
    assert!(stayed > 0 && left > 0, "{stayed} stayed, {left} left");
    assert!(late <= early + early / 20, "{early} kB after a third, {late} kB at the end");
    // Whoever left is noticed at its next token at the latest.
    let patience = Instant::now();
    loop {
        let now = health(&serving);
        if (&now["running"], &now["waiting"]) == (&json!(0), &json!(0)) {
            assert_eq!(now["kv_blocks_used"], start["kv_blocks_used"], "{now}");
            break;
        }
        assert!(patience.elapsed() < Duration::from_secs(120), "requests stay: {now}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
