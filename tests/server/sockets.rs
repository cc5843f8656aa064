//! Over real sockets: clients that leave, clients that stop reading, a server that ends; case 31.
//! The runner is held at its gate, so that nothing here depends on speed.

use super::host::{CHAT, Host, Setup, TEXT};
use crate::engine::fake::hashed;
use crate::support::Rows;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;
use tilewright::base::Limits;
use tilewright::engine::Status;
use tilewright::server::{ModelState, ServerConfig, serve};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

pub fn rows(rows: &mut Rows) {
    rows.add("server::gone_while_queued", gone_while_queued);
    rows.add("server::gone_while_prefilling", gone_while_prefilling);
    rows.add("server::gone_after_the_first_delta", gone_after_the_first_delta);
    rows.add("server::gone_without_stream", gone_without_stream);
    rows.add("server::reader_that_stops_is_cut", reader_that_stops_is_cut);
    rows.add("server::silent_stream_is_kept_alive", silent_stream_is_kept_alive);
    rows.add("server::unused_connection_is_closed", unused_connection_is_closed);
    rows.add("server::shutdown_finishes_answers", shutdown_finishes_answers);
    rows.add("server::socket_opens_before_the_model", socket_opens_before_the_model);
}

const TURNS: usize = 50;

/// A served host.
pub struct Served {
    pub address: SocketAddr,
    pub host: Host,
    shutdown: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<std::io::Result<()>>>,
    runtime: Runtime,
}

pub fn served(setup: Setup, change: impl FnOnce(&mut ServerConfig)) -> Served {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut config = setup.server.clone();
    change(&mut config);
    let host = setup.start();
    let (shutdown, down) = oneshot::channel::<()>();
    let model = host.model.subscribe();
    let (address, server) = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        // Small buffers, so that a client that does not read is noticed after little text.
        socket.set_send_buffer_size(4096).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(64).unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(config, listener, model, async {
            let _ = down.await;
        }));
        (address, server)
    });
    Served { address, host, shutdown: Some(shutdown), server: Some(server), runtime }
}

impl Served {
    fn small() -> Self {
        let mut setup = Setup::new(hashed());
        setup.limits = Limits { sequences_max: 1, ..setup.limits };
        served(setup, |_| {})
    }

    fn post(&self, path: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = body.to_string();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Waits until the engine's status is as wanted; a minute without is a failure.
    fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let mut watch = self.host.engine.watch();
        let wait = async {
            tokio::time::timeout(Duration::from_secs(60), watch.wait_for(|s| wanted(s))).await
        };
        match self.runtime.block_on(wait) {
            Ok(status) => status.unwrap().clone(),
            Err(_) => panic!("no {what} in a minute: {:?}", self.host.engine.status()),
        }
    }

    /// Steps one by one, with more and more time between for the server to see what its client
    /// does, until the status is as wanted.
    fn step_until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        for turn in 0..27 {
            let status = self.host.engine.status();
            if wanted(&status) {
                return status;
            }
            self.host.knobs.pass(1);
            std::thread::sleep(Duration::from_millis(2 << (turn / 2).min(10)));
        }
        panic!("no {what}: {:?}", self.host.engine.status());
    }

    /// Nothing may stay open; the requests here need more steps than are allowed, if they are
    /// not cancelled.
    fn until_closed(&self) {
        let status = self.step_until("end", |status| status.open == 0);
        assert_eq!((status.blocks_used, status.running, status.waiting), (0, 0, 0));
        assert_eq!(status.requests_finished, 0, "cancelled, not run to the end: {status:?}");
        self.host.knobs.pass(0);
    }
}

/// Closes the socket, or only the sending half of it: a server cannot tell the two apart.
fn leave(stream: TcpStream, turn: usize) -> Option<TcpStream> {
    if turn.is_multiple_of(2) {
        return None;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    Some(stream)
}

fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut all, mut buffer) = (String::new(), [0; 1024]);
    while !all.contains(text) {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "no {text:?} in {all:?}");
        all.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    all
}

fn long(stream: bool) -> Value {
    json!({"prompt": "Once", "max_tokens": 1500, "stream": stream})
}

fn gone_while_queued() {
    let mut setup = Setup::new(hashed());
    setup.limits = Limits { sequences_max: 1, context_max: 8192, ..setup.limits };
    setup.output_buffer = 8192;
    let served = served(setup, |_| {});
    served.host.knobs.pass(1);
    let body = json!({"prompt": "Once", "max_tokens": 8000, "stream": true});
    let mut first = served.post(TEXT, &body);
    read_until(&mut first, "data: ");
    for turn in 0..TURNS {
        let queued = served.post(TEXT, &long(turn % 3 == 0));
        served.step_until("waiting request", |status| status.waiting == 1);
        let held = leave(queued, turn);
        let status = served.step_until("empty queue", |status| status.waiting == 0);
        assert_eq!((status.running, status.open), (1, 1), "turn {turn}");
        drop(held);
    }
    drop(first);
    served.until_closed();
    assert_eq!(served.host.engine.status().requests_cancelled, 1 + TURNS as u64);
}

fn gone_while_prefilling() {
    let served = Served::small();
    served.host.knobs.pass(0);
    for turn in 0..TURNS {
        // Each its own prompt: nothing of one before is found in the prefix cache.
        let body = json!({"prompt": vec![300 + turn; 1900], "stream": turn % 3 != 0});
        let stream = served.post(TEXT, &body);
        served.host.knobs.until_held();
        served.host.knobs.pass(2);
        served.host.knobs.until_held();
        assert!(served.host.engine.status().blocks_used > 0);
        let held = leave(stream, turn);
        served.until_closed();
        drop(held);
    }
    assert_eq!(served.host.engine.status().tokens_generated, 0, "no prefill was completed");
}

fn gone_after_the_first_delta() {
    let served = Served::small();
    served.host.knobs.pass(0);
    for turn in 0..TURNS {
        let mut stream = served.post(TEXT, &long(true));
        served.host.knobs.until_held();
        // The status knows a request from its first step on, not only when that has ended.
        assert_eq!(served.host.engine.status().open, 1);
        served.host.knobs.pass(1);
        read_until(&mut stream, "data: {");
        let held = leave(stream, turn);
        served.until_closed();
        drop(held);
    }
}

fn gone_without_stream() {
    let served = Served::small();
    served.host.knobs.pass(0);
    for turn in 0..TURNS {
        let stream = served.post(TEXT, &long(false));
        served.host.knobs.until_held();
        served.host.knobs.pass(3);
        served.host.knobs.until_held();
        let held = leave(stream, turn);
        served.until_closed();
        drop(held);
    }
}

/// A zero window: the server stops taking from the engine, gives the connection up in time, and
/// that cancels the request. (That the engine does not wait for a reader is an engine row.)
fn reader_that_stops_is_cut() {
    let served = served(Setup::new(hashed()), |config| {
        config.write_timeout = Duration::from_millis(100);
    });
    let mut stream = served.runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = socket.connect(served.address).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    });
    // Far more text than all buffers between hold.
    served.host.knobs.pass(400);
    let body = json!({"prompt": "Once", "max_tokens": 1500, "stream": true}).to_string();
    let head = format!(
        "POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // Or fewer, where those take longer than the server waits.
    served.until("400 steps", |status| status.steps == 400 || status.requests_cancelled == 1);
    served.step_until("end", |status| status.open == 0);
    served.host.knobs.pass(u64::MAX);
    let status = served.until("end", |status| status.requests_cancelled == 1);
    assert_eq!((status.requests_finished, status.blocks_used), (0, 0));
    // What was sent before can be read, and no more comes.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    let all = String::from_utf8_lossy(&all);
    assert!(all.contains("data: {") && !all.contains("[DONE]") && !all.contains("\"error\""));
    let mut next = served.post(TEXT, &json!({"prompt": "x", "max_tokens": 2}));
    read_until(&mut next, "\"finish_reason\":\"length\"");
}

fn silent_stream_is_kept_alive() {
    let served = served(Setup::new(hashed()), |config| {
        config.ping_interval = Duration::from_millis(20);
    });
    served.host.knobs.pass(0);
    let mut stream = served.post(
        CHAT,
        &json!({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "stream": true}),
    );
    let head = read_until(&mut stream, ": ping\n\n");
    assert!(head.contains("\"role\":\"assistant\""), "the role comes before the first token");
    served.host.knobs.pass(u64::MAX);
    read_until(&mut stream, "data: [DONE]\n\n");
}

fn unused_connection_is_closed() {
    let served = served(Setup::new(hashed()), |config| {
        config.idle_timeout = Duration::from_millis(50);
    });
    let mut unused = TcpStream::connect(served.address).unwrap();
    unused.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(unused.read(&mut [0; 16]).unwrap_or(0), 0, "closed without a word");
    // Half a request head is none.
    let mut half = TcpStream::connect(served.address).unwrap();
    half.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    half.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n").unwrap();
    let mut all = Vec::new();
    let _ = half.read_to_end(&mut all);
    assert!(!all.starts_with(b"HTTP/1.1 200"));
    // A request that takes longer than that is not an unused connection.
    served.host.knobs.pass(0);
    let mut slow = served.post(TEXT, &json!({"prompt": "x", "max_tokens": 2}));
    served.host.knobs.until_held();
    std::thread::sleep(Duration::from_millis(150));
    served.host.knobs.pass(u64::MAX);
    read_until(&mut slow, "\"finish_reason\":\"length\"");
}

/// The order that ends a server: no new requests, open ones finish, then it returns.
fn shutdown_finishes_answers() {
    let mut served = served(Setup::new(hashed()), |_| {});
    served.host.knobs.pass(1);
    let mut stream = served.post(TEXT, &json!({"prompt": "x", "max_tokens": 20, "stream": true}));
    read_until(&mut stream, "data: ");
    served.host.knobs.until_held();
    served.host.engine.drain();
    served.shutdown.take().unwrap().send(()).unwrap();
    served.host.knobs.pass(u64::MAX);
    let rest = read_until(&mut stream, "data: [DONE]\n\n");
    assert!(rest.contains("\"finish_reason\":\"length\""));
    let server = served.server.take().unwrap();
    let ended = async { tokio::time::timeout(Duration::from_secs(60), server).await };
    served.runtime.block_on(ended).expect("the server ends").unwrap().unwrap();
    assert!(TcpStream::connect(served.address).is_err(), "the socket is closed");
}

fn socket_opens_before_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (model, seen) = watch::channel(ModelState::Loading);
    let host = Host::says("Hello.");
    let get = |address: SocketAddr| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        all
    };
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(ServerConfig::default(), listener, seen, async {
            std::future::pending::<()>().await;
        }));
        let ask = || tokio::task::spawn_blocking(move || get(address));
        let early = ask().await.unwrap();
        assert!(early.starts_with("HTTP/1.1 503") && early.contains("model_loading"), "{early}");
        model.send_replace(ModelState::Ready(host.engine.clone()));
        assert!(ask().await.unwrap().starts_with("HTTP/1.1 200"));
        server.abort();
    });
}
