//! A benchmark client for any server of the OpenAI API: requests arrive as a workload or a trace
//! says, each is streamed and timed, and the figures have the names that `vllm bench serve` gives
//! them, so that scripts for those read these.
//!
//! A thread per request in flight: nothing of one request's reading delays another's clock.

mod plot;
mod report;
mod stream;

pub use plot::plot;
pub use report::{Goal, Report, Spread};
pub use stream::{Endpoint, Timed};

use crate::sim::Arrival;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use stream::Client;

/// What to send where.
#[derive(Clone, Debug)]
pub struct Load {
    /// Of the server, with or without `/v1`.
    pub url: String,
    pub key: Option<String>,
    /// `None`: the first that the server lists.
    pub model: Option<String>,
    pub endpoint: Endpoint,
    /// In order of time.
    pub arrivals: Vec<Arrival>,
    /// Requests in flight at most; later ones wait, and their clocks start when they are sent.
    pub concurrency: Option<u32>,
    /// Goes on to the wanted length after end tokens.
    pub ignore_eos: bool,
    pub temperature: Option<f32>,
    /// Longest time for one request.
    pub patience: Duration,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{url}: {reason}; give the address of a server of the OpenAI API")]
    Unreached { url: String, reason: String },
    #[error("{url}: the server lists no model; name one with --model")]
    NoModel { url: String },
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Run {
    pub model: String,
    /// Seconds from the first request's sending to the last one's end.
    pub seconds: f64,
    /// In the order of the arrivals.
    pub requests: Vec<Timed>,
}

/// Places for requests in flight.
struct Places {
    free: Mutex<u32>,
    freed: Condvar,
}

impl Places {
    fn take(&self) -> Place<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.freed.wait_while(free, |free| *free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        Place(self)
    }
}

/// A place of a request in flight; free again however the request ends, begun or not.
struct Place<'a>(&'a Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// Sends all requests when they are due and waits for their ends. `progress` hears of every end:
/// how many, and of how many.
pub fn run(load: &Load, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Run, LoadError> {
    let client = Client::open(load)?;
    let places = Places {
        free: Mutex::new(load.concurrency.unwrap_or(u32::MAX).max(1)),
        freed: Condvar::new(),
    };
    let ended = Mutex::new(0);
    let count = load.arrivals.len();
    let start = Instant::now();
    let one = |arrival: &Arrival, place: Place<'_>| {
        let timed = client.ask(arrival, start);
        drop(place);
        let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended += 1;
        progress(*ended, count);
        timed
    };
    let requests = thread::scope(|scope| {
        let mut running = Vec::with_capacity(count);
        for arrival in &load.arrivals {
            let due = Duration::from_micros(arrival.micros);
            thread::sleep(due.saturating_sub(start.elapsed()));
            let place = places.take();
            let one = &one;
            let spawned = thread::Builder::new()
                .stack_size(256 << 10)
                .spawn_scoped(scope, move || one(arrival, place));
            running.push(spawned);
        }
        let ends = running.into_iter().map(|thread| match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Timed::failed("the request's thread panicked".to_string())),
            Err(error) => Timed::failed(format!("no thread for the request: {error}")),
        });
        ends.collect::<Vec<_>>()
    });
    let seconds = start.elapsed().as_secs_f64();
    Ok(Run { model: client.model, seconds, requests })
}
