//! Speculative rows: a decode row may go on with tokens that the engine guesses, as far as nobody
//! else wants the budget and the blocks. What of it was right is told by the commit; the rest is
//! computed over by later rows. `computed` counts no guess, so no guess is ever cached, and the
//! blocks taken for guesses that were wrong go back: beyond a commit nothing differs from a
//! sequence that got its tokens one by one.

use super::plan::{Plan, PlanRow};
use super::scheduler::Scheduler;
use super::sequence::{Sequence, count};
use crate::base::{Batching, SequenceId};
use crate::trace::Event;

impl Sequence {
    /// All its tokens are known to the host and all but the last are computed.
    fn is_draftable(&self) -> bool {
        self.missing() == 1 && self.flight == 0 && self.wants_rows()
    }
}

impl Scheduler {
    /// Running sequences whose next row may go on with guesses.
    pub fn draftable(&self) -> impl Iterator<Item = SequenceId> {
        let all = self.running.iter().map(|&e| &self.table[e as usize]);
        all.filter(|s| s.is_draftable()).map(|s| s.id)
    }

    /// So many tokens are guessed to follow those known: good for the next plan alone.
    pub fn offer_drafts(&mut self, id: SequenceId, drafts: u32) {
        if let Some(entry) = self.index.get(id.0) {
            self.table[entry as usize].offered = drafts;
        }
    }

    /// Lengthens decode rows by what is left of budget and blocks once all else is planned.
    pub(super) fn plan_drafts(
        &mut self,
        now_micros: u64,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) {
        for at in 0..plan.rows.len() {
            let PlanRow { sequence, samples, len, pad, .. } = plan.rows[at];
            let Some(entry) = self.index.get(sequence.0).filter(|_| samples && !pad) else {
                continue;
            };
            let offered = std::mem::take(&mut self.table[entry as usize].offered);
            // Padded batches go on in step.
            if len != 1 || offered == 0 || self.policies.batching != Batching::Continuous {
                continue;
            }
            let drafts = self.drafts_that_fit(entry, offered.min(plan.budget - plan.tokens));
            let s = &self.table[entry as usize];
            let needed = self.limits.blocks_of(s.computed + drafts);
            let fresh = needed.saturating_sub(count(s.blocks.len()));
            self.take_blocks(entry, fresh, now_micros, events);
            self.table[entry as usize].drafted = drafts;
            plan.rows[at].drafts = drafts;
            plan.tokens += drafts;
            plan.decode += drafts;
        }
        for &entry in &self.running {
            self.table[entry as usize].offered = 0;
        }
    }

    /// Of `most` guesses, those that the output's limit and the pool leave room for. A block stays
    /// free for each that runs: guesses preempt nobody, not even in a step planned before this one
    /// is committed.
    fn drafts_that_fit(&self, entry: u32, most: u32) -> u32 {
        let s = &self.table[entry as usize];
        // The row gives one token more than it has guesses.
        let wanted = s.max_new - s.generated() - 1;
        let spare = self.pool.free().saturating_sub(count(self.running.len()));
        let places = (count(s.blocks.len()) + spare).saturating_mul(self.limits.block_size);
        most.min(wanted).min(places.saturating_sub(s.computed))
    }

    /// The first `right` guesses of a row were right: their positions are computed.
    pub(super) fn keep_drafts(&mut self, entry: u32, right: u32, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        let drafted = std::mem::take(&mut s.drafted);
        if drafted == 0 || s.ending.is_some() {
            return;
        }
        // Not where it was preempted in between: what it had computed is gone.
        if s.slot.is_some() {
            s.computed += right;
        }
        events.push(Event::DraftsTried { sequence: s.id, drafted, right });
    }

    /// Gives back blocks that only wrong guesses needed.
    pub(super) fn trim_blocks(&mut self, entry: u32, now_micros: u64, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        let from = self.limits.blocks_of(s.computed);
        let extra = count(s.blocks.len()).saturating_sub(from);
        if extra == 0 || s.ending.is_some() {
            return;
        }
        for block in s.blocks.drain(from as usize..).rev() {
            self.pool.release(block, now_micros);
        }
        let free = self.pool.free();
        events.push(Event::BlocksReturned { sequence: s.id, from, count: extra, free });
    }
}
