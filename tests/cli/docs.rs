//! The snippets of assets/docs: those of curl and of the openai package run as they stand, against
//! a server; pages say of the others that they were not run. JSON and configuration are read.

use crate::support::program::{Ran, Serving, run};
use crate::support::{Rows, python, root};
use std::collections::BTreeSet;
use std::process::Command;

pub fn rows(rows: &mut Rows) {
    rows.add_if(python("openai"), "cli::doc_snippets_run", |()| snippets());
    rows.add("cli::doc_snippets_say_whether_they_run", marks);
    rows.add("cli::doc_configurations_are_read", configurations);
    rows.add("cli::doc_metrics_exist", metrics);
}

/// What the pages say before a block that no row runs.
const NOT_RUN: &str = "*Not run here:*";

/// A fenced block, and the prose between it and the one before.
struct Block {
    file: String,
    prose: String,
    language: String,
    body: String,
    /// Of a client.
    client: bool,
}

/// Every fenced block.
fn blocks() -> Vec<Block> {
    let mut files = vec![root().join("assets/docs/deploy.md")];
    let clients = std::fs::read_dir(root().join("assets/docs/clients")).unwrap();
    files.extend(clients.map(|entry| entry.unwrap().path()));
    files.sort();
    let mut out = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(text.matches("```").count() % 2, 0, "{name}: a fence is open");
        let client = file.parent().is_some_and(|folder| folder.ends_with("clients"));
        let parts: Vec<&str> = text.split("```").collect();
        for pair in parts.chunks_exact(2) {
            let (language, body) = pair[1].split_once('\n').unwrap_or((pair[1], ""));
            assert!(!language.trim().is_empty(), "{name}: a block names no language:\n{body}");
            let [file, prose] = [name.clone(), pair[0].to_string()];
            let [language, body] = [language.trim().to_string(), body.to_string()];
            out.push(Block { file, prose, language, body, client });
        }
    }
    out
}

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether a block is for the programs that the row below has.
fn is_run(Block { language, body, .. }: &Block) -> bool {
    match language.as_str() {
        "sh" => {
            let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_string();
            let starts = body.lines().filter(|l| !l.starts_with([' ', '#']) && !l.is_empty());
            starts.map(first).all(|program| program == "curl")
        }
        "python" => {
            let imports = body.lines().filter_map(|l| {
                l.strip_prefix("from ").or(l.strip_prefix("import "))?.split([' ', '.', ',']).next()
            });
            let packages = ["json", "openai", "pydantic", "typing"];
            imports.into_iter().all(|package| packages.contains(&package))
        }
        _ => false,
    }
}

fn snippets() {
    let serving = Serving::start(&[]);
    let mut ran = 0;
    for Block { file, language, body, .. } in blocks().into_iter().filter(is_run) {
        let text = body.replace("127.0.0.1:8421", &serving.address);
        let program = if language == "sh" { "sh" } else { "python3" };
        let output = Command::new(program).args(["-c", &text]).output().unwrap();
        let found = Ran::of(&output);
        assert_eq!(found.code, Some(0), "{file}:\n{body}\n{found:?}");
        assert!(!found.out.contains("\"error\""), "{file}:\n{body}\n{}", found.out);
        ran += 1;
    }
    assert!(ran >= 8, "only {ran} snippets ran");
}

/// No page lets its reader believe that a snippet was tried which no row runs.
fn marks() {
    let (mut run, mut not_run) = (0, 0);
    for block in blocks().into_iter().filter(|block| block.client) {
        let marked = block.prose.contains(NOT_RUN);
        let Block { file, body, .. } = &block;
        assert_eq!(marked, !is_run(&block), "{file}: {NOT_RUN} stands before what is not:\n{body}");
        *(if marked { &mut not_run } else { &mut run }) += 1;
    }
    assert!(run >= 8 && not_run >= 5, "{run} {not_run}");
}

fn configurations() {
    let mut seen = BTreeSet::new();
    for Block { file, language, body, .. } in blocks() {
        match language.as_str() {
            "json" => {
                serde_json::from_str::<serde_json::Value>(&body)
                    .unwrap_or_else(|e| panic!("{file}: {e}:\n{body}"));
            }
            // The program's own config file: a flag that is none would be told.
            "toml" => {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("config.toml");
                std::fs::write(&path, &body).unwrap();
                let ran = run(&["inspect", "--config", path.to_str().unwrap()]);
                assert_eq!(ran.code, Some(0), "{file}:\n{body}\n{}", ran.err);
            }
            "haproxy" if is_here("haproxy") => {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("haproxy.cfg");
                std::fs::write(&path, &body).unwrap();
                let output = Command::new("haproxy").arg("-c").arg("-f").arg(&path).output();
                let found = Ran::of(&output.unwrap());
                assert_eq!(found.code, Some(0), "{file}:\n{body}\n{}", found.err);
            }
            "sh" | "python" | "yaml" | "ini" | "nginx" | "haproxy" => {}
            other => panic!("{file}: no rule for blocks of {other}"),
        }
        seen.insert(language);
    }
    assert!(["json", "toml", "sh", "python"].iter().all(|l| seen.contains(*l)), "{seen:?}");
}

/// Metrics that the pages name are there.
fn metrics() {
    let serving = Serving::start(&["--device", "cpu", "--kv-memory", "16MiB", "-b", "32"]);
    let page = serving.ask("GET", "/metrics", "");
    let text = std::fs::read_to_string(root().join("assets/docs/deploy.md")).unwrap();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let names = text.split(|c: char| !is_name(c)).filter(|word| word.starts_with("tilewright:"));
    let names: BTreeSet<&str> = names.collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("\n{name}")), "{name} is no metric");
    }
}
