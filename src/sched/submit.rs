//! How sequences arrive, their place in the queue, and how they are called off.

use super::queue::Waiting;
use super::scheduler::Scheduler;
use super::sequence::{NewSequence, Sequence, count};
use crate::base::{CLASS_MAX, FairUnit, Order, SequenceId};
use crate::trace::{Event, FinishReason, Refusal};

/// A generated token costs this many prompt tokens under fair queueing.
pub(super) const OUTPUT_COST: u64 = 2;

impl Scheduler {
    /// Puts a sequence into the queue, or says why it can never be there or not now.
    pub fn submit(
        &mut self,
        new: NewSequence,
        now_micros: u64,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        self.announce(events);
        let (sequence, request) = (new.sequence, new.request);
        if let Err(refusal) = self.admissible(sequence, new.prompt.len() as u64, new.max_new_tokens)
        {
            events.push(Event::RequestRefused { request, sequence, refusal });
            return Err(refusal);
        }
        let entry = self.vacant.pop().unwrap_or_else(|| {
            self.table.push(Sequence::default());
            count(self.table.len() - 1)
        });
        let tenant = self.tenants.join(new.tenant);
        let prompt = count(new.prompt.len());
        let predicted = new.predicted.unwrap_or_else(|| self.predict(tenant, prompt, 50));
        let s = &mut self.table[entry as usize];
        *s = Sequence {
            id: sequence,
            request,
            prompt,
            tokens: new.prompt,
            max_new: new.max_new_tokens,
            blocks: std::mem::take(&mut s.blocks),
            order: self.arrivals,
            arrived: self.processed,
            class: new.class.min(CLASS_MAX),
            tenant,
            predicted: predicted.clamp(1, new.max_new_tokens),
            foretold: new.predicted,
            waits_since: now_micros,
            tag: new.tag,
            siblings: new.siblings && !new.uncached,
            uncached: new.uncached,
            hashes: std::mem::take(&mut s.hashes),
            ..Sequence::default()
        };
        self.table[entry as usize].hashes.clear();
        self.arrivals += 1;
        let (rank, key) = self.place_of(&self.table[entry as usize]);
        let s = &mut self.table[entry as usize];
        (s.rank, s.key) = (rank, key);
        let (class, predicted) = (s.class, s.predicted);
        self.index.insert(sequence.0, entry);
        self.enqueue(entry);
        events.push(Event::RequestArrived {
            request,
            sequence,
            prompt,
            max_new_tokens: new.max_new_tokens,
            tenant: new.tenant,
            class,
            predicted,
            waiting: count(self.queue.len()),
        });
        Ok(())
    }

    fn admissible(&self, id: SequenceId, prompt: u64, max_new: u32) -> Result<(), Refusal> {
        if prompt == 0 || max_new == 0 {
            return Err(Refusal::Empty);
        }
        if self.index.get(id.0).is_some() || id.0 == u32::MAX {
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
        now_micros: u64,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(entry) = self.index.get(id.0) else { return false };
        let s = &mut self.table[entry as usize];
        if s.flight > 0 {
            s.ending.get_or_insert(reason);
        } else {
            self.end(entry, reason, now_micros, events);
        }
        true
    }

    /// Output tokens that `percent` of such requests did not exceed: by tenant, else by length
    /// of the prompt, else unknown, which counts as the longest.
    pub(super) fn predict(&self, tenant: u32, prompt: u32, percent: u32) -> u32 {
        let own = self.tenants.get(tenant).lengths.quantile(percent);
        own.or_else(|| self.lengths.quantile(prompt, percent)).unwrap_or(u32::MAX)
    }

    /// Rank and key of a sequence under the policies in force.
    pub(super) fn place_of(&self, s: &Sequence) -> (u64, u64) {
        let job = u64::from(s.prompt) + u64::from(s.predicted);
        let key = self.policies.score(s.arrived, s.class, job, self.limits.context_max);
        let rank = if self.policies.order == Order::Priority { key } else { 0 };
        (rank, key)
    }

    fn lane_of(&self, entry: u32) -> u32 {
        match self.policies.order {
            Order::Fair { .. } => self.table[entry as usize].tenant,
            _ => 0,
        }
    }

    pub(super) fn enqueue(&mut self, entry: u32) {
        let lane = self.lane_of(entry);
        let s = &self.table[entry as usize];
        let waiting = Waiting { key: s.key, order: s.order, entry };
        if matches!(self.policies.order, Order::Fair { .. }) && self.queue.get(lane, 0).is_none() {
            let active = self.queue.heads().map(|(l, _)| self.tenants.get(l).counter).min();
            let floor = active.unwrap_or(self.tenants.last_left);
            let tenant = self.tenants.get_mut(lane);
            tenant.counter = tenant.counter.max(floor);
        }
        self.queue.insert(lane, waiting);
    }

    pub(super) fn dequeue(&mut self, entry: u32) {
        let lane = self.lane_of(entry);
        let s = &self.table[entry as usize];
        self.queue.remove(lane, Waiting { key: s.key, order: s.order, entry });
        if matches!(self.policies.order, Order::Fair { .. }) && self.queue.get(lane, 0).is_none() {
            self.tenants.last_left = self.tenants.get(lane).counter;
        }
    }

    /// The lane whose turn it is: of the tenant that waited unserved for too long, else of the
    /// one served least.
    pub(super) fn next_lane(&self) -> Option<u32> {
        let Order::Fair { .. } = self.policies.order else {
            return (!self.queue.is_empty()).then_some(0);
        };
        let turn = |&(lane, head): &(u32, Waiting)| {
            let tenant = self.tenants.get(lane);
            let since = head.key.max(tenant.served_at);
            let patient = self.policies.aging.is_none_or(|a| self.processed - since <= a);
            (patient, if patient { tenant.counter } else { since }, head.order)
        };
        self.queue.heads().min_by_key(turn).map(|(lane, _)| lane)
    }

    /// Counts service to the tenant of `entry`, if it is given in the unit that counts.
    pub(super) fn charge(&mut self, entry: u32, unit: FairUnit, service: u64) {
        if self.policies.order == (Order::Fair { unit }) {
            self.tenants.charge(self.table[entry as usize].tenant, service);
        }
    }

    /// A tenant's counter, in 65536ths of the unit over its weight; `None` while unknown.
    pub fn served(&self, tenant: u32) -> Option<u64> {
        self.tenants.find(tenant).map(|t| t.counter)
    }
}
