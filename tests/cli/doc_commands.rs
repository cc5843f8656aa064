//! The commands of README and assets/docs, run from a page's top to its end in a folder where what
//! they name is there: `model.gguf`, a trace in Azure's format, a recording, the page's folder.

use crate::support::pages::{Block, blocks};
use crate::support::program::{Ran, Serving, tilewright};
use crate::support::{Rows, root};
use serde_json::json;
use std::path::Path;
use std::process::Command;

pub fn rows(rows: &mut Rows) {
    for (name, page, least) in [
        ("readme", "README.md", 7),
        ("performance", "assets/docs/performance.md", 9),
        ("reading-the-window", "assets/docs/reading-the-window.md", 1),
        ("simulator", "assets/docs/simulator.md", 8),
    ] {
        let row = format!("cli::doc_commands_of_{}", name.replace('-', "_"));
        rows.add(row, move || follow(page, least));
    }
    rows.add("cli::doc_commands_are_of_these_pages", elsewhere);
}

/// Pages with commands that [`follow`] runs; those of clients have rows of their own.
fn elsewhere() {
    let pages = ["README", "performance", "reading-the-window", "simulator"];
    for block in blocks().iter().filter(|block| block.language == "sh" && !block.client()) {
        let name = block.file.trim_end_matches(".md").rsplit('/').next();
        assert!(name.is_some_and(|name| pages.contains(&name)), "{}", block.file);
    }
}

/// Fable as a GGUF file, with room for the longest contexts that the pages speak of.
pub fn gguf(folder: &Path) -> String {
    let source = folder.join("fable");
    std::fs::create_dir(&source).unwrap();
    for entry in std::fs::read_dir(root().join("assets/fable")).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), source.join(entry.file_name())).unwrap();
        }
    }
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["max_position_embeddings"] = json!(8192);
    std::fs::write(source.join("config.json"), config.to_string()).unwrap();
    let model = folder.join("model.gguf").to_str().unwrap().to_string();
    let ran = tilewright(&["convert", source.to_str().unwrap(), &model]).output().unwrap();
    Ran::of(&ran).good();
    model
}

/// A page's folder.
struct Place {
    folder: tempfile::TempDir,
    serving: Option<Serving>,
    ran: usize,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["assets", "tests"] {
            std::os::unix::fs::symlink(root().join(name), path(name)).unwrap();
        }
        gguf(folder.path());
        let arrivals = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,37,9\n";
        std::fs::write(path("AzureLLMInferenceTrace_conv.csv"), arrivals).unwrap();
        std::fs::create_dir_all(path("target/page")).unwrap();
        std::fs::write(path("target/page/index.html"), "").unwrap();
        let place = Self { folder, serving: None, ran: 0 };
        place.run(&["generate", "Tell me a story.", "-n", "24", "--record", "run.jsonl"]);
        place
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program in this folder, where it also keeps what it keeps.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = tilewright(args);
        command.current_dir(self.path()).env("XDG_CACHE_HOME", self.path());
        command
    }

    fn run(&self, args: &[&str]) {
        let ran = Ran::of(&self.command(args).output().unwrap());
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
    }

    /// A line of a page, without its comment.
    fn line(&mut self, line: &str) {
        self.ran += 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            ["tilewright", "serve", ..] => self.serve(&words[1..]),
            // There is no display.
            ["tilewright", "view", _] => {
                self.run(&[&words[1..], &["--screenshot", "seen.png"]].concat());
            }
            ["tilewright", args @ ..] => {
                self.close();
                // Once is enough to see that it runs.
                let short: &[&str] = match args {
                    ["bench", "model", ..] => &["--runs", "1", "--generate", "4"],
                    ["bench", "kernels", "--shape", ..] | ["tune", ..] => &["--tokens", "1"],
                    _ => &[],
                };
                self.run(&[args, short].concat());
            }
            // One of its texts, by one policy.
            ["python3", "tests/bench/speculate.py", url, rounds] => {
                let serving = self.serving.as_ref().expect("a server that runs");
                let url = url.replace("127.0.0.1:8421", &serving.address);
                let mut command = Command::new("python3");
                let args = ["tests/bench/speculate.py", &url, rounds, "ngram", "greedy"];
                let ran = command.args(args).current_dir(self.path()).output().unwrap();
                Ran::of(&ran).good();
            }
            // What is a step of its own.
            ["tests/bench/h200", ..] => has("tests/cli/bench_script.rs", "tests/bench/h200"),
            ["cargo", "test"] => has(".ci/run", "cargo test --locked"),
            ["web/build"] => has(".ci/run", "  web/build "),
            ["cargo", "run", "--release", "--example", name] => {
                let script = std::fs::read_to_string(root().join(".ci/run")).unwrap();
                let names = script.lines().find(|line| line.contains("for name in generate "));
                assert!(names.is_some_and(|names| names.contains(&format!(" {name}"))), "{name}");
            }
            _ => panic!("no rule for {line:?}"),
        }
    }

    /// A server, which answers and goes on until another command wants its recording.
    fn serve(&mut self, args: &[&str]) {
        self.close();
        let serving = Serving::of(self.command(&[args, &["--port", "0"]].concat()));
        let body = json!({"messages": [{"role": "user", "content": "What is 3 plus 4?"}]});
        let answer = serving.ask("POST", "/v1/chat/completions", &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{args:?}: {answer}");
        self.serving = Some(serving);
    }

    fn close(&mut self) {
        if let Some(mut serving) = self.serving.take() {
            serving.signal("TERM");
            assert_eq!(serving.ended(), Some(0), "{}", serving.log());
        }
    }
}

fn has(file: &str, part: &str) {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    assert!(text.contains(part), "{file} has no {part:?}");
}

fn follow(page: &str, least: usize) {
    let mut place = Place::new();
    for Block { file, language, body, .. } in blocks() {
        // README's requests have rows of their own.
        if file != page || language != "sh" || body.starts_with("curl") {
            continue;
        }
        for line in body.replace("\\\n", " ").lines() {
            let line = line.split(" #").next().unwrap_or_default();
            let line = line.replace("cargo run --release -- ", "tilewright ");
            line.split("&&").for_each(|command| place.line(command.trim()));
        }
    }
    place.close();
    assert!(place.ran >= least, "only {} commands", place.ran);
}
