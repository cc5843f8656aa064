//! One sequence: its tokens, its block table, and how far each has come.

use super::prefix::{ROOT, Tag};
use crate::base::{BlockId, Limits, RequestId, SequenceId, TokenId};
use crate::trace::FinishReason;

/// What is asked for. Build it with [`NewSequence::new`]; fields may be added.
#[derive(Clone, Debug, Default)]
pub struct NewSequence {
    /// Chosen by the caller, unique among those alive; `u32::MAX` is never one.
    pub sequence: SequenceId,
    pub request: RequestId,
    pub prompt: Vec<TokenId>,
    pub max_new_tokens: u32,
    /// Whom it is for.
    pub tenant: u32,
    /// Priority, 0 first; values above [`crate::base::CLASS_MAX`] count as that.
    pub class: u8,
    /// Output length, where the caller knows better than the scheduler's own record.
    pub predicted: Option<u32>,
    /// Sequences with other tags never share blocks through the prefix cache.
    pub tag: Tag,
    /// Every position is to be computed, whatever is cached: something is asked about each.
    pub uncached: bool,
    /// The request has further sequences with the same prompt, which share its blocks.
    pub siblings: bool,
}

impl NewSequence {
    pub fn new(
        sequence: SequenceId,
        request: RequestId,
        prompt: Vec<TokenId>,
        max_new_tokens: u32,
    ) -> Self {
        Self { sequence, request, prompt, max_new_tokens, ..Self::default() }
    }
}

/// An entry of the sequence table. A free entry keeps its block table's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    pub id: SequenceId,
    pub request: RequestId,
    /// Prompt and generated tokens the host knows.
    pub tokens: Vec<TokenId>,
    pub prompt: u32,
    pub max_new: u32,
    /// Positions in the cache, those of rows in flight included.
    pub computed: u32,
    /// Rows planned and not committed.
    pub flight: u32,
    /// Of those, rows that sample: tokens that so far only the device knows.
    pub pending: u32,
    /// Of those in flight, the newest rows that start with a token that only the device knew.
    pub ahead: u32,
    /// Guesses offered for the next plan, and those of a row in flight.
    pub offered: u32,
    pub drafted: u32,
    /// The last step that had a row of it.
    pub stepped: u64,
    /// Of `expired` at the front, none is held any more.
    pub blocks: Vec<BlockId>,
    pub expired: u32,
    /// Host blocks that hold what it computed before it was preempted, how many positions that is,
    /// and how many blocks before them a window had passed by.
    pub host: Vec<u32>,
    pub swapped: u32,
    pub swapped_expired: u32,
    /// `None` while it waits.
    pub slot: Option<u32>,
    /// Set when it must end as soon as nothing of it is in flight.
    pub ending: Option<FinishReason>,
    /// Place in the order of arrival.
    pub order: u64,
    /// Tokens that had been processed when it arrived: what aging counts from.
    pub arrived: u64,
    pub class: u8,
    /// With `order`, its seniority while it runs: seniors are served first and never preempted
    /// by juniors. Zero unless classes count.
    pub rank: u64,
    /// With `order`, its place in the queue.
    pub key: u64,
    /// Place in the tenant table.
    pub tenant: u32,
    /// Its prompt has been charged to the tenant.
    pub charged: bool,
    /// Expected output, for the order of the queue.
    pub predicted: u32,
    /// Output that the caller foretold.
    pub foretold: Option<u32>,
    /// Output it was admitted with, where that was estimated.
    pub guess: u32,
    pub preemptions: u32,
    /// Others let in before it because it did not fit.
    pub bypassed: u32,
    /// When it arrived or was preempted.
    pub waits_since: u64,
    pub tag: Tag,
    pub siblings: bool,
    pub uncached: bool,
    /// Hashes of the chain, block by block, as far as they were asked for.
    pub hashes: Vec<u64>,
    /// Blocks at the table's head that the prefix index knows, and the number of their last.
    pub published: u32,
    pub number: u64,
    /// Of those, blocks that others computed.
    pub matched: u32,
    /// Tokens found in the prefix cache when it was first let in.
    pub cached: u32,
    /// The step that computed the prompt's last token; 0 before.
    pub prompt_step: u64,
}

impl Sequence {
    /// Tokens that exist, those only the device knows included.
    pub fn known(&self) -> u32 {
        count(self.tokens.len()) + self.pending
    }

    /// Tokens that are known and not computed: what the next rows have to do.
    pub fn missing(&self) -> u32 {
        self.known() - self.computed
    }

    pub fn held_blocks(&self) -> u32 {
        count(self.blocks.len()) - self.expired
    }

    pub fn generated(&self) -> u32 {
        count(self.tokens.len()) - self.prompt
    }

    /// Nothing of it is in the pool any more.
    pub fn forget_blocks(&mut self) {
        (self.computed, self.expired, self.matched, self.ahead) = (0, 0, 0, 0);
        (self.published, self.number, self.prompt_step) = (0, ROOT, 0);
    }

    /// False when it ends anyway once what is in flight has been committed, and while only the
    /// commit of guesses tells where it goes on.
    pub fn wants_rows(&self) -> bool {
        self.ending.is_none() && self.drafted == 0 && self.generated() + self.pending < self.max_new
    }

    /// Blocks it holds when its last token is sampled; that token itself is never computed.
    pub fn full_need(&self, limits: &Limits) -> u32 {
        limits.blocks_of(self.prompt + self.max_new - 1)
    }

    pub fn seniority(&self) -> (u64, u64) {
        (self.rank, self.order)
    }
}

/// Lengths are bounded by the context, a u32; `submit` has checked them.
pub(super) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
