//! Those that wait, in the order of admission: ascending (key, order of arrival).
//! A preempted sequence keeps its place in that order and so returns ahead of later arrivals.

use std::collections::VecDeque;

/// One that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Waiting {
    pub order: u64,
    pub entry: u32,
}

/// Sorted; joining at the back and leaving at the front are O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn head(&self) -> Option<u32> {
        self.waiting.front().map(|w| w.entry)
    }

    pub fn insert(&mut self, new: Waiting) {
        let at = self.waiting.partition_point(|w| *w < new);
        self.waiting.insert(at, new);
    }

    pub fn remove(&mut self, old: Waiting) {
        if let Ok(at) = self.waiting.binary_search(&old) {
            self.waiting.remove(at);
        }
    }

    /// In the order of admission.
    pub fn entries(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().map(|w| w.entry)
    }
}
