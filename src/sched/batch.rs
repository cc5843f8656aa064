//! Request-level batching, for comparison: sequences start together and nobody joins before the
//! last has ended. Prompts are padded to the longest, a place whose sequence has ended (or, with a
//! fixed size, never had one) is computed as padding. Padding is marked in the plan, never
//! sampled, and has no block of the pool: the engine gives it a scratch block.

use super::plan::{Plan, PlanRow};
use super::scheduler::Scheduler;
use super::sequence::count;
use crate::base::{Batching, SequenceId};
use crate::trace::Event;

/// A place in the batch.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Who started here; `u32::MAX` for nobody.
    sequence: SequenceId,
    slot: u32,
    /// Tokens known at the start: its part of the padded prompts.
    known: u32,
}

/// The batch that runs, if one does.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    places: Vec<Place>,
    /// Positions computed in every place, real or padded.
    position: u32,
}

impl Batch {
    pub fn clear(&mut self) {
        self.places.clear();
        self.position = 0;
    }
}

impl Scheduler {
    pub(super) fn plan_batch(&mut self, now_micros: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        let places = count(self.batch.places.len());
        let seated = (0..self.batch.places.len()).any(|p| self.seated(p).is_some());
        // A budget lowered below the batch's size ends the padding, not the sequences.
        if !seated || plan.budget < places {
            self.batch.clear();
        }
        if self.batch.places.is_empty() {
            if !self.running.is_empty() {
                self.plan_decodes(now_micros, plan, events);
                self.plan_chunks(now_micros, plan, events);
                return;
            }
            if plan.preempted > 0 || !self.is_due(now_micros) {
                return;
            }
            self.form_batch(now_micros, plan, events);
        }
        let seated = (0..self.batch.places.len()).filter(|&p| self.seated(p).is_some());
        let longest = seated.map(|p| self.batch.places[p].known).max().unwrap_or(0);
        if self.batch.position < longest {
            self.plan_padded_prompts(longest, plan, events);
        } else {
            self.plan_decodes(now_micros, plan, events);
            self.pad_decodes(plan);
        }
    }

    /// The entry of the sequence that still runs in a place.
    fn seated(&self, place: usize) -> Option<u32> {
        let Place { sequence, slot, .. } = self.batch.places[place];
        let entry = self.index.get(sequence.0)?;
        (self.table[entry as usize].slot == Some(slot)).then_some(entry)
    }

    /// True when a batch may start; otherwise notes until when it is held.
    fn is_due(&mut self, now_micros: u64) -> bool {
        let Batching::Dynamic { size, timeout_ms } = self.policies.batching else {
            return !self.queue.is_empty();
        };
        if count(self.queue.len()) >= size {
            return true;
        }
        let arrived = self.queue.iter().map(|w| self.table[w.entry as usize].waits_since).min();
        let Some(arrived) = arrived else { return false };
        let due = arrived.saturating_add(u64::from(timeout_ms) * 1000);
        self.held_until = Some(due).filter(|&due| due > now_micros);
        self.held_until.is_none()
    }

    fn form_batch(&mut self, now_micros: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        let (size, fixed) = match self.policies.batching {
            Batching::Static { size } => (size, true),
            Batching::Dynamic { size, .. } => (size, false),
            Batching::Continuous => return,
        };
        // Every place computes at least one position a step.
        let size = size.min(self.limits.sequences_max).min(plan.budget) as usize;
        while self.batch.places.len() < size {
            let next = self.admit_next(now_micros, u32::MAX, plan, events);
            let Some(entry) = next else { break };
            let s = &self.table[entry as usize];
            let (sequence, slot, known) = (s.id, s.slot.unwrap_or(0), s.known());
            self.batch.places.push(Place { sequence, slot, known });
        }
        let filled = self.batch.places.len();
        if fixed && filled > 0 {
            for _ in filled..size {
                let (sequence, slot) = (SequenceId(u32::MAX), self.slots.take());
                self.batch.places.push(Place { sequence, slot, known: 0 });
            }
            // Nobody else takes a slot before the batch ends.
            (filled..size).for_each(|p| self.slots.release(self.batch.places[p].slot));
        }
    }

    /// The next piece of every prompt, equally long in every place.
    fn plan_padded_prompts(&mut self, longest: u32, plan: &mut Plan, events: &mut Vec<Event>) {
        // What all have found computed already is not computed as padding either.
        let behind = (0..self.batch.places.len()).filter_map(|p| {
            let s = &self.table[self.seated(p)? as usize];
            (s.wants_rows() && s.computed < self.batch.places[p].known).then_some(s.computed)
        });
        let position = self.batch.position.max(behind.min().unwrap_or(0));
        let share = plan.budget / count(self.batch.places.len());
        let end = longest.min(position.saturating_add(share));
        for p in 0..self.batch.places.len() {
            let place = self.batch.places[p];
            let mut padded_from = position;
            if let Some(entry) = self.seated(p) {
                let s = &self.table[entry as usize];
                let to = end.min(place.known);
                if s.wants_rows() && to > s.computed {
                    self.add_row(entry, to - s.computed, plan, events);
                    padded_from = to;
                }
            }
            if end > padded_from {
                add_padding(place, padded_from, end - padded_from, plan);
            }
        }
        self.batch.position = end;
        drop_mere_padding(plan);
    }

    /// One position of padding for every place that has no row.
    fn pad_decodes(&mut self, plan: &mut Plan) {
        let last = self.limits.context_max.saturating_sub(1);
        let start = self.batch.position.min(last);
        for p in 0..self.batch.places.len() {
            let stepped = self.seated(p).map(|entry| self.table[entry as usize].stepped);
            if stepped != Some(self.planned + 1) && plan.tokens < plan.budget {
                add_padding(self.batch.places[p], start, 1, plan);
            }
        }
        self.batch.position = self.batch.position.saturating_add(1);
        drop_mere_padding(plan);
    }
}

fn add_padding(place: Place, start: u32, len: u32, plan: &mut Plan) {
    plan.tokens += len;
    plan.padding += len;
    let (sequence, slot) = (place.sequence, place.slot);
    plan.rows.push(PlanRow { sequence, slot, start, len, pad: true, ..PlanRow::default() });
}

/// A step of padding alone would serve nobody.
fn drop_mere_padding(plan: &mut Plan) {
    if plan.tokens == plan.padding {
        plan.rows.clear();
        (plan.tokens, plan.padding) = (0, 0);
    }
}
