//! The page of Open WebUI: its first block is followed to a person who signs up, sees the model and
//! is answered, whole and streamed.

use crate::support::Rows;
use crate::support::pages::{Block, blocks, needs};
use crate::support::program::{Ran, Serving};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub fn rows(rows: &mut Rows) {
    rows.add_if(needs("open-webui"), "cli::doc_page_open_webui", |()| follow());
}

/// Whether [`follow`] runs a block.
pub fn is_run(block: &Block) -> bool {
    block.file.ends_with("/open-webui.md") && block.body.contains("pip install open-webui\n")
}

/// What the suite has set beside the page: nothing is fetched, and documents, which want packages
/// that the suite does without, would be kept elsewhere.
const BESIDE: [(&str, &str); 8] = [
    ("VECTOR_DB", "elasticsearch"),
    ("ELASTICSEARCH_URL", "http://127.0.0.1:9"),
    ("ENABLE_OLLAMA_API", "False"),
    ("HF_HUB_OFFLINE", "1"),
    ("OFFLINE_MODE", "True"),
    ("ANONYMIZED_TELEMETRY", "False"),
    ("SCARF_NO_ANALYTICS", "true"),
    ("WEBUI_SECRET_KEY", "of the suite"),
];

/// It imports for minutes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(url: &str, more: &[&str]) -> String {
    let mut command = Command::new("curl");
    Ran::of(&command.args(["-sS", "-m", "300", url]).args(more).output().unwrap()).good()
}

fn follow() {
    let mut found = blocks();
    found.retain(is_run);
    let [Block { body, .. }] = &found[..] else { panic!("{} such blocks", found.len()) };
    let lines = body.replace("\\\n", " ");
    let lines: Vec<&str> = lines.lines().collect();
    let [serve, "pip install open-webui", start] = lines[..] else { panic!("{lines:?}") };
    let args = serve.strip_prefix("tilewright serve ").expect("a server");
    let serving = Serving::start(&args.split_whitespace().collect::<Vec<_>>());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let text = start.replace("127.0.0.1:8421", &serving.address);
    let text = text.replace("--port 8080", &format!("--port {port}"));
    // The shell gives its place to the program: the child is what is ended.
    let text = text.replace(" open-webui serve", " exec open-webui serve");
    let mut command = Command::new("sh");
    command.args(["-c", &text]).current_dir(folder.path()).envs(BESIDE);
    command.env("HOME", folder.path()).env("DATA_DIR", folder.path().join("data"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = running.0.try_wait().unwrap();
        assert!(ended.is_none() && began.elapsed() < PATIENCE, "it does not listen: {ended:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let json_of = |text: String| -> Value {
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    };
    let person = json!({"name": "a", "email": "a@example.org", "password": "Secret-word-1"});
    let head = "content-type: application/json";
    let signed = ask(&url("/api/v1/auths/signup"), &["-H", head, "-d", &person.to_string()]);
    let token = json_of(signed)["token"].as_str().expect("a token").to_string();
    let bearer = format!("authorization: Bearer {token}");
    let models = json_of(ask(&url("/api/models"), &["-H", &bearer]));
    assert_eq!(models["data"][0]["id"], "fable", "{models}");
    let chat = |stream: bool| {
        let messages = json!([{"role": "user", "content": "What is the capital of France?"}]);
        let body = json!({"model": "fable", "messages": messages, "stream": stream}).to_string();
        ask(&url("/api/chat/completions"), &["-N", "-H", head, "-H", &bearer, "-d", &body])
    };
    let answer = json_of(chat(false));
    assert_eq!(answer["choices"][0]["message"]["content"], "The capital of France is Paris.");
    let streamed = chat(true);
    let chunks = streamed.lines().filter(|line| line.contains("\"content\":")).count();
    assert!(chunks > 5 && streamed.contains("data: [DONE]"), "{streamed}");
}
