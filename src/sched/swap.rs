//! Swapping: a preempted sequence's blocks go to host memory and come back when it returns, in
//! place of computing it again. Which of the two is chosen per victim, from costs that were
//! measured on the device and arrive as integers. The host's blocks are a bounded pool of their
//! own; when it is full, or a window has passed blocks of the victim by, it is computed again.

use super::plan::Plan;
use super::scheduler::Scheduler;
use super::sequence::count;
use crate::base::{BlockId, Preemption};
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
    /// Moving one block, one way.
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
        let s = &self.table[entry as usize];
        let (tokens, costs) = (u64::from(s.computed), &self.costs);
        let blocks = self.limits.blocks_of(s.computed);
        let pairs = tokens * (tokens + 1) / 2;
        let computing = u128::from(costs.token_picos) * u128::from(tokens)
            + u128::from(costs.pair_picos) * u128::from(pairs);
        let moving = u128::from(costs.block_picos) * u128::from(blocks) * 2;
        let micros = |picos: u128| u64::try_from(picos / 1_000_000).unwrap_or(u64::MAX);
        let host_free = self.free_host_blocks();
        let possible = blocks > 0 && blocks <= host_free && s.expired == 0;
        let swaps = match self.policies.preemption {
            Preemption::Recompute => false,
            Preemption::Swap => possible,
            Preemption::Auto => possible && moving < computing,
        };
        Method {
            method: if swaps { PreemptMethod::Swap } else { PreemptMethod::Recompute },
            recompute_micros: micros(computing),
            swap_micros: micros(moving),
            host_free,
        }
    }

    /// Notes the copies to the host that save what a sequence has computed.
    pub(super) fn swap_out(&mut self, entry: u32, plan: &mut Plan) {
        let s = &mut self.table[entry as usize];
        let blocks = self.limits.blocks_of(s.computed) as usize;
        s.host.reserve(blocks);
        s.swapped = s.computed;
        for &block in &s.blocks[..blocks] {
            // `method_for` has counted them.
            let Some(host) = self.host_free.pop() else { break };
            s.host.push(host);
            plan.swaps_out.push(BlockSwap { block, host });
        }
    }

    /// Notes the copies that bring back what a sequence had computed, into its fresh blocks.
    pub(super) fn swap_in(&mut self, entry: u32, plan: &mut Plan, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        if s.host.is_empty() {
            return;
        }
        let (sequence, tokens) = (s.id, std::mem::take(&mut s.swapped));
        s.computed = tokens;
        if tokens >= s.prompt {
            // There for others of its request from the next step on.
            s.prompt_step = self.planned + 1;
        }
        let blocks = count(s.host.len());
        for (&block, host) in s.blocks.iter().zip(s.host.drain(..)) {
            plan.swaps_in.push(BlockSwap { block, host });
            self.host_free.push(host);
        }
        events.push(Event::SequenceSwappedIn { sequence, blocks, tokens });
    }

    /// Gives up what the host holds of a sequence.
    pub(super) fn forget_host(&mut self, entry: u32) {
        let s = &mut self.table[entry as usize];
        s.swapped = 0;
        self.host_free.append(&mut s.host);
    }
}
