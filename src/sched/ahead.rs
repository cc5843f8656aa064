//! When a step can be planned before the one in flight has been committed without deciding anything
//! else than it would afterwards: only while the same sequences all decode on. Whatever else may
//! have happened by then (an end that is due, somebody who waits, a pool that runs out, padding,
//! guesses) is left to a plan that knows the tokens.

use super::scheduler::Scheduler;
use super::sequence::{Sequence, count};
use crate::base::{Batching, Speculate};

impl Sequence {
    /// Its row in flight gives a token that it goes on from, and that is not its last by count.
    fn decodes_on(&self) -> bool {
        self.flight == 1 && self.pending == 1 && self.missing() == 1 && self.wants_rows()
    }
}

impl Scheduler {
    /// Whether the next plan is known but for its tokens: every sequence that runs decodes one
    /// more, and nothing waits, is forced or lacks a block.
    pub fn may_plan_ahead(&self) -> bool {
        let plain = self.policies.batching == Batching::Continuous
            && self.policies.speculate == Speculate::Off;
        let quiet = self.queue.is_empty() && !self.forced && self.planned == self.committed + 1;
        if !plain || !quiet || self.running.is_empty() {
            return false;
        }
        let running = || self.running.iter().map(|&e| &self.table[e as usize]);
        let grows = |s: &&Sequence| self.limits.blocks_of(s.computed + 1) > count(s.blocks.len());
        running().all(Sequence::decodes_on)
            && count(self.running.len()) <= self.limits.step_tokens_max
            && count(running().filter(grows).count()) <= self.pool.free()
    }
}
