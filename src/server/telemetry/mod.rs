//! What the server tells about its engine: metrics and the live feed, both made from the trace's
//! events alone. The engine's thread pushes events through a [`Tap`]; scrapes and watchers read.
//!
//! Text of requests is never in it: token ids are withheld from the feed, because whoever may
//! watch could turn them back into text.

mod feed;
mod histogram;
mod metrics;
mod render;
mod waits;

pub(super) use feed::{Feed, Position};
pub(super) use metrics::Metrics;
pub(super) use render::{Gauges, render};
pub(super) use waits::Asking;

use crate::base::Limits;
use crate::trace::{Picture, Sink, Stamped};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Shared by the engine's thread and the routes. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    inner: Arc<Mutex<Inner>>,
    /// The stream position after the last event; tells watchers that there is more.
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    metrics: Metrics,
    feed: Feed,
    waits: waits::AskedWaits,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { inner: Arc::default(), news: watch::Sender::new(0) }
    }
}

impl Telemetry {
    /// Where the engine sends its events; one of [`crate::engine::EngineConfig::sinks`].
    pub fn tap(&self) -> Box<dyn Sink> {
        Box::new(Tap(self.clone()))
    }

    /// The state after the last event.
    pub fn picture(&self) -> Picture {
        self.lock().feed.picture().clone()
    }

    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Reads the feed; quick, for the engine waits meanwhile.
    pub(super) fn feed<T>(&self, read: impl FnOnce(&Feed) -> T) -> T {
        read(&self.lock().feed)
    }

    /// `limits` are the engine's own: the stream tells them only with its first event.
    pub(super) fn metrics(&self, limits: &Limits) -> (Metrics, Gauges) {
        let inner = self.lock();
        (inner.metrics.clone(), Gauges::of(inner.feed.picture(), limits))
    }

    /// Counts the choices that a request asks for.
    pub(super) fn observe_choices(&self, n: usize) {
        self.lock().metrics.choices(n);
    }

    /// Counts an answered HTTP request.
    pub(super) fn observe_http(&self, route: &'static str, status: u16) {
        self.lock().metrics.http(route, status);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine's end.
struct Tap(Telemetry);

impl Sink for Tap {
    fn push(&mut self, event: &Stamped) {
        let mut inner = self.0.lock();
        inner.metrics.push(event);
        inner.waits.push(event);
        inner.feed.push(event);
        drop(inner);
        self.0.news.send_replace(event.seq + 1);
    }
}
