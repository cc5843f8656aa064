//! The state that a stream of events adds up to: slots, blocks, queue, counters, last step.
//! Plain data: what a viewer draws and what a late reader is given before the stream goes on.

use super::event::{DelayReason, FinishReason};
use crate::base::{BlockHash, BlockId, Limits, Policies, RequestId, SequenceId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything known after an event.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Picture {
    /// `None` until the stream's first event.
    pub limits: Option<Limits>,
    pub policies: Option<Policies>,
    /// The next event's expected place in the stream.
    pub seq: u64,
    pub step: u64,
    pub micros: u64,
    /// Who sits where; as long as the highest slot ever used.
    pub slots: Vec<Option<SequenceId>>,
    pub sequences: BTreeMap<SequenceId, SequencePicture>,
    /// Those that wait, by arrival.
    pub queue: Vec<SequenceId>,
    pub blocks: Vec<BlockPicture>,
    pub counters: Counters,
    pub last_step: StepPicture,
}

impl Picture {
    /// Blocks that no table holds.
    pub fn free_blocks(&self) -> u32 {
        count(self.blocks.iter().filter(|b| b.tables == 0).count())
    }

    /// Of the free blocks, those whose content can be used again.
    pub fn cached_blocks(&self) -> u32 {
        count(self.blocks.iter().filter(|b| b.tables == 0 && b.cached).count())
    }

    /// Blocks that several tables hold.
    pub fn shared_blocks(&self) -> u32 {
        count(self.blocks.iter().filter(|b| b.tables > 1).count())
    }

    pub fn running(&self) -> u32 {
        count(self.slots.iter().flatten().count())
    }

    /// Positions of the block at `index` of a sequence's table that hold computed tokens.
    pub fn filled(&self, sequence: SequenceId, index: u32) -> u32 {
        self.sequences.get(&sequence).map_or(0, |s| self.part(s.computed, index))
    }

    /// The same of a sequence whose blocks lie in host memory.
    pub fn filled_in_host(&self, sequence: SequenceId, index: u32) -> u32 {
        self.sequences.get(&sequence).map_or(0, |s| self.part(s.swapped, index))
    }

    /// Of the first `positions` of a table, those in the block at `index`.
    fn part(&self, positions: u32, index: u32) -> u32 {
        let size = self.limits.map_or(0, |l| l.block_size);
        let before = u64::from(index) * u64::from(size);
        let filled = u64::from(positions).saturating_sub(before);
        u32::try_from(filled.min(u64::from(size))).unwrap_or(0)
    }

    /// What the queue goes by, the lowest first; of equals the one that came first.
    pub fn score(&self, s: &SequencePicture) -> u64 {
        let job = u64::from(s.prompt) + u64::from(s.predicted);
        let context = self.limits.map_or(0, |l| l.context_max);
        self.policies.unwrap_or_default().score(s.arrived_after, s.class, job, context)
    }

    /// The blocks that lie in host memory: whose, and at which index of the table they come back.
    pub fn host_blocks(&self) -> impl Iterator<Item = (SequenceId, u32)> {
        let size = self.limits.map_or(1, |l| l.block_size).max(1);
        self.sequences.iter().flat_map(move |(&id, s)| {
            (s.swapped_expired..s.swapped.div_ceil(size)).map(move |index| (id, index))
        })
    }
}

/// One sequence, waiting or running.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SequencePicture {
    pub request: RequestId,
    /// Place in the order of arrival; kept over preemptions.
    pub order: u64,
    /// `None` while it waits.
    pub slot: Option<u32>,
    pub prompt: u32,
    pub max_new_tokens: u32,
    pub tenant: u32,
    pub class: u8,
    pub predicted: u32,
    /// Tokens that had been processed when it arrived.
    #[serde(default)]
    pub arrived_after: u64,
    /// Why it is next and still waits.
    pub delay: Option<DelayReason>,
    /// Prompt and generated tokens.
    pub known: u32,
    /// Positions whose keys and values are in the cache, or will be when the step has run.
    pub computed: u32,
    /// Positions whose keys and values lie in host memory until it returns, and how many blocks
    /// before them a window had passed by.
    #[serde(default)]
    pub swapped: u32,
    #[serde(default)]
    pub swapped_expired: u32,
    /// Its table; [`BlockId::EXPIRED`] where a window has left a block behind.
    pub blocks: Vec<BlockId>,
    pub preemptions: u32,
    pub arrived_micros: u64,
    pub first_token_micros: Option<u64>,
}

/// One KV block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BlockPicture {
    /// Sequences whose table holds it.
    pub tables: u32,
    /// The last one that took it.
    pub owner: Option<SequenceId>,
    /// Its index in that table.
    pub index: u32,
    /// Its content can be used by sequences that begin alike.
    #[serde(default)]
    pub cached: bool,
    /// What that content is looked up by, where the stream tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<BlockHash>,
}

/// Totals since the stream began.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    pub arrived: u64,
    pub refused: u64,
    pub admitted: u64,
    pub preempted: u64,
    pub delayed: u64,
    /// Rows that were pieces.
    #[serde(default)]
    pub cut: u64,
    pub finished: BTreeMap<FinishReason, u64>,
    pub steps: u64,
    pub decode_tokens: u64,
    pub prefill_tokens: u64,
    pub padding_tokens: u64,
    pub sampled_tokens: u64,
    /// Tokens that decode rows guessed, and those of them that were right.
    #[serde(default)]
    pub drafted_tokens: u64,
    #[serde(default)]
    pub drafts_right: u64,
    pub lost_tokens: u64,
    /// Blocks moved to host memory and back, and the bytes of both.
    #[serde(default)]
    pub swapped_out: u64,
    #[serde(default)]
    pub swapped_in: u64,
    #[serde(default)]
    pub swapped_bytes: u64,
    /// Positions found computed in the prefix cache, and in the table of another sequence of the
    /// request.
    pub matched_tokens: u64,
    #[serde(default)]
    pub shared_tokens: u64,
    #[serde(default)]
    pub blocks_cached: u64,
    #[serde(default)]
    pub blocks_copied: u64,
    #[serde(default)]
    pub blocks_merged: u64,
    #[serde(default)]
    pub blocks_evicted: u64,
    /// Of all evicted blocks together: the time between their last use and their loss.
    #[serde(default)]
    pub evicted_idle_micros: u64,
    pub blocks_taken: u64,
    pub blocks_returned: u64,
    pub events_dropped: u64,
    pub device_micros: u64,
}

/// The latest planned step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StepPicture {
    pub step: u64,
    pub budget: u32,
    pub tokens: u32,
    pub decode: u32,
    pub padding: u32,
    /// Token slots in held blocks that hold no computed token.
    pub unused: u64,
    pub rows: Vec<RowPicture>,
    pub plan_micros: u64,
    pub build_micros: u64,
    /// Zero until it has run.
    pub device_micros: u64,
}

/// One sequence's part of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RowPicture {
    /// `None` for padding of a place that nobody fills.
    pub sequence: Option<SequenceId>,
    pub slot: u32,
    pub start: u32,
    pub len: u32,
    /// Guessed positions after those.
    #[serde(default)]
    pub drafts: u32,
    pub samples: bool,
    pub pad: bool,
}

pub(super) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
