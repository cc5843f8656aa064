//! The snippets of assets/docs: what can run here runs as it stands, against a server; what
//! belongs to programs that are not here is skipped, JSON and configuration are read.

use crate::support::program::{Ran, Serving, run};
use crate::support::{Rows, python, root};
use std::collections::BTreeSet;
use std::process::Command;

pub fn rows(rows: &mut Rows) {
    rows.add_if(python("openai"), "cli::doc_snippets_run", |()| snippets());
    rows.add("cli::doc_configurations_are_read", configurations);
    rows.add("cli::doc_metrics_exist", metrics);
}

/// (file, language, text) of every fenced block.
fn blocks() -> Vec<(String, String, String)> {
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
        for block in text.split("```").skip(1).step_by(2) {
            let (language, body) = block.split_once('\n').unwrap_or((block, ""));
            assert!(!language.trim().is_empty(), "{name}: a block names no language:\n{body}");
            out.push((name.clone(), language.trim().to_string(), body.to_string()));
        }
    }
    out
}

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether what a block needs is here.
fn can_run(language: &str, body: &str) -> bool {
    match language {
        "sh" => {
            let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_string();
            let starts = body.lines().filter(|l| !l.starts_with([' ', '#']) && !l.is_empty());
            starts.map(first).all(|program| program == "curl" && is_here("curl"))
        }
        "python" => {
            let imports = body.lines().filter_map(|l| {
                l.strip_prefix("from ").or(l.strip_prefix("import "))?.split([' ', '.', ',']).next()
            });
            imports.map(str::to_string).all(|package| python(&package).is_ok())
        }
        _ => false,
    }
}

fn snippets() {
    let serving = Serving::start(&[]);
    let (mut ran, mut skipped) = (0, BTreeSet::new());
    for (file, language, body) in blocks() {
        if !can_run(&language, &body) {
            skipped.insert(file);
            continue;
        }
        let text = body.replace("127.0.0.1:8421", &serving.address);
        let program = if language == "sh" { "sh" } else { "python3" };
        let output = Command::new(program).args(["-c", &text]).output().unwrap();
        let found = Ran::of(&output);
        assert_eq!(found.code, Some(0), "{file}:\n{body}\n{found:?}");
        assert!(!found.out.contains("\"error\""), "{file}:\n{body}\n{}", found.out);
        ran += 1;
    }
    assert!(ran >= 8, "only {ran} snippets ran; skipped some of {skipped:?}");
}

fn configurations() {
    let mut seen = BTreeSet::new();
    for (file, language, body) in blocks() {
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
