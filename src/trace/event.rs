//! The facts. Plain data without heap use in everything a step emits, so that a step can be
//! traced without allocating: lists of blocks come in pieces of at most [`BlockList::MAX`].

use super::asked::Asked;
use super::list::{BlockList, HashList};
use crate::base::{
    BlockId, Limits, Policies, RequestId, SequenceId, TokenId, Victim, counted, form,
};
use serde::{Deserialize, Serialize};

/// An event with its place in the stream. `seq` counts up by one: a gap is a loss.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stamped {
    pub seq: u64,
    /// The step being planned or run when it was stamped.
    pub step: u64,
    /// Microseconds of the engine's clock.
    pub micros: u64,
    pub event: Event,
}

/// One fact. New variants only; a reader maps those it does not know to [`Event::Unknown`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Event {
    /// The limits in force from here on; the first event of a scheduler's stream.
    LimitsChanged { limits: Limits, reason: LimitsReason },
    /// The policies in force from here on.
    PoliciesChanged { policies: Policies, reason: LimitsReason },
    /// A tenant has this share under fair queueing from here on, relative to 1.
    TenantWeighted { tenant: u32, weight: u32 },
    /// What a request asked for; just before its sequences arrive or are refused, and only where
    /// requests are recorded. `sequence` is its first.
    RequestAsked { request: RequestId, sequence: SequenceId, asked: Box<Asked> },
    /// The next tokens of the prompt of a request just asked.
    PromptGiven { request: RequestId, tokens: Vec<TokenId> },
    /// A sequence joined the queue.
    RequestArrived {
        request: RequestId,
        sequence: SequenceId,
        prompt: u32,
        max_new_tokens: u32,
        tenant: u32,
        class: u8,
        /// Output tokens it is expected to make.
        predicted: u32,
        waiting: u32,
    },
    /// A sequence was turned away; it never joins the queue.
    RequestRefused { request: RequestId, sequence: SequenceId, refusal: Refusal },
    /// A sequence got a slot. Decided on: `blocks` needed, `free` before, `kept` by the watermark;
    /// `peak`, the blocks that all which run are foreseen to need (0 where nothing is foreseen).
    SequenceAdmitted {
        sequence: SequenceId,
        slot: u32,
        blocks: u32,
        free: u32,
        kept: u32,
        peak: u32,
        /// Others of the queue, ahead of it, that it passed because they did not fit.
        passed: u32,
        /// Since it arrived or was preempted.
        waited_micros: u64,
    },
    /// The next of the queue has to wait, for the first time for this reason: `needed` of what
    /// the reason names, `available` of it.
    AdmissionDelayed { sequence: SequenceId, reason: DelayReason, needed: u32, available: u32 },
    /// The first `tokens` positions were found computed already, in shared blocks; these are the
    /// last of them.
    PrefixMatched { sequence: SequenceId, blocks: BlockList, tokens: u32 },
    /// The same, found in the table of another sequence of the request. A last block that is not
    /// full follows as [`Event::BlockCopied`]; `tokens` counts it.
    PromptShared { sequence: SequenceId, sibling: SequenceId, blocks: BlockList, tokens: u32 },
    /// What `from` holds, of which `tokens` positions count, goes into `to` at the start of the
    /// step; the sequence took `to` just before.
    BlockCopied { sequence: SequenceId, from: BlockId, to: BlockId, tokens: u32 },
    /// `count` full blocks of the sequence's table, from index `from` on, can be used by others
    /// from here on, and when they are free too.
    BlocksCached { sequence: SequenceId, from: u32, count: u32 },
    /// What blocks that were just cached are looked up by, from index `from` of the table on.
    BlocksHashed { sequence: SequenceId, from: u32, hashes: HashList },
    /// The block at `index` of the sequence's table holds what the cached block `to` holds, and
    /// made way for it.
    BlockMerged { sequence: SequenceId, index: u32, from: BlockId, to: BlockId },
    /// The content of a cached block, unused for `idle_micros`, is lost.
    BlockEvicted { block: BlockId, reason: EvictReason, idle_micros: u64 },
    /// Fresh blocks were put at the end of the sequence's table, from index `from` on.
    BlocksTaken { sequence: SequenceId, from: u32, blocks: BlockList, free: u32 },
    /// `count` entries of the sequence's table, from index `from` on, were given back.
    BlocksReturned { sequence: SequenceId, from: u32, count: u32, free: u32 },
    /// `count` entries of the table, from index `from` on, were given back because no layer's
    /// window reaches them any more; the table keeps its length.
    BlocksExpired { sequence: SequenceId, from: u32, count: u32, free: u32 },
    /// A step was composed; its rows follow as [`Event::RowPlanned`].
    StepPlanned {
        step: u64,
        rows: u32,
        /// Of `tokens`, those of rows that compute one known position, guesses included.
        decode: u32,
        tokens: u32,
        /// Of `tokens`, those of padding.
        padding: u32,
        budget: u32,
        waiting: u32,
        free: u32,
        /// Token slots in the blocks of running sequences that hold no computed token, this
        /// step's included.
        #[serde(default)]
        unused: u64,
    },
    /// One sequence's part of the step: positions `start .. start + len`.
    RowPlanned { sequence: SequenceId, slot: u32, start: u32, len: u32, samples: bool },
    /// The row just planned goes on with `len` tokens that are guessed, from position `start` on.
    RowDrafted { sequence: SequenceId, start: u32, len: u32 },
    /// The row just planned is a piece: `wanted` positions are known, `given` fit the step, of
    /// whose `budget` the other rows take the rest (a padded batch shares it equally).
    RowCut { sequence: SequenceId, wanted: u32, given: u32, budget: u32 },
    /// A step may have `budget` tokens from here on, so that it keeps to the target: predicted
    /// from `fixed_micros` a step, `token_nanos` a token and `pair_picos` a pair of query and key,
    /// with `slack_permille` for errors. `decode` tokens come first whatever they take.
    BudgetChosen {
        budget: u32,
        decode: u32,
        target_micros: u32,
        predicted_micros: u64,
        fixed_micros: u64,
        token_nanos: u64,
        pair_picos: u64,
        slack_permille: u32,
    },
    /// Positions computed for nothing: the rest of a shorter prompt, or a place of a batch that
    /// nobody fills (`sequence` is the one that did, if any).
    RowPadded { sequence: Option<SequenceId>, slot: u32, start: u32, len: u32 },
    /// A running sequence got no row: no block was free and every younger one was gone already.
    RowDelayed { sequence: SequenceId, free: u32 },
    /// The device finished the step.
    StepRan { step: u64, plan_micros: u64, build_micros: u64, device_micros: u64 },
    /// The step just told of was planned and built while the one before it ran on the device, from
    /// `began_micros` on; its rows start from tokens that only the device knew. A stream tells such
    /// a step after that one has come back, and with that time. What it took then lies within that
    /// one's time: its own [`Event::StepRan`] says 0 of it.
    StepAhead { step: u64, began_micros: u64, plan_micros: u64, build_micros: u64 },
    /// What the sequence's row of this step computed counts for nothing: the token that it started
    /// from turned out to be the sequence's last, for this reason.
    RowDiscarded { sequence: SequenceId, start: u32, len: u32, reason: FinishReason },
    /// Of the `drafted` guesses of the sequence's row the first `right` were, and their positions
    /// are computed; the tokens follow.
    DraftsTried { sequence: SequenceId, drafted: u32, right: u32 },
    /// The token at `position` of the sequence became known.
    TokenSampled { sequence: SequenceId, position: u32, token: TokenId },
    /// `victim` lost its slot and its blocks, `lost` computed tokens with them (none if they went
    /// to host memory). It was chosen by
    /// `policy` from `juniors` that run and came after the gainer (by itself when forced).
    SequencePreempted {
        victim: SequenceId,
        gainer: SequenceId,
        reason: PreemptReason,
        #[serde(default = "youngest")]
        policy: Victim,
        #[serde(default)]
        juniors: u32,
        /// What became of what it had computed, what either way was taken to cost, and how many
        /// blocks of host memory were free.
        #[serde(default)]
        method: PreemptMethod,
        #[serde(default)]
        recompute_micros: u64,
        #[serde(default)]
        swap_micros: u64,
        #[serde(default)]
        host_free: u32,
        lost: u32,
        blocks: u32,
        /// Times this sequence has been preempted, this one included.
        times: u32,
    },
    /// A sequence goes on from the `tokens` positions it had computed: `blocks` come back from host
    /// memory, into blocks that it takes next; `expired` before them no window reaches any more.
    SequenceSwappedIn { sequence: SequenceId, expired: u32, blocks: u32, tokens: u32 },
    /// Blocks were moved to host memory and back, before the step.
    BlocksSwapped { step: u64, out: u32, back: u32, bytes: u64, micros: u64 },
    /// A sequence is gone; its blocks were returned just before.
    SequenceFinished {
        sequence: SequenceId,
        request: RequestId,
        reason: FinishReason,
        prompt: u32,
        generated: u32,
    },
    /// Device time of one kind of kernel in a step.
    KernelTimed { step: u64, kernel: String, launches: u32, nanos: u64 },
    /// A sink could not keep up and lost this many events.
    EventsDropped { count: u64 },
    /// A variant of a later version.
    #[serde(other)]
    Unknown,
}

fn youngest() -> Victim {
    Victim::Youngest
}

/// Why a sequence ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// `max_new_tokens` were generated.
    Length,
    Cancelled,
    Failed,
    /// It waited or ran longer than it may.
    TimedOut,
}

/// Why a running sequence was preempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptReason {
    /// The gainer needed a block and none was free.
    OutOfBlocks,
    /// Somebody asked for it; it does not count towards the bound on preemptions.
    Forced,
}

/// Why a cached block's content was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvictReason {
    /// A sequence needed the block.
    OutOfBlocks,
    /// The sequence that computed it failed, so it is not to be trusted.
    Failed,
}

/// What became of what a preempted sequence had computed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptMethod {
    #[default]
    Recompute,
    Swap,
}

/// What the next of the queue waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelayReason {
    /// Slots: those in use against the cap.
    Slots,
    /// Free blocks, the watermark's share included.
    Blocks,
    /// Blocks of the pool, at the foreseen peak.
    Peak,
    /// Blocks of the pool, so that nobody is preempted too often.
    Protected,
    /// The commit of a step it was preempted out of.
    InFlight,
    /// The prompt, which another sequence of the request computes: its tokens against those
    /// computed.
    Sibling,
}

/// Why the limits are what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitsReason {
    Start,
    Asked,
}

/// Why a sequence was not taken; each names both numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Refusal {
    #[error(
        "{} {} already, at most {max} may: try again later",
        counted(*waiting, "request"),
        form(*waiting, "waits", "wait")
    )]
    Full { waiting: u32, max: u32 },
    #[error(
        "prompt and output need {needed} positions, the context holds {context}: \
         shorten the prompt or ask for fewer tokens"
    )]
    TooLong { needed: u64, context: u32 },
    #[error(
        "prompt and output need {blocks_needed} KV blocks, the pool has {blocks_total}: \
         shorten the prompt, ask for fewer tokens, or give the engine more KV memory"
    )]
    NeverFits { blocks_needed: u64, blocks_total: u32 },
    #[error("a request needs at least one prompt token and one token to generate")]
    Empty,
    #[error("sequence {sequence} is in use already")]
    Repeated { sequence: SequenceId },
}
