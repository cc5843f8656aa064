//! The scheduler's state, its settings, and how a sequence leaves its place.

use super::batch::Batch;
use super::index::Index;
use super::lengths::Lengths;
use super::pool::BlockPool;
use super::queue::Queue;
use super::sequence::{Sequence, count};
use super::slots::Slots;
use super::swap::WorkCosts;
use super::tenants::Tenants;
use crate::base::{BlockId, Limits, Order, Policies, SequenceId, TokenId};
use crate::trace::{DelayReason, Event, FinishReason, LimitsReason};

/// Batching over a paged cache.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(super) limits: Limits,
    pub(super) policies: Policies,
    /// Tokens a step may have, where something aims lower than the limits.
    pub(super) budget: Option<u32>,
    pub(super) pool: BlockPool,
    /// Host blocks that hold nothing.
    pub(super) host_free: Vec<u32>,
    pub(super) costs: WorkCosts,
    pub(super) slots: Slots,
    pub(super) index: Index,
    /// The sequence table; entries in `vacant` are free.
    pub(super) table: Vec<Sequence>,
    pub(super) vacant: Vec<u32>,
    pub(super) queue: Queue,
    pub(super) tenants: Tenants,
    pub(super) lengths: Lengths,
    /// Entries of running sequences, the most senior first.
    pub(super) running: Vec<u32>,
    pub(super) batch: Batch,
    pub(super) arrivals: u64,
    /// Tokens of all steps planned so far: the time that aging counts in.
    pub(super) processed: u64,
    /// The last planned step and the last committed one.
    pub(super) planned: u64,
    pub(super) committed: u64,
    /// Steps in a row that made decoding wait for prompts.
    pub(super) put_off: u32,
    /// Tokens and budget of the last plan, for `check`.
    pub(super) last_tokens: u32,
    pub(super) last_budget: u32,
    /// The last plan had no row although something waited, and nothing was in flight.
    pub(super) stuck: bool,
    /// A batch is being filled until then.
    pub(super) held_until: Option<u64>,
    /// The next plan preempts the youngest.
    pub(super) forced: bool,
    /// The last delay told, so that it is told once.
    pub(super) told: Option<(u64, DelayReason)>,
    /// Reused by the look ahead at memory: (tokens still to come, tokens held).
    pub(super) ahead: Vec<(u32, u32)>,
    /// Reused by admission: the blocks found computed already.
    pub(super) found: Vec<BlockId>,
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

impl LimitsFixed {
    /// Whether an engine with the limits `now` can go on with `asked`.
    pub fn check(now: &Limits, asked: &Limits) -> Result<(), Self> {
        for (field, now, asked) in [
            ("blocks", now.blocks, asked.blocks),
            ("block_size", now.block_size, asked.block_size),
            ("context_max", now.context_max, asked.context_max),
            ("host_blocks", now.host_blocks, asked.host_blocks),
            ("window", now.window.unwrap_or(0), asked.window.unwrap_or(0)),
        ] {
            if now != asked {
                return Err(Self { field, now, asked });
            }
        }
        Ok(())
    }
}

impl Scheduler {
    pub fn new(limits: Limits) -> Self {
        Self::with_policies(limits, Policies::default())
    }

    pub fn with_policies(limits: Limits, policies: Policies) -> Self {
        let limits = usable(limits);
        Self {
            limits,
            policies,
            budget: None,
            pool: BlockPool::new(limits.blocks, limits.block_size),
            host_free: (0..limits.host_blocks).rev().collect(),
            costs: WorkCosts::default(),
            slots: Slots::default(),
            index: Index::default(),
            table: Vec::new(),
            vacant: Vec::new(),
            queue: Queue::default(),
            tenants: Tenants::default(),
            lengths: Lengths::default(),
            running: Vec::new(),
            batch: Batch::default(),
            arrivals: 0,
            processed: 0,
            planned: 0,
            committed: 0,
            put_off: 0,
            last_tokens: 0,
            last_budget: limits.step_tokens_max,
            stuck: false,
            held_until: None,
            forced: false,
            told: None,
            ahead: Vec::new(),
            found: Vec::new(),
            announced: false,
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Changes budget, sequence cap, queue bound or watermark from the next plan on.
    pub fn set_limits(
        &mut self,
        limits: Limits,
        events: &mut Vec<Event>,
    ) -> Result<(), LimitsFixed> {
        let limits = usable(limits);
        LimitsFixed::check(&self.limits, &limits)?;
        self.announce(events);
        self.limits = limits;
        events.push(Event::LimitsChanged { limits, reason: LimitsReason::Asked });
        Ok(())
    }

    /// Changes policies from the next plan on; whoever waits or runs is placed anew. A batch
    /// that runs goes on without its padding when batching changes.
    pub fn set_policies(&mut self, policies: Policies, events: &mut Vec<Event>) {
        self.announce(events);
        let old = std::mem::replace(&mut self.policies, policies);
        events.push(Event::PoliciesChanged { policies, reason: LimitsReason::Asked });
        if old.batching != policies.batching {
            self.batch.clear();
        }
        if matches!(policies.order, Order::Fair { .. }) && old.order != policies.order {
            self.tenants.reset();
        }
        let waiting: Vec<u32> = self.queue.iter().map(|w| w.entry).collect();
        self.queue.clear();
        for &entry in self.running.iter().chain(&waiting) {
            let (rank, key) = self.place_of(&self.table[entry as usize]);
            (self.table[entry as usize].rank, self.table[entry as usize].key) = (rank, key);
        }
        waiting.into_iter().for_each(|entry| self.enqueue(entry));
        let table = &self.table;
        self.running.sort_unstable_by_key(|&e| table[e as usize].seniority());
        self.told = None;
    }

    /// Lowers the tokens of a step below the limit, for a target of step time. Never below one
    /// for each that runs, so that a target slows everybody and starves nobody.
    pub fn set_step_budget(&mut self, tokens: Option<u32>) {
        self.budget = tokens;
    }

    /// The next plan preempts the youngest that runs, needed or not: what an operator may ask for,
    /// and how tests retract at will.
    pub fn force_preemption(&mut self) {
        self.forced = true;
    }

    /// Where the sequences that run stand, the most senior first: the position that each computes
    /// next, and how many it lacks.
    pub fn backlog(&self) -> impl Iterator<Item = (u32, u32)> + Clone {
        let running = self.running.iter().map(|&e| &self.table[e as usize]);
        running.filter(|s| s.wants_rows()).map(|s| (s.computed, s.missing()))
    }

    /// True once a sequence was let in, be it preempted since.
    pub fn was_admitted(&self, id: SequenceId) -> bool {
        self.index.get(id.0).is_some_and(|entry| self.table[entry as usize].charged)
    }

    /// A tenant's share under fair queueing, relative to 1.
    pub fn set_weight(&mut self, tenant: u32, weight: u32) {
        self.tenants.set_weight(tenant, weight);
    }

    /// When a plan would have rows although nothing arrives: the time at which a batch that is
    /// being filled starts anyway.
    pub fn wake_at(&self) -> Option<u64> {
        self.held_until
    }

    /// A stream explains itself: its first events hold limits and policies.
    pub fn announce(&mut self, events: &mut Vec<Event>) {
        if !self.announced {
            self.announced = true;
            let reason = LimitsReason::Start;
            events.push(Event::LimitsChanged { limits: self.limits, reason });
            events.push(Event::PoliciesChanged { policies: self.policies, reason });
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

    /// The tokens of a sequence that the host knows; empty when the id is unknown.
    pub fn tokens(&self, id: SequenceId) -> &[TokenId] {
        self.index.get(id.0).map_or(&[], |entry| &self.table[entry as usize].tokens)
    }

    /// The block table of a sequence; empty while it waits.
    pub fn blocks(&self, id: SequenceId) -> &[BlockId] {
        self.index.get(id.0).map_or(&[], |entry| &self.table[entry as usize].blocks)
    }

    /// Tokens of a sequence's prompt that were in the prefix cache when it was first let in.
    pub fn cached_tokens(&self, id: SequenceId) -> u32 {
        self.index.get(id.0).map_or(0, |entry| self.table[entry as usize].cached)
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

    /// Of the free blocks, those whose content can be used again.
    pub fn cached_blocks(&self) -> u32 {
        self.pool.cached()
    }

    /// Blocks that several sequences hold.
    pub fn shared_blocks(&self) -> u32 {
        self.pool.shared()
    }

    /// Narrows the prefix index's hashes to `bits`, so that a test can see collisions.
    ///
    /// # Panics
    /// When something ran already.
    pub fn narrow_hashes(&mut self, bits: u32) {
        self.pool.index.narrow(bits);
    }

    /// Token slots in the blocks of running sequences that hold a computed token, or will when
    /// the planned steps have run. What sequences share counts once for each.
    pub fn slots_used(&self) -> u64 {
        let size = self.limits.block_size;
        let used = |&e: &u32| {
            let s = &self.table[e as usize];
            u64::from(s.computed.saturating_sub(s.expired * size))
        };
        self.running.iter().map(used).sum()
    }

    /// The other slots of those blocks: what paging wastes.
    pub fn slots_unused(&self) -> u64 {
        let held = |&e: &u32| u64::from(self.table[e as usize].held_blocks());
        let held: u64 = self.running.iter().map(held).sum();
        (held * u64::from(self.limits.block_size)).saturating_sub(self.slots_used())
    }

    /// True when nothing waits, runs or is in flight.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty() && self.planned == self.committed
    }

    /// Takes a sequence out of everything. Nothing of it may be in flight.
    pub(super) fn end(
        &mut self,
        entry: u32,
        reason: FinishReason,
        now_micros: u64,
        events: &mut Vec<Event>,
    ) {
        if reason == FinishReason::Failed {
            self.distrust(entry, events);
        }
        self.return_blocks(entry, now_micros, events);
        self.forget_host(entry);
        self.leave_place(entry);
        let s = &mut self.table[entry as usize];
        let (id, tenant, prompt, generated) = (s.id, s.tenant, s.prompt, s.generated());
        s.tokens = Vec::new();
        events.push(Event::SequenceFinished {
            sequence: id,
            request: s.request,
            reason,
            prompt,
            generated,
        });
        // What generates nothing, such as a prompt that is only scored, says nothing of lengths.
        if matches!(reason, FinishReason::Stop | FinishReason::Length) && generated > 0 {
            self.lengths.observe(prompt, generated);
            self.tenants.get_mut(tenant).lengths.observe(generated);
        }
        self.tenants.leave(tenant);
        self.index.remove(id.0);
        self.vacant.push(entry);
    }

    /// Out of the running list and its slot, or out of the queue.
    pub(super) fn leave_place(&mut self, entry: u32) {
        let s = &mut self.table[entry as usize];
        let seniority = s.seniority();
        match s.slot.take() {
            Some(slot) => {
                self.slots.release(slot);
                let at = self.place_among_running(seniority);
                self.running.remove(at);
            }
            None => self.dequeue(entry),
        }
    }

    /// Where a sequence of this seniority is, or would be, in the running list.
    pub(super) fn place_among_running(&self, seniority: (u64, u64)) -> usize {
        self.running.partition_point(|&e| self.table[e as usize].seniority() < seniority)
    }

    /// Frees the whole table, its tail first, so that a chain's head stays longest.
    pub(super) fn return_blocks(&mut self, entry: u32, now_micros: u64, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        let from = s.expired;
        let count = count(s.blocks.len()) - from;
        while let Some(block) = s.blocks.pop().filter(|b| *b != BlockId::EXPIRED) {
            self.pool.release(block, now_micros);
        }
        s.blocks.clear();
        s.forget_blocks();
        if count + from > 0 {
            let free = self.pool.free();
            events.push(Event::BlocksReturned { sequence: s.id, from, count, free });
        }
    }

    /// Frees the blocks that lie before every window of the next position to be computed. Called
    /// before that position is planned: rows planned earlier may still read them, on a device
    /// that runs steps in order.
    pub(super) fn expire_blocks(&mut self, entry: u32, now_micros: u64, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        let (from, to) = (s.expired, self.limits.expired_blocks(s.computed));
        if to <= from {
            return;
        }
        for block in s.blocks[from as usize..to as usize].iter_mut().rev() {
            self.pool.release(std::mem::replace(block, BlockId::EXPIRED), now_micros);
        }
        s.expired = to;
        let (free, count) = (self.pool.free(), to - from);
        events.push(Event::BlocksExpired { sequence: s.id, from, count, free });
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
