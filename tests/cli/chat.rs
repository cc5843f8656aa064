//! `chat` from a pipe: answers, history, slash commands.

use crate::support::Rows;
use crate::support::program::{QUICK, Ran, run_with};
use serde_json::{Value, json};
use std::io::BufReader;
use tilewright::trace::{Event, Reader};

pub fn rows(rows: &mut Rows) {
    rows.add("cli::chat", chat);
    rows.add("cli::chat_sends_the_history", chat_sends_the_history);
    rows.add("cli::chat_stops_at_a_wrong_line", chat_stops_at_a_wrong_line);
}

fn talk(args: &[&str], input: &str) -> Ran {
    run_with(&[&["chat", "--device", "cpu"][..], &QUICK, args].concat(), input)
}

fn chat() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved.json");
    let input = format!(
        "/help\nSpell the word basket.\n\n/reset\nWhat is the capital of France?\n/system\n\
         /system Be brief.\n/system\n/save {}\n/quit\nnever said\n",
        path.display()
    );
    let out = talk(&["--system", "Be kind."], &input).good();
    let (help, rest) = out.split_at(out.find("b-a-s-k-e-t.").expect("an answer"));
    for command in ["/help", "/system", "/reset", "/save", "/quit"] {
        assert!(help.contains(command), "{help}");
    }
    let expected = "b-a-s-k-e-t.\nThe capital of France is Paris.\nBe kind.\nBe brief.\n";
    assert_eq!(rest, expected);
    let saved: Value = serde_json::from_slice(&std::fs::read(&path).expect("the file")).unwrap();
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let expected = json!([
        message("system", "Be brief."),
        message("user", "What is the capital of France?"),
        message("assistant", "The capital of France is Paris."),
    ]);
    assert_eq!(saved["messages"], expected);
}

/// Prompt lengths of a conversation, from its recording.
fn prompts(input: &str) -> Vec<u32> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let path = path.to_str().expect("a path");
    talk(&["--record", path], input).good();
    let file = std::fs::File::open(path).expect("the recording");
    let events = Reader::new(BufReader::new(file)).expect("a header");
    let prompt = |event| match event {
        Event::RequestArrived { prompt, .. } => Some(prompt),
        _ => None,
    };
    events.filter_map(|event| prompt(event.expect("an event").event)).collect()
}

fn chat_sends_the_history() {
    let asked = prompts("Hello!\nHello!\n/reset\nHello!\n");
    assert_eq!(asked.len(), 3);
    // Both turns so far and the new one; after /reset the new one alone.
    assert!(asked[1] > 2 * asked[0], "{asked:?}");
    assert_eq!(asked[2], asked[0]);
}

fn chat_stops_at_a_wrong_line() {
    let ran = talk(&[], "/dance\nHello!\n");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.err.contains("/dance") && ran.err.contains("/help"), "{ran:?}");
    let ran = talk(&["--ctx-size", "16"], "Count from 20 to 27, then count from 1 to 10.\n");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("/reset") && ran.err.contains("16"), "{ran:?}");
}
