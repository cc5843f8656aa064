//! Why a token was late: every gap between two tokens of a sequence (and the one from its arrival
//! to the first) split into parts that sum to it exactly.
//!
//! A step's device time is shared by a model of step time: with `fixed` the cost of an empty step
//! and a marginal cost per row, `own` is what the row alone would have cost (fixed + its marginal
//! cost) and the others' parts are their marginal costs, all scaled to the time measured. What
//! the host does between two steps is `scheduling`; what lost events leave open is `unexplained`.

use super::event::{Event, Stamped};
use crate::base::SequenceId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Predicted device time, in any unit: only ratios count.
pub trait RowCost {
    fn fixed(&self) -> u64;
    /// Beyond `fixed`, for positions `start .. start + len` of one sequence.
    fn row(&self, start: u32, len: u32) -> u64;
}

/// Where the time of a gap went, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Parts {
    pub own: u64,
    pub others_decode: u64,
    pub others_prefill: u64,
    /// Waiting to be let in for the first time.
    pub queue: u64,
    /// Out of its slot after a preemption, and computing again what was lost.
    pub preemption: u64,
    /// In its slot without a row, or kept out, because no block was free.
    pub memory: u64,
    pub scheduling: u64,
    /// Before a loss of events.
    pub unexplained: u64,
}

impl Parts {
    pub fn sum(&self) -> u64 {
        let Self { own, others_decode, others_prefill, queue, .. } = self;
        own + others_decode
            + others_prefill
            + queue
            + self.preemption
            + self.memory
            + self.scheduling
            + self.unexplained
    }
}

impl AddAssign for Parts {
    fn add_assign(&mut self, other: Self) {
        self.own += other.own;
        self.others_decode += other.others_decode;
        self.others_prefill += other.others_prefill;
        self.queue += other.queue;
        self.preemption += other.preemption;
        self.memory += other.memory;
        self.scheduling += other.scheduling;
        self.unexplained += other.unexplained;
    }
}

/// One gap, complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Gap {
    pub sequence: SequenceId,
    /// Of the token that ended it.
    pub position: u32,
    pub from_micros: u64,
    pub micros: u64,
    pub parts: Parts,
    /// Who delayed it and by how much, the most first: rows of others in the steps it was in.
    pub delayed_by: Vec<(SequenceId, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Queued,
    Running,
    /// Out of its slot, or in it for want of blocks.
    Preempted,
}

#[derive(Clone, Debug)]
struct Track {
    place: Place,
    /// The gap's start.
    from: u64,
    /// Time is accounted for up to here.
    mark: u64,
    /// Positions below were computed before a preemption and are computed again.
    again: u32,
    /// It was planned no row for want of a block.
    starved: bool,
    computed: u32,
    parts: Parts,
    delayed_by: BTreeMap<SequenceId, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    sequence: Option<SequenceId>,
    start: u32,
    len: u32,
    cost: u64,
}

/// Follows a stream and gives each gap as its token comes.
#[derive(Clone, Debug, Default)]
pub struct Attribution {
    tracks: BTreeMap<SequenceId, Track>,
    rows: Vec<Row>,
}

impl Attribution {
    /// Takes an event; the gap that it ended, if it is a token.
    pub fn push(&mut self, stamped: &Stamped, cost: &impl RowCost) -> Option<Gap> {
        let now = stamped.micros;
        match stamped.event {
            Event::RequestArrived { sequence, .. } => {
                let track = Track {
                    place: Place::Queued,
                    from: now,
                    mark: now,
                    again: 0,
                    starved: false,
                    computed: 0,
                    parts: Parts::default(),
                    delayed_by: BTreeMap::new(),
                };
                self.tracks.insert(sequence, track);
            }
            Event::SequenceAdmitted { sequence, .. } => {
                if let Some(track) = self.tracks.get_mut(&sequence) {
                    track.account(now);
                    track.place = Place::Running;
                }
            }
            Event::SequencePreempted { victim, .. } => {
                if let Some(track) = self.tracks.get_mut(&victim) {
                    track.account(now);
                    track.again = track.again.max(track.computed);
                    track.computed = 0;
                    track.place = Place::Preempted;
                }
            }
            Event::RowDelayed { sequence, .. } => {
                if let Some(track) = self.tracks.get_mut(&sequence) {
                    track.account(now);
                    track.starved = true;
                }
            }
            Event::StepPlanned { .. } => self.rows.clear(),
            Event::RowPlanned { sequence, start, len, .. } => {
                let row = Row { sequence: Some(sequence), start, len, cost: cost.row(start, len) };
                self.rows.push(row);
            }
            Event::RowPadded { start, len, .. } => {
                self.rows.push(Row { sequence: None, start, len, cost: cost.row(start, len) });
            }
            Event::StepRan { device_micros, plan_micros, build_micros, .. } => {
                self.step_ran(now, plan_micros + build_micros, device_micros, cost.fixed());
            }
            Event::TokenSampled { sequence, position, .. } => {
                return self.token(sequence, position, now);
            }
            Event::SequenceFinished { sequence, .. } => {
                self.tracks.remove(&sequence);
            }
            Event::EventsDropped { .. } => {
                for track in self.tracks.values_mut() {
                    track.parts.unexplained += now.saturating_sub(track.mark);
                    track.mark = track.mark.max(now);
                }
            }
            _ => {}
        }
        None
    }

    fn step_ran(&mut self, now: u64, host: u64, device: u64, fixed: u64) {
        let all: u128 = self.rows.iter().map(|r| u128::from(r.cost)).sum();
        let total = (u128::from(fixed) + all).max(1);
        // Cut down, so that the parts never exceed the whole.
        let share = |cost: u64| (u128::from(device) * u128::from(cost) / total) as u64;
        let (mut decode, mut prefill) = (0u64, 0u64);
        for row in &self.rows {
            let kind = if row.len == 1 { &mut decode } else { &mut prefill };
            *kind += share(row.cost);
        }
        for row in &self.rows {
            let Some(sequence) = row.sequence else { continue };
            let Some(track) = self.tracks.get_mut(&sequence) else { continue };
            let began = now.saturating_sub(device).saturating_sub(host);
            track.account(began.max(track.mark));
            let begun = now.saturating_sub(device).max(track.mark);
            track.parts.scheduling += begun - track.mark;
            // A step that began before the gap did counts from the gap's start on.
            let left = now.max(begun) - begun;
            let scale = |part: u64| match device {
                0 => 0,
                _ => (u128::from(part) * u128::from(left) / u128::from(device)) as u64,
            };
            let (mut decode, mut prefill) = (decode, prefill);
            let kind = if row.len == 1 { &mut decode } else { &mut prefill };
            *kind -= share(row.cost);
            let (decode, prefill) = (scale(decode), scale(prefill));
            track.parts.others_decode += decode;
            track.parts.others_prefill += prefill;
            let own = left - decode - prefill;
            match row.start < track.again {
                true => track.parts.preemption += own,
                false => track.parts.own += own,
            }
            track.computed = row.start.saturating_add(row.len);
            track.starved = false;
            track.mark = now.max(begun);
            for other in &self.rows {
                // Decode rows of others are many and small: who delays is who has more to do.
                if let Some(by) = other.sequence.filter(|&by| by != sequence && other.len > 1) {
                    *track.delayed_by.entry(by).or_default() += scale(share(other.cost));
                }
            }
        }
    }

    fn token(&mut self, sequence: SequenceId, position: u32, now: u64) -> Option<Gap> {
        let track = self.tracks.get_mut(&sequence)?;
        track.account(now);
        let mut delayed_by: Vec<_> = std::mem::take(&mut track.delayed_by).into_iter().collect();
        delayed_by.sort_by_key(|&(by, micros)| (std::cmp::Reverse(micros), by));
        let (from, parts) = (track.from, std::mem::take(&mut track.parts));
        track.from = track.mark;
        let micros = track.mark - from;
        Some(Gap { sequence, position, from_micros: from, micros, parts, delayed_by })
    }
}

impl Track {
    /// The time up to `now` in which it had no row.
    fn account(&mut self, now: u64) {
        let micros = now.saturating_sub(self.mark);
        let part = match self.place {
            Place::Queued => &mut self.parts.queue,
            Place::Preempted => &mut self.parts.preemption,
            Place::Running if self.starved => &mut self.parts.memory,
            Place::Running => &mut self.parts.scheduling,
        };
        *part += micros;
        self.mark = self.mark.max(now);
    }
}
