//! Where stamped events go. A sink never blocks and never fails the engine: one that cannot keep
//! up loses events and says how many.

use super::event::{Event, Stamped};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes the stream, in order.
pub trait Sink {
    fn push(&mut self, event: &Stamped);
}

/// Keeps nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct NullSink;

impl Sink for NullSink {
    fn push(&mut self, _: &Stamped) {}
}

/// Keeps the newest events. Never grows beyond its capacity, which is allocated at once.
#[derive(Clone, Debug)]
pub struct RingSink {
    events: VecDeque<Stamped>,
    capacity: usize,
    dropped: u64,
}

impl RingSink {
    /// Room for `capacity` events, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { events: VecDeque::with_capacity(capacity), capacity, dropped: 0 }
    }

    /// Oldest first.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &Stamped> {
        self.events.iter()
    }

    /// Events that made room for newer ones.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Copies every event from stream position `seq` on to `out`. When some of those are gone
    /// already, an [`Event::EventsDropped`] comes first and tells how many.
    pub fn since(&self, seq: u64, out: &mut Vec<Stamped>) {
        let Some(oldest) = self.events.front() else { return };
        if oldest.seq > seq {
            let event = Event::EventsDropped { count: oldest.seq - seq };
            out.push(Stamped { seq, step: oldest.step, micros: oldest.micros, event });
        }
        let from = self.events.partition_point(|e| e.seq < seq);
        out.extend(self.events.range(from..).cloned());
    }
}

impl Sink for RingSink {
    fn push(&mut self, event: &Stamped) {
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event.clone());
    }
}

/// A sink that others read while the engine writes.
impl<S: Sink> Sink for Arc<Mutex<S>> {
    fn push(&mut self, event: &Stamped) {
        self.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// Keeps everything.
impl Sink for Vec<Stamped> {
    fn push(&mut self, event: &Stamped) {
        self.push(event.clone());
    }
}

/// Sends the stream to each.
impl<S: Sink + ?Sized> Sink for Vec<Box<S>> {
    fn push(&mut self, event: &Stamped) {
        for sink in self {
            sink.push(event);
        }
    }
}
