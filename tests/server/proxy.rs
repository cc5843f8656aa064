//! Servers behind the proxies that assets/docs/deploy.md configures, by the page's own text:
//! answers, streams as they come, request ids, refusals, silence, and clients that leave.

use crate::support::Rows;
use crate::support::pages::{needs, only};
use crate::support::program::{QUICK, Serving};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: &str = "assets/docs/deploy.md";
const SAYING: &str = "The capital of France is Paris.";

pub fn rows(rows: &mut Rows) {
    rows.add_if(needs("haproxy"), "server::two_servers_behind_haproxy", |()| behind_haproxy());
    rows.add_if(needs("nginx"), "server::a_server_behind_nginx", |()| behind_nginx());
}

/// A proxy that is up; ended when dropped.
struct Proxy {
    child: Child,
    port: u16,
}

impl Proxy {
    /// `configured` gets a free port and makes the command of it.
    fn start(configured: impl FnOnce(u16) -> Command) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = configured(port);
        command.stdout(Stdio::null()).stderr(Stdio::null());
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

    fn ask(&self, body: &Value) -> String {
        let mut answer = String::new();
        self.send(body).read_to_string(&mut answer).unwrap();
        answer
    }

    /// A stream of which `part` was read.
    fn until(&self, body: &Value, part: &str) -> BufReader<TcpStream> {
        let mut reader = BufReader::new(self.send(body));
        until(&mut reader, part);
        reader
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(reader: &mut BufReader<TcpStream>, part: &str) {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "no {part}");
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

fn question(more: Value) -> Value {
    let messages = json!([{"role": "user", "content": "What is the capital of France?"}]);
    let mut body = json!({"messages": messages, "temperature": 0, "max_tokens": 16});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Whole answers, streams, and a reader that leaves after the first words of a long answer.
fn passes(proxy: &Proxy, servers: &[&Serving]) {
    for _ in 0..4 {
        let answer = proxy.ask(&question(json!({})));
        assert!(answer.contains(SAYING) && answer.contains("x-request-id: mine"), "{answer}");
    }
    for _ in 0..4 {
        let (mut text, mut done) = (String::new(), false);
        let stream = proxy.send(&question(json!({"stream": true})));
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            match line.strip_prefix("data: ") {
                Some("[DONE]") => done = true,
                Some(data) => {
                    let chunk: Value = serde_json::from_str(data).unwrap();
                    text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
                }
                None => {}
            }
        }
        assert_eq!((text.as_str(), done), (SAYING, true));
    }
    let ended = ended_by("stop");
    assert!(servers.iter().all(|server| figure(server, &ended) >= 1.0), "all had work");
    let long = question(json!({"stream": true, "max_tokens": 400, "ignore_eos": true}));
    drop(proxy.until(&long, "\"content\":\"The"));
    aborted(servers, 1.0);
}

/// Waits until so many requests were ended by their clients.
fn aborted(servers: &[&Serving], count: f64) {
    let began = Instant::now();
    while servers.iter().map(|server| figure(server, &ended_by("abort"))).sum::<f64>() < count {
        assert!(began.elapsed() < Duration::from_secs(120), "nobody noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn behind_haproxy() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Serving::start(&[&["--device", "cpu"][..], &QUICK].concat());
    let servers = [start(), start()];
    let proxy = Proxy::start(|port| {
        let config = only(PAGE, "haproxy")
            .replace("127.0.0.1:8080", &format!("127.0.0.1:{port}"))
            .replace("127.0.0.1:8421", &servers[0].address)
            .replace("127.0.0.1:8422", &servers[1].address);
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(file);
        command
    });
    passes(&proxy, &[&servers[0], &servers[1]]);
}

/// The page's `location` in the least that nginx wants around one.
fn nginx(folder: &Path, port: u16, server: &Serving) -> Command {
    let block = only(PAGE, "nginx").replace("127.0.0.1:8421", &server.address);
    let here = folder.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places = kinds.map(|kind| format!("{kind}_temp_path {here}/{kind};\n")).concat();
    let config = format!(
        "daemon off;\nmaster_process off;\npid {here}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n\
         {places}server {{\nlisten 127.0.0.1:{port};\n{block}}}\n}}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-e").arg(folder.join("errors")).arg("-c").arg(file);
    command
}

fn behind_nginx() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--device", "cpu", "--max-num-seqs", "1", "--queue-max", "16"];
    let server = Serving::start(&[&more[..], &QUICK].concat());
    let proxy = Proxy::start(|port| nginx(folder.path(), port, &server));
    passes(&proxy, &[&server]);
    // More than nginx takes unless told to.
    let answer = proxy.ask(&question(json!({"metadata": {"note": "x".repeat(2 << 20)}})));
    assert!(answer.contains(SAYING), "{answer}");
    // One answer that is written, fifteen and one that wait; one more is refused.
    let many = json!({"stream": true, "n": 16, "max_tokens": 1900, "ignore_eos": true});
    let long = proxy.until(&question(many), "\"content\":\"The");
    let mut waiting = proxy.until(&question(json!({"stream": true})), "\"role\":\"assistant\"");
    let refused = proxy.ask(&question(json!({})));
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(refused.to_lowercase().contains("\r\nretry-after: "), "{refused}");
    assert!(refused.contains("queue_full"), "{refused}");
    // Whoever waits hears that the server is there.
    until(&mut waiting, ": ping");
    drop((long, waiting));
    aborted(&[&server], 3.0);
}
