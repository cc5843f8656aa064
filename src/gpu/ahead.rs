//! Pipelines that threads build beside whatever else is done: the model's, while its weights load.

use super::cache::Cache;
use super::pipelines::{Builder, Pipeline};
use crate::record::{DeviceError, VariantId};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads at most: drivers gain little from more.
const THREADS_MAX: usize = 8;

pub type Built = Result<Pipeline, DeviceError>;

/// What is being built.
#[derive(Default)]
pub struct Ahead {
    coming: HashSet<VariantId>,
    built: Option<Receiver<(VariantId, Built)>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Starts to build `ids`, one after the other on each thread; then `cache` is saved.
    pub fn begin(ids: Vec<VariantId>, builder: Builder, cache: Option<Arc<Cache>>) -> Ahead {
        let (sender, receiver) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (coming, stopped) = (ids.iter().copied().collect(), stop.clone());
        let work = move || {
            build(ids, &builder, &stopped, sender);
            if let Some(cache) = cache {
                cache.save();
            }
        };
        let thread = thread::Builder::new().name("tilewright-pipelines".into()).spawn(work).ok();
        Ahead { coming, built: Some(receiver), stop, thread }
    }

    /// The next pipelines up to that of `id`, if it is on its way.
    pub fn until(&mut self, id: VariantId) -> Vec<(VariantId, Built)> {
        let mut out = Vec::new();
        while self.coming.contains(&id) {
            match self.built.as_ref().and_then(|built| built.recv().ok()) {
                Some(built) => {
                    self.coming.remove(&built.0);
                    out.push(built);
                }
                // The threads are gone: whoever needs it builds it.
                None => self.coming.clear(),
            }
        }
        out
    }

    /// What is on its way.
    pub fn coming(&self) -> Vec<VariantId> {
        self.coming.iter().copied().collect()
    }
}

impl Drop for Ahead {
    /// No thread outlives the device: the driver may be gone after it.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn build(
    ids: Vec<VariantId>,
    builder: &Builder,
    stop: &AtomicBool,
    sender: Sender<(VariantId, Built)>,
) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(ids.len()).min(THREADS_MAX);
    let ids = Mutex::new(ids.into_iter());
    let next = || ids.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = |sender: Sender<(VariantId, Built)>| {
        while let Some(id) = next().filter(|_| !stop.load(Ordering::Relaxed)) {
            // Natively an error scope has its answer at once: nothing stays open.
            if sender.send((id, builder.of_table(id, &mut Vec::new()))).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        work(sender.clone());
    });
}
