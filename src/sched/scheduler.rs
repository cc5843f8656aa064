//! The scheduler's state, and how sequences come into it and leave it.

use super::index::Index;
use super::pool::BlockPool;
use super::queue::{Queue, Waiting};
use super::sequence::{NewSequence, Sequence, count};
use super::slots::Slots;
use crate::base::{BlockId, Limits, SequenceId, TokenId};
use crate::trace::{Event, FinishReason, LimitsReason, Refusal};

/// Continuous batching over a paged cache.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(super) limits: Limits,
    pub(super) pool: BlockPool,
    pub(super) slots: Slots,
    pub(super) index: Index,
    /// The sequence table; entries in `vacant` are free.
    pub(super) table: Vec<Sequence>,
    pub(super) vacant: Vec<u32>,
    pub(super) queue: Queue,
    /// Entries of running sequences, oldest first.
    pub(super) running: Vec<u32>,
    pub(super) arrivals: u64,
    /// The last planned step and the last committed one.
    pub(super) planned: u64,
    pub(super) committed: u64,
    /// Tokens and budget of the last plan, for `check`.
    pub(super) last_tokens: u32,
    pub(super) last_budget: u32,
    /// The last plan had no row although something waited, and nothing was in flight.
    pub(super) stuck: bool,
    announced: bool,
}

/// The pool and the positions in it are fixed while an engine lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{field}` is fixed at start: {now} cannot become {asked} without a new engine")]
pub struct LimitsFixed {
    pub field: &'static str,
    pub now: u32,
    pub asked: u32,
}

impl Scheduler {
    pub fn new(limits: Limits) -> Self {
        let limits = usable(limits);
        Self {
            limits,
            pool: BlockPool::new(limits.blocks),
            slots: Slots::default(),
            index: Index::default(),
            table: Vec::new(),
            vacant: Vec::new(),
            queue: Queue::default(),
            running: Vec::new(),
            arrivals: 0,
            planned: 0,
            committed: 0,
            last_tokens: 0,
            last_budget: limits.step_tokens_max,
            stuck: false,
            announced: false,
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes budget, sequence cap, queue bound or watermark from the next plan on.
    pub fn set_limits(
        &mut self,
        limits: Limits,
        events: &mut Vec<Event>,
    ) -> Result<(), LimitsFixed> {
        let limits = usable(limits);
        for (field, now, asked) in [
            ("blocks", self.limits.blocks, limits.blocks),
            ("block_size", self.limits.block_size, limits.block_size),
            ("context_max", self.limits.context_max, limits.context_max),
        ] {
            if now != asked {
                return Err(LimitsFixed { field, now, asked });
            }
        }
        self.announce(events);
        self.limits = limits;
        events.push(Event::LimitsChanged { limits, reason: LimitsReason::Asked });
        Ok(())
    }

    /// A stream explains itself: its first event holds the limits.
    pub(super) fn announce(&mut self, events: &mut Vec<Event>) {
        if !self.announced {
            self.announced = true;
            events.push(Event::LimitsChanged { limits: self.limits, reason: LimitsReason::Start });
        }
    }

    /// The most tokens that can be generated after a prompt of `prompt` tokens; what a request
    /// that names no maximum should ask for.
    pub fn longest_output(&self, prompt: u32) -> u32 {
        // The last token is sampled but never computed, so it needs no place in the pool.
        let pool = self.limits.pool_tokens() + 1;
        let most = pool.min(u64::from(self.limits.context_max));
        u32::try_from(most.saturating_sub(u64::from(prompt))).unwrap_or(u32::MAX)
    }

    /// Puts a sequence into the queue, or says why it can never be there or not now.
    pub fn submit(
        &mut self,
        new: NewSequence,
        now_micros: u64,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        self.announce(events);
        let NewSequence { sequence, request, prompt, max_new_tokens } = new;
        if let Err(refusal) = self.admissible(sequence, prompt.len() as u64, max_new_tokens) {
            events.push(Event::RequestRefused { request, sequence, refusal });
            return Err(refusal);
        }
        let entry = self.vacant.pop().unwrap_or_else(|| {
            self.table.push(Sequence::default());
            count(self.table.len() - 1)
        });
        let order = self.arrivals;
        self.arrivals += 1;
        let s = &mut self.table[entry as usize];
        let blocks = std::mem::take(&mut s.blocks);
        *s = Sequence {
            id: sequence,
            request,
            prompt: count(prompt.len()),
            tokens: prompt,
            max_new: max_new_tokens,
            blocks,
            order,
            waits_since: now_micros,
            ..Sequence::default()
        };
        let prompt = s.prompt;
        self.index.insert(sequence, entry);
        self.queue.insert(Waiting { order, entry });
        let waiting = count(self.queue.len());
        events.push(Event::RequestArrived { request, sequence, prompt, max_new_tokens, waiting });
        Ok(())
    }

    fn admissible(&self, id: SequenceId, prompt: u64, max_new: u32) -> Result<(), Refusal> {
        if prompt == 0 || max_new == 0 {
            return Err(Refusal::Empty);
        }
        if self.index.get(id).is_some() {
            return Err(Refusal::Repeated { sequence: id });
        }
        let needed = prompt.saturating_add(u64::from(max_new));
        let context = self.limits.context_max;
        if needed > u64::from(context) {
            return Err(Refusal::TooLong { needed, context });
        }
        let blocks_needed = (needed - 1).div_ceil(u64::from(self.limits.block_size));
        let blocks_total = self.limits.blocks;
        if blocks_needed > u64::from(blocks_total) {
            return Err(Refusal::NeverFits { blocks_needed, blocks_total });
        }
        let (waiting, max) = (count(self.queue.len()), self.limits.queue_max);
        if waiting >= max {
            return Err(Refusal::Full { waiting, max });
        }
        Ok(())
    }

    /// Ends a sequence wherever it is. Its blocks are free on return, or, when the plan in
    /// flight computes it, once that plan is committed. False when the id is unknown.
    pub fn cancel(&mut self, id: SequenceId, now_micros: u64, events: &mut Vec<Event>) -> bool {
        self.finish(id, FinishReason::Cancelled, now_micros, events)
    }

    /// [`Scheduler::cancel`] with a reason.
    pub fn finish(
        &mut self,
        id: SequenceId,
        reason: FinishReason,
        _now_micros: u64,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(entry) = self.index.get(id) else { return false };
        let s = &mut self.table[entry as usize];
        if s.flight > 0 {
            s.ending.get_or_insert(reason);
        } else {
            self.end(entry, reason, events);
        }
        true
    }

    /// The tokens of a sequence that the host knows; empty when the id is unknown.
    pub fn tokens(&self, id: SequenceId) -> &[TokenId] {
        self.index.get(id).map_or(&[], |entry| &self.table[entry as usize].tokens)
    }

    /// The block table of a sequence; empty while it waits.
    pub fn blocks(&self, id: SequenceId) -> &[BlockId] {
        self.index.get(id).map_or(&[], |entry| &self.table[entry as usize].blocks)
    }

    pub fn waiting(&self) -> u32 {
        count(self.queue.len())
    }

    pub fn running(&self) -> u32 {
        count(self.running.len())
    }

    pub fn free_blocks(&self) -> u32 {
        self.pool.free()
    }

    /// True when nothing waits, runs or is in flight.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty() && self.planned == self.committed
    }

    /// Takes a sequence out of everything. Nothing of it may be in flight.
    pub(super) fn end(&mut self, entry: u32, reason: FinishReason, events: &mut Vec<Event>) {
        self.return_blocks(entry, events);
        self.leave_place(entry);
        let s = &mut self.table[entry as usize];
        events.push(Event::SequenceFinished {
            sequence: s.id,
            request: s.request,
            reason,
            prompt: s.prompt,
            generated: s.generated(),
        });
        s.tokens = Vec::new();
        self.index.remove(s.id);
        self.vacant.push(entry);
    }

    /// Out of the running list and its slot, or out of the queue.
    pub(super) fn leave_place(&mut self, entry: u32) {
        let s = &mut self.table[entry as usize];
        let order = s.order;
        match s.slot.take() {
            Some(slot) => {
                self.slots.release(slot);
                let at = self.seniority(order);
                self.running.remove(at);
            }
            None => self.queue.remove(Waiting { order, entry }),
        }
    }

    /// Where a sequence of this order is, or would be, in the running list.
    pub(super) fn seniority(&self, order: u64) -> usize {
        self.running.partition_point(|&e| self.table[e as usize].order < order)
    }

    /// Frees the whole table, its tail first, so that a chain's head stays longest.
    pub(super) fn return_blocks(&mut self, entry: u32, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        let count = count(s.blocks.len());
        while let Some(block) = s.blocks.pop() {
            self.pool.release(block);
        }
        if count > 0 {
            let free = self.pool.free();
            events.push(Event::BlocksReturned { sequence: s.id, from: 0, count, free });
        }
    }
}

/// Limits no plan could work with become the smallest that one can.
fn usable(limits: Limits) -> Limits {
    Limits {
        sequences_max: limits.sequences_max.max(1),
        step_tokens_max: limits.step_tokens_max.max(1),
        block_size: limits.block_size.max(1),
        ..limits
    }
}
