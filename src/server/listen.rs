//! The sockets: a connection that takes no bytes for too long, or stays unused, is closed.
//! Otherwise a client that stops reading would hold its connection and its request for ever.

use super::app::ModelState;
use super::config::ServerConfig;
use super::routes::router;
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};

/// Serves until `shutdown` resolves and the requests then open have been answered. `/health`
/// is 503 until `model` holds an engine.
pub async fn serve(
    config: ServerConfig,
    listener: TcpListener,
    model: watch::Receiver<ModelState>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let guarded = Guarded { listener, write: config.write_timeout, idle: config.idle_timeout };
    axum::serve(guarded, router(config, model)).with_graceful_shutdown(shutdown).await
}

/// A listener whose connections have deadlines.
struct Guarded {
    listener: TcpListener,
    write: Duration,
    idle: Duration,
}

impl Listener for Guarded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The trait's own listener waits and tries again on errors such as too many open files.
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Small frames must leave at once; without the option they only come later.
        let _ = stream.set_nodelay(true);
        (Connection::new(stream, self.write, self.idle), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A socket with two deadlines: for a write that does not advance, and for a client that says
/// nothing although it is its turn (nothing was read since the last byte was written).
struct Connection {
    stream: TcpStream,
    write: Duration,
    idle: Duration,
    writing: Option<Pin<Box<Sleep>>>,
    resting: Pin<Box<Sleep>>,
    clients_turn: bool,
}

impl Connection {
    fn new(stream: TcpStream, write: Duration, idle: Duration) -> Self {
        let resting = Box::pin(sleep(idle));
        Self { stream, write, idle, writing: None, resting, clients_turn: true }
    }

    fn wrote(&mut self, context: &mut Context<'_>, done: bool) -> Poll<()> {
        if done {
            self.writing = None;
            self.clients_turn = true;
            self.resting.as_mut().reset(Instant::now() + self.idle);
            return Poll::Pending;
        }
        let write = self.write;
        let deadline = self.writing.get_or_insert_with(|| Box::pin(sleep(write)));
        deadline.as_mut().poll(context)
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(result) => {
                this.clients_turn = false;
                Poll::Ready(result)
            }
            Poll::Pending if this.clients_turn => match this.resting.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Err(timed_out("the connection was idle"))),
                Poll::Pending => Poll::Pending,
            },
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        match this.wrote(context, result.is_ready()) {
            Poll::Ready(()) => Poll::Ready(Err(timed_out("the client does not read"))),
            Poll::Pending => result,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
