//! Admission: who of the queue gets a slot now.
//!
//! The blocks of everything a sequence knows are taken when it enters, so a prompt that was
//! started can always go on. Beyond that the admission policy decides. The next of the queue may be
//! passed by one that fits, a bounded number of times, and never by another tenant's.

use super::foresee::PREEMPTIONS_MAX;
use super::plan::Plan;
use super::scheduler::Scheduler;
use super::sequence::count;
use super::share::Found;
use crate::base::{Admission, FairUnit, Prefill};
use crate::trace::{DelayReason, Event};

/// How far behind one that does not fit another is looked for.
const LOOK: usize = 8;

/// The numbers an admission was decided on, in blocks, and what need not be computed.
#[derive(Clone, Copy, Default)]
struct Decision {
    /// Those that leave the free list.
    blocks: u32,
    free: u32,
    kept: u32,
    peak: u32,
    passed: u32,
    found: Found,
}

/// Why not.
pub(super) struct Delay {
    pub reason: DelayReason,
    pub needed: u32,
    pub available: u32,
}

impl Scheduler {
    /// Lets in whoever may be, and gives each a row.
    pub(super) fn admit(&mut self, now_micros: u64, plan: &mut Plan, events: &mut Vec<Event>) {
        while plan.tokens < plan.budget {
            let whole = self.policies.prefill == Prefill::PrefillFirst && plan.tokens > 0;
            let room = if whole { plan.budget - plan.tokens } else { u32::MAX };
            let Some(entry) = self.admit_next(now_micros, room, plan, events) else { return };
            self.expire_blocks(entry, now_micros, events);
            let missing = self.table[entry as usize].missing();
            self.add_row(entry, missing.min(plan.budget - plan.tokens), plan, events);
        }
    }

    /// Lets in the next that fits memory and lacks at most `room` tokens.
    pub(super) fn admit_next(
        &mut self,
        now_micros: u64,
        room: u32,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) -> Option<u32> {
        let lane = self.next_lane()?;
        // A step holds at least one token of each, so that nobody starves in a small budget.
        let cap = self.limits.sequences_max.min(self.limits.step_tokens_max);
        let running = count(self.running.len());
        for place in 0..=LOOK {
            let entry = self.queue.get(lane, place)?.entry;
            let fits = if running < cap {
                self.fits(entry)
            } else {
                Err(Delay { reason: DelayReason::Slots, needed: running + 1, available: cap })
            };
            match fits {
                Ok(Decision { found, .. }) if self.lacks(entry, found) > room => {
                    return None;
                }
                Ok(decision) => {
                    for passed in 0..place {
                        let passed = self.queue.get(lane, passed)?.entry;
                        self.table[passed as usize].bypassed += 1;
                    }
                    let decision = Decision { passed: count(place), ..decision };
                    self.enter(entry, now_micros, decision, plan, events);
                    return Some(entry);
                }
                Err(delay) => {
                    let s = &self.table[entry as usize];
                    let last = running >= cap || s.bypassed >= self.policies.bypass_max;
                    if place == 0 {
                        self.tell(entry, delay, events);
                    }
                    if last {
                        return None;
                    }
                }
            }
        }
        None
    }

    fn fits(&mut self, entry: u32) -> Result<Decision, Delay> {
        let s = &self.table[entry as usize];
        let total = self.limits.blocks;
        if s.flight > 0 {
            let reason = DelayReason::InFlight;
            return Err(Delay { reason, needed: s.flight, available: 0 });
        }
        let whole = self.limits.blocks_of(s.known());
        let expired = s.swapped_expired;
        let found = if s.swapped == 0 { self.look_up(entry)? } else { self.find_swapped(entry) };
        let blocks = whole - expired - count(self.found.len()) + found.revived;
        let free = self.pool.free();
        let kept = self.kept();
        if blocks + kept > free {
            let reason = DelayReason::Blocks;
            return Err(Delay { reason, needed: blocks + kept, available: free });
        }
        let peak = self.peak_with(entry);
        if peak > total {
            return Err(Delay { reason: DelayReason::Peak, needed: peak, available: total });
        }
        let protected = self.protected_need(entry);
        if protected > total {
            let reason = DelayReason::Protected;
            return Err(Delay { reason, needed: protected, available: total });
        }
        Ok(Decision { blocks, free, kept, peak, passed: 0, found })
    }

    /// Tokens it has to compute when it enters.
    fn lacks(&self, entry: u32, found: Found) -> u32 {
        let s = &self.table[entry as usize];
        s.known() - found.tokens.max(s.swapped)
    }

    /// Blocks kept free at admission: the watermark's share, rounded up, while something runs.
    fn kept(&self) -> u32 {
        if self.running.is_empty() || self.policies.admission != Admission::Optimistic {
            return 0;
        }
        let share = u64::from(self.limits.blocks) * u64::from(self.limits.watermark_permille);
        u32::try_from(share.div_ceil(1000)).unwrap_or(u32::MAX)
    }

    fn tell(&mut self, entry: u32, delay: Delay, events: &mut Vec<Event>) {
        let s = &self.table[entry as usize];
        let Delay { reason, needed, available } = delay;
        if self.told != Some((s.order, reason)) {
            self.told = Some((s.order, reason));
            let sequence = s.id;
            events.push(Event::AdmissionDelayed { sequence, reason, needed, available });
        }
    }

    fn enter(
        &mut self,
        entry: u32,
        now: u64,
        decision: Decision,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) {
        let guess = self.guess(entry);
        self.leave_place(entry);
        let slot = self.slots.take();
        let s = &mut self.table[entry as usize];
        s.slot = Some(slot);
        s.guess = guess;
        s.bypassed = 0;
        // Now, so that no later step allocates.
        let most = s.full_need(&self.limits) as usize;
        s.blocks.reserve(most.saturating_sub(s.blocks.len()));
        s.hashes.reserve(most.saturating_sub(s.hashes.len()));
        let longest = (s.prompt + s.max_new) as usize;
        s.tokens.reserve_exact(longest.saturating_sub(s.tokens.len()));
        let (sequence, seniority, prompt) = (s.id, s.seniority(), s.prompt);
        let first = !std::mem::replace(&mut s.charged, true);
        let waited_micros = now.saturating_sub(s.waits_since);
        let Decision { blocks, free, kept, peak, passed, found } = decision;
        events.push(Event::SequenceAdmitted {
            sequence,
            slot,
            blocks,
            free,
            kept,
            peak,
            passed,
            waited_micros,
        });
        let tenant = self.table[entry as usize].tenant;
        self.tenants.get_mut(tenant).served_at = self.processed;
        if first {
            let cached = if found.sibling.is_none() { found.tokens } else { 0 };
            self.table[entry as usize].cached = cached;
            self.charge(entry, FairUnit::Requests, 1);
            self.charge(entry, FairUnit::Tokens, u64::from(prompt));
        }
        let at = self.place_among_running(seniority);
        self.running.insert(at, entry);
        self.adopt(entry, found, events);
        self.resume(entry, events);
        self.take_blocks(entry, blocks - found.revived, now, events);
        self.copy_partial(entry, found, plan, events);
        self.swap_in(entry, plan);
    }

    /// True when it has been preempted as often as anyone may be.
    pub(super) fn is_tired(&self, entry: u32) -> bool {
        self.table[entry as usize].preemptions >= PREEMPTIONS_MAX
    }
}
