//! The built program, run as a user runs it: arguments in, exit code and text out; or a server
//! that is up, with its log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Long enough for the slowest machine; nothing takes this long that is not stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// Arguments that make a start quick: a small KV cache, and no measuring of the step budget.
pub const QUICK: [&str; 4] = ["--kv-memory", "32MiB", "--max-num-batched-tokens", "64"];

/// The program, with none of the caller's own settings, a cache of the tests' own, and no display
/// to open a window on.
pub fn tilewright(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(args).stdin(Stdio::null()).env("COLUMNS", "100");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let display = ["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"].contains(&&*text);
        if display || text.starts_with("TILEWRIGHT_") {
            command.env_remove(name);
        }
    }
    command.env("TILEWRIGHT_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    command
}

/// How a run of the program ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// The output of a run that must have gone well.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }
}

pub fn run(args: &[&str]) -> Ran {
    Ran::of(&tilewright(args).output().expect("the program starts"))
}

/// Runs with `input` on standard input.
pub fn run_with(args: &[&str], input: &str) -> Ran {
    let mut command = tilewright(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut to = child.stdin.take().expect("a pipe");
    // A program that ends early closes the pipe; its exit code tells why.
    let _ = to.write_all(input.as_bytes());
    drop(to);
    Ran::of(&child.wait_with_output().expect("the program ends"))
}

/// `tilewright serve`, up and ready.
pub struct Serving {
    child: Child,
    log: Arc<Mutex<String>>,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

impl Serving {
    /// Starts the server on a free port and waits until the model is there.
    pub fn start(args: &[&str]) -> Self {
        Self::of(tilewright(&[&["serve", "--port", "0"], args].concat()))
    }

    /// The server that `command` starts, once the model is there.
    pub fn of(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, told) = (BufReader::new(child.stderr.take().expect("a pipe")), log.clone());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *told.lock().unwrap_or_else(PoisonError::into_inner) += &(line + "\n");
            }
        });
        let mut serving = Self { child, log, address: String::new() };
        // As a line, or as JSON.
        serving.until_log_has(&["\nserving ", "\"message\":\"serving "]);
        let log = serving.log();
        let (_, rest) = log.split_once("listening on http://").expect("the address");
        let end = rest.find([',', '\n']).unwrap_or(rest.len());
        serving.address = rest[..end].to_string();
        serving
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the log holds `text`.
    pub fn until_log(&mut self, text: &str) {
        self.until_log_has(&[text]);
    }

    fn until_log_has(&mut self, texts: &[&str]) {
        let start = Instant::now();
        while !texts.iter().any(|text| self.log().contains(text)) {
            let ended = self.child.try_wait().expect("a child");
            let patient = ended.is_none() && start.elapsed() < PATIENCE;
            assert!(patient, "no {texts:?} in the log ({ended:?}):\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a request; what comes back is read from the stream.
    pub fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("the server reads");
        stream
    }

    /// What comes back for these bytes.
    pub fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut all = String::new();
        stream.read_to_string(&mut all).expect("an answer");
        all
    }

    /// The whole answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut all = String::new();
        self.send(method, path, body).read_to_string(&mut all).expect("an answer");
        all
    }

    /// Sends the signal called `name` (`INT`, `TERM`).
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let done = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(done.success(), "{kill}");
    }

    /// Waits for the end and returns the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "still running:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
