//! Composing a step. Chunked: rows that need one token first, the most senior first, then pieces
//! of longer ones, then, if nobody was preempted, newcomers. The other prefill policies take the
//! same parts in another order.

use super::scheduler::Scheduler;
use super::sequence::count;
use super::swap::{BlockSwap, Method};
use crate::base::{Batching, BlockId, FairUnit, Prefill, SequenceId, TokenId, Victim};
use crate::trace::{BlockList, Event, EvictReason, FinishReason, PreemptMethod, PreemptReason};

/// Steps in a row that prompts may take while something decodes, under `PrefillFirst`.
const PUT_OFF_MAX: u32 = 16;

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
    /// Of `tokens`, those in rows of one known position, and what they guess.
    pub decode: u32,
    /// Of `tokens`, those of padding.
    pub padding: u32,
    /// Blocks to be saved to host memory before anything of this step runs, rows or none.
    pub swaps_out: Vec<BlockSwap>,
    /// Blocks to be brought back before the rows run. Never in a step that saves some.
    pub swaps_in: Vec<BlockSwap>,
    /// Sequences that lost their place for this step.
    pub preempted: u32,
    /// Done before any row reads or writes.
    pub copies: Vec<BlockCopy>,
}

/// A whole block whose content a sequence goes on from in a block of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    pub from: BlockId,
    pub to: BlockId,
}

/// One sequence's part: positions `start .. start + len`, and `drafts` more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanRow {
    pub sequence: SequenceId,
    /// The sequence's place, the same in every step until it ends or is preempted.
    pub slot: u32,
    pub start: u32,
    pub len: u32,
    /// Positions after those whose tokens are guesses. Each is sampled from too, so that the row
    /// gives one token, and one more for each guess that was right.
    pub drafts: u32,
    /// The logits of the last position give a new token.
    pub samples: bool,
    /// Computed for nothing, into a scratch block; its outcome is ignored. `sequence` may have
    /// ended, or is `u32::MAX`.
    pub pad: bool,
}

impl PlanRow {
    /// Positions it computes.
    pub fn tokens(&self) -> u32 {
        self.len + self.drafts
    }
}

/// Why somebody is preempted, and out of how many.
#[derive(Clone, Copy)]
struct Cause {
    gainer: SequenceId,
    reason: PreemptReason,
    juniors: u32,
}

/// The result of one row, or one of several in their order where guesses were right.
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
        let mut rows = std::mem::take(&mut plan.rows);
        let mut copies = std::mem::take(&mut plan.copies);
        rows.clear();
        copies.clear();
        let mut swaps_out = std::mem::take(&mut plan.swaps_out);
        let mut swaps_in = std::mem::take(&mut plan.swaps_in);
        swaps_out.clear();
        swaps_in.clear();
        let budget = self.step_budget();
        *plan = Plan { rows, copies, swaps_out, swaps_in, budget, ..Plan::default() };
        self.held_until = None;
        self.retract(now_micros, plan, events);
        match (self.policies.batching, self.policies.prefill) {
            (Batching::Continuous, Prefill::Chunked) => {
                self.plan_decodes(now_micros, plan, events);
                self.plan_prompts(now_micros, plan, events);
            }
            (Batching::Continuous, Prefill::DecodeFirst) => {
                self.plan_decodes(now_micros, plan, events);
                if plan.rows.is_empty() {
                    self.plan_prompts(now_micros, plan, events);
                }
            }
            (Batching::Continuous, Prefill::PrefillFirst) => {
                self.plan_prompts_first(now_micros, plan, events);
            }
            _ => self.plan_batch(now_micros, plan, events),
        }
        self.plan_drafts(now_micros, plan, events);
        self.seal(plan, events);
    }

    fn step_budget(&self) -> u32 {
        let most = self.limits.step_tokens_max;
        self.budget.map_or(most, |b| b.max(count(self.running.len())).clamp(1, most))
    }

    /// Counts the step and tells of it.
    fn seal(&mut self, plan: &mut Plan, events: &mut Vec<Event>) {
        (self.last_tokens, self.last_budget) = (plan.tokens, plan.budget);
        self.processed += u64::from(plan.tokens);
        let idle = plan.rows.is_empty();
        let waits = !self.queue.is_empty() && self.held_until.is_none();
        let idle_for_a_reason = plan.preempted > 0 || self.planned != self.committed;
        self.stuck = idle && waits && !idle_for_a_reason;
        if idle {
            debug_assert!(plan.copies.is_empty(), "a copy for nobody");
            return;
        }
        self.planned += 1;
        plan.step = self.planned;
        events.push(Event::StepPlanned {
            step: plan.step,
            rows: count(plan.rows.len()),
            decode: plan.decode,
            tokens: plan.tokens,
            padding: plan.padding,
            budget: plan.budget,
            waiting: count(self.queue.len()),
            free: self.pool.free(),
            unused: self.slots_unused(),
        });
        for &PlanRow { sequence, slot, start, len, drafts, samples, pad } in &plan.rows {
            if pad {
                let sequence = (sequence.0 != u32::MAX).then_some(sequence);
                events.push(Event::RowPadded { sequence, slot, start, len });
                continue;
            }
            events.push(Event::RowPlanned { sequence, slot, start, len, samples });
            if drafts > 0 {
                events.push(Event::RowDrafted { sequence, start: start + len, len: drafts });
            }
            if !samples {
                let left = self.index.get(sequence.0).map(|e| self.table[e as usize].missing());
                let (wanted, given) = (len + left.unwrap_or(0), len);
                events.push(Event::RowCut { sequence, wanted, given, budget: plan.budget });
            }
        }
    }

    /// Pieces of prompts that have begun, then newcomers.
    fn plan_prompts(&mut self, now_micros: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        self.plan_chunks(now_micros, plan, events);
        if plan.preempted == 0 {
            self.admit(now_micros, plan, events);
        }
    }

    /// Prompts by themselves while there are any. Decoding is put off for a bounded number of
    /// steps: short requests that keep coming must not hold it up for ever.
    fn plan_prompts_first(&mut self, now_micros: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        let patient = self.put_off < PUT_OFF_MAX;
        if patient {
            self.plan_prompts(now_micros, plan, events);
        }
        if !plan.rows.is_empty() {
            self.put_off += 1;
            return;
        }
        self.put_off = 0;
        self.plan_decodes(now_micros, plan, events);
        if plan.rows.is_empty() && !patient {
            self.plan_prompts(now_micros, plan, events);
        }
    }

    /// Sequences that lack one token. Only these grow: the blocks of everything known at
    /// admission were taken then, so a prompt that was started can always go on.
    pub(super) fn plan_decodes(
        &mut self,
        now_micros: u64,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) {
        let mut at = 0;
        while at < self.running.len() && plan.tokens < plan.budget {
            let entry = self.running[at];
            let s = &self.table[entry as usize];
            if s.missing() == 1 && s.wants_rows() && self.grow(at, now_micros, plan, events) {
                self.add_row(entry, 1, plan, events);
            }
            at += 1;
        }
    }

    /// Sequences that lack several tokens.
    pub(super) fn plan_chunks(
        &mut self,
        now_micros: u64,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) {
        for at in 0..self.running.len() {
            if plan.tokens >= plan.budget {
                return;
            }
            let entry = self.running[at];
            let s = &self.table[entry as usize];
            let missing = s.missing();
            if missing > 1 && s.wants_rows() {
                self.expire_blocks(entry, now_micros, events);
                self.add_row(entry, missing.min(plan.budget - plan.tokens), plan, events);
            }
        }
    }

    pub(super) fn add_row(
        &mut self,
        entry: u32,
        len: u32,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) {
        let s = &mut self.table[entry as usize];
        let start = s.computed;
        s.computed += len;
        s.ahead += u32::from(s.computed > count(s.tokens.len()));
        let samples = s.missing() == 0;
        s.flight += 1;
        s.stepped = self.planned + 1;
        if s.prompt_step == 0 && s.computed >= s.prompt {
            s.prompt_step = s.stepped;
        }
        s.pending += u32::from(samples);
        plan.tokens += len;
        plan.decode += u32::from(len == 1);
        // Only running sequences get rows.
        let slot = s.slot.unwrap_or(0);
        let sequence = s.id;
        plan.rows.push(PlanRow { sequence, slot, start, len, drafts: 0, samples, pad: false });
        self.publish(entry, None, events);
    }

    /// Makes room for the next position of the running sequence at `at`; preempts juniors if it
    /// must. When none is left it stands still rather than give up its own work: the most senior
    /// always goes on, and either frees memory or takes this one's.
    fn grow(
        &mut self,
        at: usize,
        now_micros: u64,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) -> bool {
        let entry = self.running[at];
        self.expire_blocks(entry, now_micros, events);
        let s = &self.table[entry as usize];
        let (id, computed) = (s.id, s.computed);
        if self.limits.blocks_of(computed + 1) as usize <= s.blocks.len() {
            return true;
        }
        while self.pool.free() == 0 {
            let Some(victim) = self.victim(at) else {
                events.push(Event::RowDelayed { sequence: id, free: 0 });
                return false;
            };
            let juniors = count(self.running.len() - 1 - at);
            let reason = PreemptReason::OutOfBlocks;
            let cause = Cause { gainer: id, reason, juniors };
            self.preempt(victim, cause, now_micros, plan, events);
            plan.preempted += 1;
        }
        self.take_blocks(entry, 1, now_micros, events);
        true
    }

    /// Who gives way to the running sequence at `at`: a junior of it, and of everybody who was
    /// preempted too often already. (Only a change of policies can leave no other.)
    fn victim(&self, at: usize) -> Option<u32> {
        let tired = self.running.iter().rposition(|&e| self.is_tired(e)).unwrap_or(0);
        self.victim_after(at.max(tired)).or_else(|| self.victim_after(at))
    }

    fn victim_after(&self, at: usize) -> Option<u32> {
        let juniors = self.running[at + 1..].iter().copied().rev();
        let mut juniors = juniors.filter(|&e| self.table[e as usize].ending.is_none());
        match self.policies.victim {
            Victim::Youngest => juniors.next(),
            Victim::LeastLost => juniors.min_by_key(|&e| self.table[e as usize].computed),
            Victim::MostBlocks => {
                // The first of equals, which is the youngest.
                juniors.min_by_key(|&e| u32::MAX - self.table[e as usize].held_blocks())
            }
        }
    }

    /// Counts measured device time to the tenants of a plan's rows, by tokens. For fair
    /// queueing by time; called before the plan is committed.
    pub fn charge_time(&mut self, plan: &Plan, device_micros: u64) {
        for row in plan.rows.iter().filter(|r| !r.pad) {
            if let Some(entry) = self.index.get(row.sequence.0) {
                let part = device_micros.saturating_mul(u64::from(row.tokens()));
                self.charge(entry, FairUnit::Time, part / u64::from(plan.tokens.max(1)));
            }
        }
    }

    /// Preempts the youngest when somebody has asked for it.
    fn retract(&mut self, now: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        if !std::mem::take(&mut self.forced) {
            return;
        }
        let mut running = self.running.iter().rev();
        let youngest = running.find(|&&e| self.table[e as usize].ending.is_none());
        if let Some(&entry) = youngest {
            let gainer = self.table[entry as usize].id;
            let cause = Cause { gainer, reason: PreemptReason::Forced, juniors: 0 };
            self.preempt(entry, cause, now, plan, events);
            plan.preempted += 1;
        }
    }

    /// Sends a running sequence back to the queue. It keeps its tokens, produced ones too, and
    /// computes them again when it returns, or what it has computed goes to host memory.
    fn preempt(
        &mut self,
        entry: u32,
        cause: Cause,
        now: u64,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) {
        self.leave_place(entry);
        let Method { method, recompute_micros, swap_micros, host_free } = self.method_for(entry);
        let swaps = method == PreemptMethod::Swap;
        let policy = self.policies.victim;
        let Cause { gainer, reason, juniors } = cause;
        let s = &mut self.table[entry as usize];
        s.preemptions += u32::from(reason == PreemptReason::OutOfBlocks);
        s.waits_since = now;
        s.offered = 0;
        events.push(Event::SequencePreempted {
            victim: s.id,
            gainer,
            reason,
            policy,
            juniors,
            method,
            recompute_micros,
            swap_micros,
            host_free,
            lost: if swaps { 0 } else { s.computed },
            blocks: s.held_blocks(),
            times: s.preemptions,
        });
        if swaps {
            self.swap_out(entry, plan);
        }
        self.return_blocks(entry, now, events);
        self.enqueue(entry);
    }

    /// Adds `blocks` fresh blocks to a table; the caller has seen that they are free.
    pub(super) fn take_blocks(
        &mut self,
        entry: u32,
        blocks: u32,
        now_micros: u64,
        events: &mut Vec<Event>,
    ) {
        let s = &mut self.table[entry as usize];
        let mut from = count(s.blocks.len());
        let mut list = BlockList::default();
        let free_after = self.pool.free() - blocks;
        for _ in 0..blocks {
            let taken = self.pool.take(now_micros).expect("a free block was counted");
            let block: BlockId = taken.block;
            if let Some(idle_micros) = taken.evicted {
                let reason = EvictReason::OutOfBlocks;
                events.push(Event::BlockEvicted { block, reason, idle_micros });
            }
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
