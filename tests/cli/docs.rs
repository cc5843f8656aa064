//! The snippets of the pages: which row runs each, and that the pages say so of the others. What
//! deploy.md configures is started as it says; JSON and metrics are looked up.

use crate::support::pages::{Block, blocks, needs, only};
use crate::support::program::{Ran, Serving, tilewright};
use crate::support::{Rows, python, root};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

pub fn rows(rows: &mut Rows) {
    rows.add("cli::doc_snippets_say_whether_they_run", marks);
    rows.add("cli::doc_json_is_json", json);
    rows.add("cli::doc_metrics_exist", metrics);
    rows.add_if(needs("systemd-analyze"), "cli::doc_systemd_unit", |()| systemd());
    rows.add_if(python("yaml"), "cli::doc_kubernetes_container", |()| kubernetes());
}

const DEPLOY: &str = "assets/docs/deploy.md";

/// What the pages say before a block that no row runs.
const NOT_RUN: &str = "*Not run here:*";

/// The programs that commands of the pages may start, and whose rows therefore run them.
const PROGRAMS: [&str; 4] = ["curl", "llm", "cn", "lm_eval"];

/// Whether the row of a client's page runs a block, or writes it as the file that the prose names.
pub fn is_run(block: &Block) -> bool {
    match block.language.as_str() {
        "sh" => {
            let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_string();
            let starts = block.body.lines().filter(|l| !l.starts_with([' ', '#']) && !l.is_empty());
            starts.map(first).all(|program| PROGRAMS.contains(&program.as_str()))
        }
        "python" => true,
        _ => file_of(block).is_some(),
    }
}

/// The file that the prose before a block calls by name.
pub fn file_of(block: &Block) -> Option<&str> {
    let named = block.prose.split('`').skip(1).step_by(2);
    named.filter(|name| name.ends_with(&format!(".{}", block.language))).last()
}

/// The row that runs a block as it stands: one that fails where a page has more such blocks than it
/// knows.
fn row_of(block: &Block) -> Option<&'static str> {
    match (block.file.as_str(), block.language.as_str()) {
        _ if super::webui::is_run(block) => Some("cli::doc_page_open_webui"),
        _ if block.client() => is_run(block).then_some("cli::doc_page_"),
        ("README.md", "sh") if block.body.starts_with("curl") => Some("cli::readme_curl"),
        ("README.md", "python") => Some("cli::readme_python"),
        (_, "sh") => Some("cli::doc_commands_of_"),
        (DEPLOY, "toml" | "ini") => Some("cli::doc_systemd_unit"),
        (DEPLOY, "haproxy") => Some("server::two_servers_behind_haproxy"),
        (DEPLOY, "nginx") => Some("server::a_server_behind_nginx"),
        (DEPLOY, "yaml") => Some("cli::doc_kubernetes_container"),
        ("web/README.md", "js") => Some("snippet_of_the_readme"),
        _ => None,
    }
}

/// No page lets its reader believe that a snippet was tried which no row runs.
fn marks() {
    let read = |file: &str| std::fs::read_to_string(root().join(file)).expect("a file of rows");
    let files = ["clients.rs", "docs.rs", "doc_commands.rs", "readme.rs", "webui.rs"];
    let mut rows: String = files.map(|file| read(&format!("tests/cli/{file}"))).concat();
    rows += &(read("tests/server/proxy.rs") + &read("tests/web/run.mjs"));
    let (mut run, mut not_run) = (0, Vec::new());
    for block in blocks() {
        let marked = block.prose.contains(NOT_RUN);
        let row = row_of(&block);
        let Block { file, body, .. } = &block;
        assert_eq!(marked, row.is_none(), "{file}: {NOT_RUN} stands before what is not:\n{body}");
        let named = row.is_none_or(|row| rows.contains(&format!("\"{row}")));
        assert!(named, "{file}: there is no row {row:?} for\n{body}");
        if marked { not_run.push(body.clone()) } else { run += 1 }
    }
    // Containers need a daemon that runs them.
    assert!(not_run.len() == 1 && not_run[0].contains("docker run"), "{not_run:?}");
    assert!(run >= 35, "only {run} snippets");
}

fn json() {
    let mut found = blocks();
    found.retain(|block| block.language == "json");
    assert!(!found.is_empty());
    for Block { file, body, .. } in found {
        serde_json::from_str::<serde_json::Value>(&body)
            .unwrap_or_else(|e| panic!("{file}: {e}:\n{body}"));
    }
}

/// Starts a line of the page for the real thing in `folder`, on a free port.
fn start(command: &str, folder: &Path) -> Serving {
    let (program, args) = command.split_once(' ').expect("arguments");
    assert!(program.ends_with("tilewright"), "{command}");
    let args: Vec<&str> = args.split_whitespace().chain(["--port", "0"]).collect();
    let mut command = tilewright(&args);
    command.current_dir(folder);
    Serving::of(command)
}

/// The unit is one that systemd knows every word of, and what it starts serves, asks for the key
/// and ends when it is told to, by the page's own settings.
fn systemd() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let unit = only(DEPLOY, "ini");
    let here = unit.replace("/usr/local/bin/tilewright", env!("CARGO_BIN_EXE_tilewright"));
    let verify = |name: &str, text: &str| {
        std::fs::write(path(name), text).unwrap();
        let mut command = Command::new("systemd-analyze");
        Ran::of(&command.args(["verify", &path(name)]).output().unwrap())
    };
    let found = verify("tilewright.service", &here);
    assert_eq!((found.code, found.err.as_str()), (Some(0), ""));
    let wrong = verify("wrong.service", &here.replace("TimeoutStopSec", "TimeoutStop"));
    assert!(wrong.err.contains("TimeoutStop"), "{wrong:?}");
    std::fs::write(path("keys"), "secret\n").unwrap();
    let config = only(DEPLOY, "toml").replace("/etc/tilewright/keys", &path("keys"));
    std::fs::write(path("config.toml"), config).unwrap();
    let exec = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let exec = exec.replace("/etc/tilewright/config.toml", &path("config.toml"));
    let mut serving = start(&exec, folder.path());
    let models = |key: &str| {
        let head = format!("GET /v1/models HTTP/1.1\r\nauthorization: Bearer {key}\r\n");
        serving.raw(&format!("{head}host: x\r\nconnection: close\r\n\r\n"))
    };
    assert!(models("other").starts_with("HTTP/1.1 401 "));
    let listed = models("secret");
    assert!(listed.starts_with("HTTP/1.1 200 ") && listed.contains("\"fable\""), "{listed}");
    let log = serving.log();
    let told = log.lines().find(|line| line.contains("listening on")).expect("a line");
    assert!(serde_json::from_str::<serde_json::Value>(told).is_ok(), "log-format: {told}");
    serving.signal("TERM");
    assert_eq!(serving.ended(), Some(0), "{}", serving.log());
}

/// The container's arguments start a server that its probe finds ready, at the port that both name.
fn kubernetes() {
    const READ: &str = "import json, sys, yaml; \
        print(json.dumps([*yaml.safe_load_all(sys.argv[1])]))";
    let text = only(DEPLOY, "yaml");
    let ran = Command::new("python3").args(["-c", READ, &text]).output().unwrap();
    let found: serde_json::Value = serde_json::from_str(&Ran::of(&ran).good()).unwrap();
    let container = &found[0]["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().expect("arguments").iter();
    let args: Vec<&str> = args.map(|arg| arg.as_str().expect("texts")).collect();
    let port = args[args.iter().position(|arg| *arg == "--port").expect("a port") + 1];
    let probe = &container["readinessProbe"]["httpGet"];
    let pool = &found[1]["spec"]["targetPorts"][0]["number"];
    for other in [&container["ports"][0]["containerPort"], &probe["port"], pool] {
        assert_eq!(other.to_string(), port);
    }
    let labels = &found[0]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&found[1]["spec"]["selector"]["matchLabels"], labels);
    let folder = tempfile::tempdir().unwrap();
    let model = super::doc_commands::gguf(folder.path());
    let command = format!("tilewright {}", args.join(" ").replace("/models/model.gguf", &model));
    let serving = start(&command, folder.path());
    let ready = serving.ask("GET", probe["path"].as_str().unwrap(), "");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
}

/// Metrics that the pages name are there.
fn metrics() {
    let serving = Serving::start(&["--device", "cpu", "--kv-memory", "16MiB", "-b", "32"]);
    let page = serving.ask("GET", "/metrics", "");
    let text = std::fs::read_to_string(root().join(DEPLOY)).unwrap();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let names = text.split(|c: char| !is_name(c)).filter(|word| word.starts_with("tilewright:"));
    let names: BTreeSet<&str> = names.collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("\n{name}")), "{name} is no metric");
    }
}
