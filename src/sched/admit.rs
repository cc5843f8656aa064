//! Admission: who of the queue gets a slot now.
//!
//! Optimistic: the blocks of everything known must be free, and while something runs a share of the
//! pool must stay free beyond them (the watermark). The head of the queue is never passed over.

use super::plan::Plan;
use super::scheduler::Scheduler;
use super::sequence::count;
use crate::trace::Event;

/// A sequence that was preempted this often returns only when everything it and its seniors can
/// still need fits the pool, so that it is never preempted again.
const PREEMPTIONS_MAX: u32 = 3;

impl Scheduler {
    pub(super) fn admit(&mut self, now_micros: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        // A step holds at least one token of each, so that nobody starves in a small budget.
        let cap = self.limits.sequences_max.min(self.limits.step_tokens_max);
        while plan.tokens < plan.budget && count(self.running.len()) < cap {
            let Some(entry) = self.queue.head() else { return };
            let s = &self.table[entry as usize];
            let (known, missing, flight) = (s.known(), s.missing(), s.flight);
            let blocks = self.limits.blocks_of(known);
            let (free, kept) = (self.pool.free(), self.kept());
            // It was preempted out of a step that is not committed: what comes of it is unknown.
            if flight > 0 || blocks + kept > free || !self.secure(entry) {
                return;
            }
            self.enter(entry, now_micros, (blocks, free, kept), events);
            self.add_row(entry, missing.min(plan.budget - plan.tokens), plan);
        }
    }

    /// Blocks kept free at admission: the watermark's share, rounded up, while something runs.
    fn kept(&self) -> u32 {
        if self.running.is_empty() {
            return 0;
        }
        let share = u64::from(self.limits.blocks) * u64::from(self.limits.watermark_permille);
        count(usize::try_from(share.div_ceil(1000)).unwrap_or(usize::MAX))
    }

    /// False when admitting `entry` could cost one its place that was preempted too often.
    ///
    /// Take the youngest of those: it and all its seniors must together fit the pool at their
    /// longest. Then whatever one of them lacks is free or held by a younger one, which is
    /// preempted first.
    fn secure(&self, entry: u32) -> bool {
        let order = |e: u32| self.table[e as usize].order;
        let tired = |e: u32| self.table[e as usize].preemptions >= PREEMPTIONS_MAX;
        let running = self.running.iter().copied();
        let youngest = running.clone().chain([entry]).filter(|&e| tired(e)).map(order).max();
        let Some(youngest) = youngest.filter(|&y| order(entry) <= y) else { return true };
        let seniors = running.filter(|&e| order(e) <= youngest).chain([entry]);
        let need = |e: u32| u64::from(self.table[e as usize].full_need(&self.limits));
        seniors.map(need).sum::<u64>() <= u64::from(self.limits.blocks)
    }

    fn enter(
        &mut self,
        entry: u32,
        now: u64,
        (blocks, free, kept): (u32, u32, u32),
        events: &mut Vec<Event>,
    ) {
        self.leave_place(entry);
        let slot = self.slots.take();
        let s = &mut self.table[entry as usize];
        s.slot = Some(slot);
        // Now, so that no later step allocates.
        let most = s.full_need(&self.limits) as usize;
        s.blocks.reserve(most.saturating_sub(s.blocks.len()));
        let longest = (s.prompt + s.max_new) as usize;
        s.tokens.reserve_exact(longest.saturating_sub(s.tokens.len()));
        let (sequence, order) = (s.id, s.order);
        let waited_micros = now.saturating_sub(s.waits_since);
        events.push(Event::SequenceAdmitted { sequence, slot, blocks, free, kept, waited_micros });
        let at = self.seniority(order);
        self.running.insert(at, entry);
        self.take_blocks(entry, blocks, events);
    }
}
