//! The README's snippets are run as they stand, against the server it starts.

use crate::support::program::{Ran, Serving};
use crate::support::{Rows, python, root};
use serde_json::Value;
use std::process::Command;

const PARIS: &str = "The capital of France is Paris.";

pub fn rows(rows: &mut Rows) {
    rows.add_if(has_curl(), "cli::readme_curl", |()| readme_curl());
    rows.add_if(python("openai"), "cli::readme_python", |()| readme_python());
}

fn has_curl() -> Result<(), String> {
    let found = Command::new("curl").arg("--version").output();
    found.map(drop).map_err(|_| "there is no curl".to_string())
}

/// The README's code blocks of a language that hold `part`, addressed to `serving`.
fn snippets(language: &str, part: &str, serving: &Serving) -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let blocks = readme.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|b| b.strip_prefix(language)?.strip_prefix('\n'));
    let found: Vec<_> = blocks
        .filter(|b| b.contains(part))
        .map(|b| b.replace("127.0.0.1:8421", &serving.address))
        .collect();
    assert!(found.iter().all(|b| b.contains(&serving.address)), "{found:?}");
    found
}

fn run(program: &str, text: &str) -> String {
    Ran::of(&Command::new(program).args(["-c", text]).output().expect("it starts")).good()
}

fn readme_curl() {
    let serving = Serving::start(&[]);
    let found = snippets("sh", "curl", &serving);
    let [whole, streamed] = &found[..] else { panic!("two curl snippets, found {found:?}") };
    let answer: Value = serde_json::from_str(&run("sh", whole)).expect("JSON");
    assert_eq!(answer["choices"][0]["message"]["content"], PARIS);
    let frames = run("sh", streamed);
    let frames: Vec<&str> = frames.lines().filter_map(|l| l.strip_prefix("data: ")).collect();
    let (last, frames) = frames.split_last().expect("frames");
    assert_eq!(*last, "[DONE]");
    let text: String = frames
        .iter()
        .map(|f| serde_json::from_str::<Value>(f).expect("JSON"))
        .filter_map(|f| f["choices"][0]["delta"]["content"].as_str().map(str::to_string))
        .collect();
    assert_eq!(text, "3, 4, 5, 6, 7, 8, 9.");
    assert!(frames.len() > 5, "streamed in pieces");
}

fn readme_python() {
    let serving = Serving::start(&[]);
    let found = snippets("python", "openai", &serving);
    assert_eq!(found.len(), 1);
    assert_eq!(run("python3", &found[0]).trim(), PARIS);
}
