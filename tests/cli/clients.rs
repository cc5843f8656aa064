//! The pages of clients in assets/docs: each is followed from top to bottom in a folder of its own,
//! its files written, its commands and programs run as they stand, against a server.

use super::docs::{file_of, is_run};
use crate::support::pages::{Block, blocks, needs};
use crate::support::program::{Ran, Serving};
use crate::support::{Rows, python, root};
use std::path::Path;
use std::process::Command;

pub fn rows(rows: &mut Rows) {
    let mut add = |name: &'static str, need, shown: &'static [&'static str]| {
        let row = format!("cli::doc_page_{}", name.replace('-', "_"));
        rows.add_if(need, row, move |()| follow(name, shown));
    };
    add("curl", needs("curl"), &["data: [DONE]", "\"token_logprobs\"", "\"content\":\"20"]);
    add("openai-python", python("openai"), &["is Paris.\n 23 tokens", "get_weather {'city': '"]);
    const LANGCHAIN: [&str; 4] =
        ["is Rome.\n", "is Paris.\n23 tokens", "kind='", "GetWeather {'city': '"];
    add("langchain", python("langchain_openai"), &LANGCHAIN);
    add("llm", needs("llm"), &["is Paris.\n", "is Rome.\n", "{\"kind\": \""]);
    add("continue", needs("cn"), &["The capital of France is Paris."]);
    let need = needs("lm_eval").and_then(|()| python("transformers"));
    add("lm-eval", need, &["|acc   |↑  |    1|", "\"token_logprobs\""]);
    rows.add("cli::doc_pages_name_what_ran", versions);
}

/// Seconds for one block: a client may read thousands of files before it asks anything.
const PATIENCE: &str = "600";

/// Runs a block in `folder`, which is also where the clients keep what they keep.
fn run(block: &Block, text: &str, folder: &Path) -> Ran {
    let mut command = Command::new("timeout");
    match block.language.as_str() {
        "sh" => command.args([PATIENCE, "sh", "-ec", text]).env("HOME", folder),
        _ => command.args([PATIENCE, "python3", "-c", text]),
    };
    command.env("LLM_USER_PATH", folder).env("HF_HOME", folder).env("HF_HUB_OFFLINE", "1");
    command.env("CONTINUE_METRICS_ENABLED", "0").current_dir(folder);
    Ran::of(&command.output().expect("there is `timeout`"))
}

fn follow(page: &str, shown: &[&str]) {
    let serving = Serving::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (mut out, mut ran) = (String::new(), 0);
    for block in
        blocks().iter().filter(|b| b.file.ends_with(&format!("clients/{page}.md")) && is_run(b))
    {
        let text = block.body.replace("127.0.0.1:8421", &serving.address);
        let text = text.replace("FOLDER", root().join("assets/fable").to_str().unwrap());
        if ["sh", "python"].contains(&block.language.as_str()) {
            let found = run(block, &text, folder.path());
            assert_eq!(found.code, Some(0), "{page}:\n{text}\n{found:?}");
            assert!(!found.out.contains("\"error\""), "{page}:\n{text}\n{found:?}");
            out += &found.out;
            ran += 1;
        } else {
            let file = file_of(block).expect("a file's name in the prose");
            std::fs::write(folder.path().join(file), text).unwrap();
        }
    }
    assert!(ran > 0, "{page} has no snippet");
    for part in shown {
        assert!(out.contains(part), "{page} shows no {part:?}:\n{out}");
    }
}

/// The version that a page says was run is the one that `.ci/run` installs.
fn versions() {
    let script = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    for page in ["langchain", "llm", "continue", "lm-eval", "open-webui"] {
        let path = root().join(format!("assets/docs/clients/{page}.md"));
        let text = std::fs::read_to_string(path).unwrap().replace('\n', " ");
        let (_, rest) = text.split_once("Run with ").expect("what was run");
        let (name, rest) = rest.split_once(' ').expect("a version");
        let version = rest.split([',', ':', ';', ' ']).next().expect("a version");
        let pins = [format!("{name}=={version}"), format!("{name}@{version}")];
        assert!(pins.iter().any(|pin| script.contains(pin)), "{page}: .ci/run lacks {pins:?}");
    }
}
