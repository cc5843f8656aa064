//! Two servers behind a stock reverse proxy look like one: answers, streams as they come, request
//! ids, and a client that leaves is noticed through it.

use crate::support::Rows;
use crate::support::program::{QUICK, Serving};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub fn rows(rows: &mut Rows) {
    rows.add_if(haproxy(), "server::two_servers_behind_haproxy", |()| behind_haproxy());
}

fn haproxy() -> Result<(), String> {
    match Command::new("haproxy").arg("-v").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err("there is no haproxy".to_string()),
    }
}

/// A proxy that is up; ended when dropped.
struct Proxy {
    child: Child,
    port: u16,
}

impl Proxy {
    fn start(folder: &std::path::Path, servers: &[&Serving]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut config = format!(
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 120s\n\
             \x20 timeout server 120s\n\
             frontend front\n  bind 127.0.0.1:{port}\n  default_backend back\n\
             backend back\n  balance roundrobin\n  option httpchk GET /health\n"
        );
        for (n, server) in servers.iter().enumerate() {
            config += &format!("  server s{n} {} check\n", server.address);
        }
        let file = folder.join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let proxy = Self { child: command.spawn().unwrap(), port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "the proxy does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        proxy
    }

    fn send(&self, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let body = body.to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: mine\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The name of the count of requests that ended for `reason`.
fn ended_by(reason: &str) -> String {
    let labels = format!("model_name=\"fable\",engine=\"0\",finished_reason=\"{reason}\"");
    format!("tilewright:request_success_total{{{labels}}}")
}

/// A figure of a server's own metrics.
fn figure(server: &Serving, name: &str) -> f64 {
    let page = server.ask("GET", "/metrics", "");
    let line = page
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("no {name}: {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn behind_haproxy() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Serving::start(&[&["--device", "cpu"][..], &QUICK].concat());
    let servers = [start(), start()];
    let proxy = Proxy::start(folder.path(), &[&servers[0], &servers[1]]);
    let question = json!([{"role": "user", "content": "What is the capital of France?"}]);
    let body = json!({"messages": question, "temperature": 0, "max_tokens": 16});
    let saying = "The capital of France is Paris.";
    for _ in 0..4 {
        let mut answer = String::new();
        proxy.send(&body).read_to_string(&mut answer).unwrap();
        assert!(answer.contains(saying) && answer.contains("x-request-id: mine"), "{answer}");
    }
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    for _ in 0..4 {
        let (mut text, mut done) = (String::new(), false);
        for line in BufReader::new(proxy.send(&streamed)).lines().map_while(Result::ok) {
            match line.strip_prefix("data: ") {
                Some("[DONE]") => done = true,
                Some(data) => {
                    let chunk: Value = serde_json::from_str(data).unwrap();
                    text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
                }
                None => {}
            }
        }
        assert_eq!((text.as_str(), done), (saying, true));
    }
    let ended = ended_by("stop");
    assert!(servers.iter().all(|server| figure(server, &ended) >= 1.0), "both had work");
    // A long answer whose reader leaves after the first words.
    let mut long = streamed;
    (long["max_tokens"], long["ignore_eos"]) = (json!(400), json!(true));
    let mut reader = BufReader::new(proxy.send(&long));
    let mut line = String::new();
    while !line.contains("\"content\":\"The") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    drop(reader);
    let aborted = ended_by("abort");
    let began = Instant::now();
    while servers.iter().map(|server| figure(server, &aborted)).sum::<f64>() < 1.0 {
        assert!(began.elapsed() < Duration::from_secs(120), "nobody noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
}
