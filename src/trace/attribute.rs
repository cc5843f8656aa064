//! Why a token was late: every gap between two tokens of a sequence (and the one from its arrival
//! to the first) split into parts that sum to it exactly.
//!
//! A step's device time is shared by a model of step time, fitted to the stream as it goes: with
//! `fixed` the cost of an empty step and a marginal cost per row, `own` is what the row alone
//! would have cost (fixed + its marginal cost) and the others' parts are their marginal costs, all
//! scaled to the time measured. Where kernels are timed, what the step took beyond them is
//! `readback`. What the host does between two steps is `scheduling`; what lost events leave open
//! is `unexplained`.

use super::event::{Event, Stamped};
use super::picture::{Picture, SequencePicture};
use super::step_time::{StepCost, StepTime, Work};
use crate::base::SequenceId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;

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
    /// In its slot without a row because no block was free, and while blocks were moved to host
    /// memory and back.
    pub memory: u64,
    pub scheduling: u64,
    /// Submission and the way of the results back, in steps whose kernels were timed.
    pub readback: u64,
    /// Before a loss of events.
    pub unexplained: u64,
}

impl Parts {
    pub fn sum(&self) -> u64 {
        self.named().iter().fold(0, |all, (_, part)| all.saturating_add(*part))
    }

    /// Every part with its name, in the order of the fields.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("own", self.own),
            ("others_decode", self.others_decode),
            ("others_prefill", self.others_prefill),
            ("queue", self.queue),
            ("preemption", self.preemption),
            ("memory", self.memory),
            ("scheduling", self.scheduling),
            ("readback", self.readback),
            ("unexplained", self.unexplained),
        ]
    }
}

/// Sums over many gaps stop at the largest number: a damaged recording may hold any times.
impl AddAssign for Parts {
    fn add_assign(&mut self, other: Self) {
        for (part, more) in [
            (&mut self.own, other.own),
            (&mut self.others_decode, other.others_decode),
            (&mut self.others_prefill, other.others_prefill),
            (&mut self.queue, other.queue),
            (&mut self.preemption, other.preemption),
            (&mut self.memory, other.memory),
            (&mut self.scheduling, other.scheduling),
            (&mut self.readback, other.readback),
            (&mut self.unexplained, other.unexplained),
        ] {
            *part = part.saturating_add(more);
        }
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
    /// For whom it was preempted last, if it was.
    pub preempted_for: Option<SequenceId>,
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
    preempted_for: Option<SequenceId>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    sequence: Option<SequenceId>,
    start: u32,
    len: u32,
    /// Guesses after those.
    drafts: u32,
    /// Once the step has run.
    cost: u64,
}

/// Follows a stream and gives each gap as its token comes.
#[derive(Clone, Debug, Default)]
pub struct Attribution {
    tracks: BTreeMap<SequenceId, Track>,
    rows: Vec<Row>,
    work: Work,
    kernel_nanos: u64,
    /// Spent on moving blocks before the step.
    swap_micros: u64,
    times: StepTime,
    /// In place of what is fitted.
    known: Option<StepCost>,
}

impl Attribution {
    /// Shares steps by this model, whatever the stream shows.
    pub fn with_cost(cost: StepCost) -> Self {
        Self { known: Some(cost), ..Self::default() }
    }

    /// Goes on from a picture: what its sequences wait for counts from there.
    pub fn resume(picture: &Picture) -> Self {
        let track = |s: &SequencePicture| Track {
            place: match s.slot {
                Some(_) => Place::Running,
                None if s.preemptions > 0 => Place::Preempted,
                None => Place::Queued,
            },
            computed: s.computed,
            ..Track::arrived(picture.micros)
        };
        let tracks = picture.sequences.iter().map(|(id, s)| (*id, track(s))).collect();
        Self { tracks, ..Self::default() }
    }

    /// The model that steps are shared by; tokens alone count until a step was seen.
    pub fn cost(&self) -> StepCost {
        let by_tokens = StepCost { fixed: 0, token: 1, pair: 0 };
        self.known.or(self.times.cost()).unwrap_or(by_tokens)
    }

    /// Takes an event; the gap that it ended, if it is a token.
    pub fn push(&mut self, stamped: &Stamped) -> Option<Gap> {
        let now = stamped.micros;
        match stamped.event {
            Event::RequestArrived { sequence, .. } => {
                self.tracks.insert(sequence, Track::arrived(now));
            }
            Event::SequenceAdmitted { sequence, .. } => {
                self.account(sequence, now, |track| track.place = Place::Running);
            }
            Event::SequencePreempted { victim, gainer, .. } => self.account(victim, now, |track| {
                track.preempted_for = Some(gainer);
                track.again = track.again.max(track.computed);
                track.computed = 0;
                track.place = Place::Preempted;
            }),
            Event::RowDelayed { sequence, .. } => {
                self.account(sequence, now, |track| track.starved = true);
            }
            Event::StepPlanned { .. } => {
                self.rows.clear();
                (self.work, self.kernel_nanos, self.swap_micros) = (Work::default(), 0, 0);
            }
            Event::RowPlanned { sequence, start, len, .. } => {
                self.row(Some(sequence), start, len);
            }
            Event::RowPadded { start, len, .. } => self.row(None, start, len),
            Event::RowDrafted { start, len, .. } => {
                self.work = self.work + Work::row(start, len);
                if let Some(row) = self.rows.last_mut() {
                    row.drafts = len;
                }
            }
            Event::DraftsTried { sequence, right, .. } => {
                let track = self.tracks.get_mut(&sequence);
                if let Some(track) = track.filter(|t| t.place == Place::Running) {
                    track.computed = track.computed.saturating_add(right);
                }
            }
            Event::BlocksSwapped { micros, .. } => self.swap_micros = micros,
            Event::KernelTimed { nanos, .. } => {
                self.kernel_nanos = self.kernel_nanos.saturating_add(nanos);
            }
            Event::StepRan { device_micros, plan_micros, build_micros, .. } => {
                // First, so that a step like no other before it is shared by what it shows.
                self.times.observe(self.work, device_micros);
                self.step_ran(now, plan_micros.saturating_add(build_micros), device_micros);
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

    fn account(&mut self, sequence: SequenceId, now: u64, change: impl FnOnce(&mut Track)) {
        if let Some(track) = self.tracks.get_mut(&sequence) {
            track.account(now);
            change(track);
        }
    }

    fn row(&mut self, sequence: Option<SequenceId>, start: u32, len: u32) {
        self.work = self.work + Work::row(start, len);
        self.rows.push(Row { sequence, start, len, drafts: 0, cost: 0 });
    }

    fn step_ran(&mut self, now: u64, host: u64, device: u64) {
        // Kernels that took longer than the step that they are of are a lie of the clock.
        let kernels = match self.kernel_nanos {
            0 => device,
            nanos => (nanos / 1000).min(device),
        };
        let model = self.cost();
        for row in &mut self.rows {
            row.cost = model.marginal(Work::row(row.start, row.len.saturating_add(row.drafts)));
        }
        let all: u128 = self.rows.iter().map(|r| u128::from(r.cost)).sum();
        let total = (u128::from(model.fixed) + all).max(1);
        // Cut down, so that the parts never exceed the whole.
        let share = |cost: u64| (u128::from(kernels) * u128::from(cost) / total) as u64;
        let (mut decode, mut prefill) = (0u64, 0u64);
        for row in &self.rows {
            let kind = if row.len == 1 { &mut decode } else { &mut prefill };
            *kind += share(row.cost);
        }
        // Decode rows of others are many and small: who delays is who has more to do.
        let delays = |row: &&Row| row.len > 1 && row.sequence.is_some();
        let long: Vec<Row> = self.rows.iter().filter(delays).copied().collect();
        for row in &self.rows {
            let Some(sequence) = row.sequence else { continue };
            let Some(track) = self.tracks.get_mut(&sequence) else { continue };
            let began = now.saturating_sub(device).saturating_sub(host);
            track.account(began.max(track.mark));
            let begun = now.saturating_sub(device).max(track.mark);
            let swap = self.swap_micros.min(begun - track.mark);
            track.parts.memory += swap;
            track.parts.scheduling += begun - track.mark - swap;
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
            let readback = scale(device - kernels);
            track.parts.others_decode += decode;
            track.parts.others_prefill += prefill;
            track.parts.readback += readback;
            let own = left - decode - prefill - readback;
            match row.start < track.again {
                true => track.parts.preemption += own,
                false => track.parts.own += own,
            }
            track.computed = row.start.saturating_add(row.len);
            track.starved = false;
            track.mark = now.max(begun);
            for other in &long {
                if let Some(by) = other.sequence.filter(|&by| by != sequence) {
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
        let preempted_for = track.preempted_for.take();
        Some(Gap {
            sequence,
            position,
            from_micros: from,
            micros,
            parts,
            delayed_by,
            preempted_for,
        })
    }
}

impl Track {
    fn arrived(now: u64) -> Self {
        Self {
            place: Place::Queued,
            from: now,
            mark: now,
            again: 0,
            starved: false,
            computed: 0,
            parts: Parts::default(),
            delayed_by: BTreeMap::new(),
            preempted_for: None,
        }
    }

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
