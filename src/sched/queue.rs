//! Those that wait, in lanes: one for all, or under fair queueing one a tenant. Within a lane the
//! order is ascending (key, order of arrival). Keys never change while a sequence waits: aging is
//! in them, as the tokens that had been processed when it arrived. A preempted sequence keeps its
//! key and so returns to its place.

use std::collections::VecDeque;

/// One that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Waiting {
    pub key: u64,
    pub order: u64,
    pub entry: u32,
}

/// Each lane is sorted; joining at the back and leaving at the front are O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    lanes: Vec<VecDeque<Waiting>>,
    len: usize,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The one at `place` of a lane, counted from its head.
    pub fn get(&self, lane: u32, place: usize) -> Option<Waiting> {
        self.lanes.get(lane as usize).and_then(|l| l.get(place)).copied()
    }

    /// The lanes in which somebody waits, with their heads.
    pub fn heads(&self) -> impl Iterator<Item = (u32, Waiting)> {
        (0u32..).zip(&self.lanes).filter_map(|(lane, l)| Some((lane, *l.front()?)))
    }

    pub fn insert(&mut self, lane: u32, new: Waiting) {
        let at = lane as usize;
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, VecDeque::new);
        }
        let lane = &mut self.lanes[at];
        let place = lane.partition_point(|w| *w < new);
        lane.insert(place, new);
        self.len += 1;
    }

    pub fn remove(&mut self, lane: u32, old: Waiting) {
        let Some(lane) = self.lanes.get_mut(lane as usize) else { return };
        if let Ok(at) = lane.binary_search(&old) {
            lane.remove(at);
            self.len -= 1;
        }
    }

    pub fn clear(&mut self) {
        self.lanes.clear();
        self.len = 0;
    }

    /// Lane by lane.
    pub fn iter(&self) -> impl Iterator<Item = Waiting> {
        self.lanes.iter().flatten().copied()
    }
}
