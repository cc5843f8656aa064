//! Composing a step: rows that need one token first, oldest first, then chunks of longer ones,
//! then, if nobody was preempted, newcomers.

use super::queue::Waiting;
use super::scheduler::Scheduler;
use super::sequence::count;
use crate::base::{BlockId, SequenceId, TokenId};
use crate::trace::{BlockList, Event, FinishReason, PreemptReason};

/// What one step computes. Reused: cleared and filled by [`Scheduler::plan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Counts steps that have rows, from 1.
    pub step: u64,
    /// No row: nothing can be done now, nothing has to be committed.
    pub rows: Vec<PlanRow>,
    /// Positions of all rows.
    pub tokens: u32,
    /// The most that `tokens` could have been.
    pub budget: u32,
    /// Of `tokens`, those in rows of one position.
    pub decode: u32,
    /// Sequences that lost their place for this step.
    pub preempted: u32,
}

/// One sequence's part: positions `start .. start + len`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanRow {
    pub sequence: SequenceId,
    /// The sequence's place, the same in every step until it ends or is preempted.
    pub slot: u32,
    pub start: u32,
    pub len: u32,
    /// The logits of the last position give a new token.
    pub samples: bool,
}

/// The result of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub sequence: SequenceId,
    /// `None` when the row did not sample.
    pub token: Option<TokenId>,
    /// Why it ends now, if it does; the scheduler itself adds `Length`.
    pub finish: Option<FinishReason>,
}

impl Scheduler {
    /// Composes the next step. Whatever is in `plan` is replaced. A plan with rows must be
    /// committed, in order; it may be while the next one is planned already (a row then starts
    /// with a token that only the device knows).
    pub fn plan(&mut self, now_micros: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        self.announce(events);
        plan.rows.clear();
        *plan = Plan {
            rows: std::mem::take(&mut plan.rows),
            budget: self.limits.step_tokens_max,
            ..Plan::default()
        };
        self.plan_decodes(now_micros, plan, events);
        self.plan_chunks(plan);
        if plan.preempted == 0 {
            self.admit(now_micros, plan, events);
        }
        (self.last_tokens, self.last_budget) = (plan.tokens, plan.budget);
        let idle = plan.rows.is_empty();
        self.stuck = idle && !self.queue.is_empty() && self.planned == self.committed;
        if idle {
            return;
        }
        self.planned += 1;
        plan.step = self.planned;
        events.push(Event::StepPlanned {
            step: plan.step,
            rows: count(plan.rows.len()),
            decode: plan.decode,
            tokens: plan.tokens,
            budget: plan.budget,
            waiting: count(self.queue.len()),
            free: self.pool.free(),
        });
        events.extend(plan.rows.iter().map(|r| Event::RowPlanned {
            sequence: r.sequence,
            slot: r.slot,
            start: r.start,
            len: r.len,
            samples: r.samples,
        }));
    }

    /// Sequences that lack one token. Only these grow: the blocks of everything known at
    /// admission were taken then, so a prompt that was started can always go on.
    fn plan_decodes(&mut self, now_micros: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        let mut at = 0;
        while at < self.running.len() && plan.tokens < plan.budget {
            let entry = self.running[at];
            let s = &self.table[entry as usize];
            if s.missing() == 1 && s.wants_rows() && self.grow(at, now_micros, plan, events) {
                self.add_row(entry, 1, plan);
            }
            at += 1;
        }
    }

    /// Sequences that lack several tokens.
    fn plan_chunks(&mut self, plan: &mut Plan) {
        for at in 0..self.running.len() {
            if plan.tokens >= plan.budget {
                return;
            }
            let entry = self.running[at];
            let s = &self.table[entry as usize];
            let missing = s.missing();
            if missing > 1 && s.wants_rows() {
                self.add_row(entry, missing.min(plan.budget - plan.tokens), plan);
            }
        }
    }

    pub(super) fn add_row(&mut self, entry: u32, len: u32, plan: &mut Plan) {
        let s = &mut self.table[entry as usize];
        let start = s.computed;
        s.computed += len;
        let samples = s.missing() == 0;
        s.flight += 1;
        s.pending += u32::from(samples);
        plan.tokens += len;
        plan.decode += u32::from(len == 1);
        // Only running sequences get rows.
        let slot = s.slot.unwrap_or(0);
        plan.rows.push(PlanRow { sequence: s.id, slot, start, len, samples });
    }

    /// Makes room for the next position of the running sequence at `at`; preempts younger ones
    /// if it must, youngest first. When none is left it stands still rather than give up its own
    /// work: the oldest always goes on, and either frees memory or takes this one's.
    fn grow(
        &mut self,
        at: usize,
        now_micros: u64,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) -> bool {
        let entry = self.running[at];
        let s = &self.table[entry as usize];
        let (id, computed) = (s.id, s.computed);
        if self.limits.blocks_of(computed + 1) as usize <= s.blocks.len() {
            return true;
        }
        while self.pool.free() == 0 {
            let younger = self.running[at + 1..].iter().rev();
            let victim = younger.copied().find(|&e| self.table[e as usize].ending.is_none());
            let Some(victim) = victim else {
                events.push(Event::RowDelayed { sequence: id, free: 0 });
                return false;
            };
            self.preempt(victim, id, now_micros, events);
            plan.preempted += 1;
        }
        self.take_blocks(entry, 1, events);
        true
    }

    /// Sends a running sequence back to the queue. It keeps its tokens, produced ones too, and
    /// computes them again when it returns.
    fn preempt(&mut self, entry: u32, gainer: SequenceId, now: u64, events: &mut Vec<Event>) {
        self.leave_place(entry);
        let s = &mut self.table[entry as usize];
        s.preemptions += 1;
        s.waits_since = now;
        events.push(Event::SequencePreempted {
            victim: s.id,
            gainer,
            reason: PreemptReason::OutOfBlocks,
            lost: std::mem::take(&mut s.computed),
            blocks: count(s.blocks.len()),
            times: s.preemptions,
        });
        let order = s.order;
        self.return_blocks(entry, events);
        self.queue.insert(Waiting { order, entry });
    }

    /// Adds `blocks` fresh blocks to a table; the caller has seen that they are free.
    pub(super) fn take_blocks(&mut self, entry: u32, blocks: u32, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        let mut from = count(s.blocks.len());
        let mut list = BlockList::default();
        let free_after = self.pool.free() - blocks;
        for _ in 0..blocks {
            let block: BlockId = self.pool.take().expect("a free block was counted");
            s.blocks.push(block);
            list.push(block);
            if list.is_full() {
                let free = self.pool.free();
                events.push(Event::BlocksTaken { sequence: s.id, from, blocks: list, free });
                from = count(s.blocks.len());
                list = BlockList::default();
            }
        }
        if !list.as_slice().is_empty() {
            let (sequence, free) = (s.id, free_after);
            events.push(Event::BlocksTaken { sequence, from, blocks: list, free });
        }
    }
}
