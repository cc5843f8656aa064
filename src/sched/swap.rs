//! Swapping: a preempted sequence's blocks go to host memory and come back when it returns, in
//! place of computing it again. Which of the two is chosen per victim, from costs that were
//! measured on the device and arrive as integers. The host's blocks are a bounded pool of their
//! own; a victim that it has no room for is computed again. What the prefix cache still holds when
//! the sequence returns is shared as ever, and not moved.

use super::plan::Plan;
use super::scheduler::Scheduler;
use super::sequence::{Sequence, count};
use super::share::Found;
use crate::base::{BlockId, Preemption, PrefixCache};
use crate::trace::{Event, PreemptMethod};

/// A block of the pool and the host block that takes or gives its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSwap {
    pub block: BlockId,
    pub host: u32,
}

/// What work costs, as measured.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WorkCosts {
    /// Computing one token, and reading one key for it.
    pub token_picos: u64,
    pub pair_picos: u64,
    /// Moving one block, one way; 0 while unknown, and `auto` then moves none.
    pub block_picos: u64,
}

/// How somebody is preempted, and what either way was taken to cost.
#[derive(Clone, Copy)]
pub(super) struct Method {
    pub method: PreemptMethod,
    pub recompute_micros: u64,
    pub swap_micros: u64,
    pub host_free: u32,
}

impl Scheduler {
    /// Measured costs, by which `auto` chooses from the next preemption on.
    pub fn set_costs(&mut self, costs: WorkCosts) {
        self.costs = costs;
    }

    /// Host blocks that hold nothing.
    pub fn free_host_blocks(&self) -> u32 {
        count(self.host_free.len())
    }

    pub(super) fn method_for(&self, entry: u32) -> Method {
        let (s, costs) = (&self.table[entry as usize], &self.costs);
        let blocks = self.limits.blocks_of(s.computed) - s.expired;
        // What others hold stays there, and need be neither computed again nor brought back.
        let kept = self.blocks_kept_by_others(s);
        let first = kept * self.limits.block_size;
        let tokens = s.computed - first;
        let computing = u128::from(costs.token_picos) * u128::from(tokens)
            + u128::from(costs.pair_picos) * (self.pairs(s.computed) - self.pairs(first));
        let moving = u128::from(costs.block_picos) * u128::from(blocks * 2 - kept);
        let micros = |picos: u128| u64::try_from(picos / 1_000_000).unwrap_or(u64::MAX);
        let host_free = self.free_host_blocks();
        let possible = blocks > 0 && blocks <= host_free;
        let swaps = match self.policies.preemption {
            Preemption::Recompute => false,
            Preemption::Swap => possible,
            Preemption::Auto => possible && costs.block_picos > 0 && moving < computing,
        };
        Method {
            method: if swaps { PreemptMethod::Swap } else { PreemptMethod::Recompute },
            recompute_micros: micros(computing),
            swap_micros: micros(moving),
            host_free,
        }
    }

    /// Full blocks at the head of a table that other running sequences hold too.
    fn blocks_kept_by_others(&self, s: &Sequence) -> u32 {
        if self.policies.prefix_cache == PrefixCache::Off {
            return 0;
        }
        let published = s.blocks.iter().take(s.published as usize);
        let held = |b: &&BlockId| **b != BlockId::EXPIRED && self.pool.tables(**b) > 1;
        count(published.take_while(held).count())
    }

    /// Keys that the first `tokens` positions read, one after the other.
    fn pairs(&self, tokens: u32) -> u128 {
        let seen = u128::from(tokens.min(self.limits.window.unwrap_or(u32::MAX)));
        seen * (seen + 1) / 2 + (u128::from(tokens) - seen) * seen
    }

    /// Notes the copies to the host that save what a sequence has computed.
    pub(super) fn swap_out(&mut self, entry: u32, plan: &mut Plan) {
        let s = &mut self.table[entry as usize];
        let blocks = self.limits.blocks_of(s.computed) as usize;
        (s.swapped, s.swapped_expired) = (s.computed, s.expired);
        let held = &s.blocks[s.expired as usize..blocks];
        s.host.reserve(held.len());
        for &block in held {
            // `method_for` has counted them.
            let Some(host) = self.host_free.pop() else { break };
            s.host.push(host);
            plan.swaps_out.push(BlockSwap { block, host });
        }
    }

    /// What a sequence whose blocks are in host memory finds when it returns: what is cached of
    /// it or, where a window has passed its first blocks by, nothing but that.
    pub(super) fn find_swapped(&mut self, entry: u32) -> Found {
        match self.table[entry as usize].swapped_expired {
            0 => self.find_prefix(entry),
            _ => {
                self.found.clear();
                Found::default()
            }
        }
    }

    /// Takes up where a sequence stood before it was preempted; the blocks that it takes next are
    /// for what the host holds.
    pub(super) fn resume(&mut self, entry: u32, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        if s.swapped <= s.computed {
            // Nothing was swapped, or the cache has more.
            return self.forget_host(entry);
        }
        let expired = std::mem::take(&mut s.swapped_expired);
        s.expired += expired;
        s.blocks.resize(s.blocks.len() + expired as usize, BlockId::EXPIRED);
        s.computed = std::mem::take(&mut s.swapped);
        if s.computed >= s.prompt {
            // There for others of its request from the next step on.
            s.prompt_step = self.planned + 1;
        }
        let (sequence, tokens) = (s.id, s.computed);
        let blocks = count(s.host.len()) - s.matched;
        events.push(Event::SequenceSwappedIn { sequence, expired, blocks, tokens });
    }

    /// Notes the copies that bring back what the host holds and no shared block does.
    pub(super) fn swap_in(&mut self, entry: u32, plan: &mut Plan) {
        let s = &mut self.table[entry as usize];
        let (first, matched) = (s.expired as usize, s.matched as usize);
        for (at, host) in (first..).zip(s.host.drain(..)) {
            if at >= matched {
                plan.swaps_in.push(BlockSwap { block: s.blocks[at], host });
            }
            self.host_free.push(host);
        }
    }

    /// Gives up what the host holds of a sequence.
    pub(super) fn forget_host(&mut self, entry: u32) {
        let s = &mut self.table[entry as usize];
        (s.swapped, s.swapped_expired) = (0, 0);
        self.host_free.append(&mut s.host);
    }
}
