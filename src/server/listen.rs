//! The sockets: a connection that takes no bytes for too long, or brings no request, is closed.
//! Otherwise a client that stops reading would hold its connection and its request for ever.

use super::app::ModelState;
use super::config::ServerConfig;
use super::routes::router;
use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

/// Serves until `shutdown` resolves and the requests then open have been answered. `/health`
/// is 503 until `model` holds an engine.
pub async fn serve(
    config: ServerConfig,
    mut listener: TcpListener,
    model: watch::Receiver<ModelState>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (idle, write) = (config.idle_timeout, config.write_timeout);
    let service = router(config, model);
    let (stop, stopping) = watch::channel(());
    let mut open = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            // The trait's `accept` waits and tries again on errors such as too many open files.
            (stream, _) = Listener::accept(&mut listener) => {
                // Small frames must leave at once; without the option they only come later.
                let _ = stream.set_nodelay(true);
                let stream = Connection { stream, write, writing: None };
                open.spawn(connection(stream, service.clone(), idle, stopping.clone()));
            }
            Some(_) = open.join_next(), if !open.is_empty() => {}
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    // Connections at rest close; others after the answer that is under way.
    stop.send_replace(());
    while open.join_next().await.is_some() {}
    Ok(())
}

/// Serves one connection to its end.
async fn connection(
    stream: Connection,
    router: Router,
    idle: Duration,
    mut stopping: watch::Receiver<()>,
) {
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(idle);
    let service = TowerToHyperService::new(router);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // A failed connection is its client's affair: there is nobody to tell.
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = stopping.changed() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// A socket whose writes have a deadline: one that does not advance in time fails.
struct Connection {
    stream: TcpStream,
    write: Duration,
    writing: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    /// Passes a write's result on, or the end of its patience.
    fn within<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.writing = None;
            return result;
        }
        let write = self.write;
        let deadline = self.writing.get_or_insert_with(|| Box::pin(sleep(write)));
        deadline
            .as_mut()
            .poll(context)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.within(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
