//! What the engine asks of a [`Runner`]: one step as plain values (token ids, positions, block
//! tables, how to sample, what is asked of the prompt) in, a [`StepOutput`] out. The engine knows
//! nothing of devices; tests and simulations run the same loop over a fake runner.

use super::sampling::Sampling;
use crate::base::{BlockId, SequenceId, TokenId, unit_from_seed};
use crate::sched::{BlockCopy, BlockSwap};
use crate::text::Mask;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// One step of work. Borrowed from the engine's tables for the duration of the step.
#[derive(Clone, Copy, Debug)]
pub struct StepInput<'a> {
    /// The plan's number.
    pub step: u64,
    /// Rows in the plan's order.
    pub rows: &'a [StepRow<'a>],
    /// Blocks to copy, keys and values of every layer, before any row reads or writes.
    pub copies: &'a [BlockCopy],
}

impl<'a> StepInput<'a> {
    /// The positions whose logits give a new token, row by row.
    pub fn sampling(&self) -> impl Iterator<Item = (&'a StepRow<'a>, SampleInput<'a>)> {
        self.rows.iter().flat_map(|row| row.samples().map(move |sample| (row, sample)))
    }

    /// The rows that are asked about their prompt.
    pub fn probing(&self) -> impl Iterator<Item = (&'a StepRow<'a>, &'a Probe<'a>)> {
        self.rows.iter().filter_map(|row| row.probe.as_ref().map(|probe| (row, probe)))
    }
}

/// One sequence's part of a step.
#[derive(Clone, Debug)]
pub struct StepRow<'a> {
    pub sequence: SequenceId,
    /// The running sequence's place.
    pub slot: u32,
    /// Position of `tokens[0]`.
    pub start: u32,
    /// The ids whose keys and values this step computes; never empty.
    pub tokens: &'a [TokenId],
    /// Present if the one id in `tokens` is not known yet: it is that of this place among the
    /// answers of the step before, which is still in the air.
    pub chosen: Option<u32>,
    /// Of these, guesses at the end. Where there are some, each of their positions is sampled from
    /// beside the one before them.
    pub drafts: u32,
    /// The sequence's block table; covers positions `0 .. start + tokens.len()`.
    pub blocks: &'a [BlockId],
    /// Computed for nothing; its blocks are the scratch block, one beyond the pool, again and
    /// again.
    pub pad: bool,
    /// Present if the logits of the last position, or of the last before guesses, give a new token.
    pub sample: Option<SampleInput<'a>>,
    /// Present if something is asked about the row's own tokens.
    pub probe: Option<Probe<'a>>,
}

impl<'a> StepRow<'a> {
    /// How to choose at each position that is sampled from, in their order.
    pub fn samples(&self) -> impl Iterator<Item = SampleInput<'a>> {
        let guesses = &self.tokens[self.tokens.len() - self.drafts as usize..];
        let (sample, last) = (self.sample, self.drafts);
        sample.into_iter().flat_map(move |sample| {
            (0..=last).map(move |n| SampleInput {
                position: sample.position + n,
                drafts: &guesses[..n as usize],
                ..sample
            })
        })
    }
}

/// What a row has to tell about `count` of its tokens, from `first` on.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    pub first: u32,
    pub count: u32,
    pub wanted: Wanted<'a>,
}

/// What is asked of each of these tokens.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// The log-probability of the token in `next` that follows it, and `top` alternatives.
    Logprobs { next: &'a [TokenId], top: u32 },
    /// The final hidden state, normed.
    Hidden,
}

/// How to choose the token that follows a row.
#[derive(Clone, Copy, Debug)]
pub struct SampleInput<'a> {
    pub sampling: &'a Sampling,
    /// The request's seed.
    pub seed: u64,
    /// Position of the token to be chosen: after the known tokens of its row, and `drafts`.
    pub position: u32,
    /// Prompt and output so far, for penalties; the first `prompt_len` are the prompt. Without the
    /// last one where that is not known yet; then there are none.
    pub history: &'a [TokenId],
    /// Guesses taken to follow these. Whoever has some has no penalties.
    pub drafts: &'a [TokenId],
    pub prompt_len: u32,
    /// Ids that may not be chosen now (the stop ids while `min_tokens` is not reached).
    pub banned: &'a [TokenId],
    /// Present if the answer is held to a grammar.
    pub guide: Option<&'a dyn NextIds>,
}

/// Which ids a grammar allows for the next token of one answer.
pub trait NextIds: Sync {
    /// Waits until the mask is there, so ask late. `None`: the grammar failed, and whatever is
    /// chosen is not used.
    fn mask(&self) -> Option<Mask>;
}

impl fmt::Debug for dyn NextIds + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NextIds")
    }
}

impl SampleInput<'_> {
    /// The uniform draw in [0, 1) of this token: a function of seed and position alone.
    pub fn unit(&self) -> f32 {
        unit_from_seed(self.seed, self.position)
    }
}

/// The answers of a step.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct StepOutput {
    /// One for each of [`StepInput::sampling`], in that order.
    pub sampled: Vec<Sampled>,
    /// One for each probing row, in the plan's order.
    pub probed: Vec<Probed>,
    /// Device time by kernel, where it is taken.
    pub kernels: Vec<KernelTime>,
}

/// What the launches of one kernel took in a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelTime {
    pub kernel: &'static str,
    pub launches: u32,
    pub nanos: u64,
}

impl From<Vec<Sampled>> for StepOutput {
    /// A step that was asked about no prompt.
    fn from(sampled: Vec<Sampled>) -> Self {
        Self { sampled, ..Self::default() }
    }
}

/// The answer to one [`Probe`], with a value for each of its tokens.
#[derive(Clone, PartialEq, Debug)]
pub enum Probed {
    Logprobs(Vec<TokenLogprobs>),
    Hidden(Vec<Vec<f32>>),
    /// Some logits held a NaN or an infinity.
    NotFinite,
}

/// The answer for one sampling row, in the order of the plan's sampling rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Sampled {
    pub token: TokenId,
    /// False if the row's logits held a NaN or an infinity: `token` then means nothing.
    pub finite: bool,
    /// Present if `Sampling::logprobs` asked for them.
    pub logprobs: Option<TokenLogprobs>,
}

impl Sampled {
    pub fn new(token: TokenId) -> Self {
        Self { token, finite: true, logprobs: None }
    }
}

/// Log-softmax values of the raw logits.
#[derive(Clone, PartialEq, Debug)]
pub struct TokenLogprobs {
    pub chosen: f32,
    /// The most likely ids, best first; the chosen id's entry is the same float as `chosen`.
    pub top: Vec<(TokenId, f32)>,
}

/// The device can no longer run steps. Ends every open request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    #[error("the device was lost ({0}); restart the program")]
    DeviceLost(String),
    #[error("the device is out of memory ({0}); use a smaller KV pool or context")]
    OutOfMemory(String),
    #[error("the device failed: {0}")]
    Device(String),
    #[error("a step returned {found} answers where {expected} were planned")]
    WrongCount { expected: usize, found: usize },
}

/// A step in flight. Not `Send`: a runner lives on the engine's thread (or the page's).
pub type RunFuture<'a> = Pin<Box<dyn Future<Output = Result<StepOutput, RunError>> + 'a>>;

/// Blocks on their way; the bytes of one.
pub type SwapFuture<'a> = Pin<Box<dyn Future<Output = Result<u64, RunError>> + 'a>>;

/// The largest steps that a runner can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Positions of a step.
    pub tokens: u32,
    /// Sequences of a step.
    pub sequences: u32,
    /// Steps in the air at once: 2 where [`Runner::launch`] and [`Runner::land`] work, else 1.
    pub flights: u32,
}

/// Runs one step after the other. The real one is the model over a `Device`.
pub trait Runner {
    /// Computes the rows' keys and values and answers the rows that ask, in their order.
    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a>;

    /// Hands a step over and returns while it is computed: what [`Runner::run`] does, in two parts.
    /// At most two are in the air, the second of which may start from what the first will choose.
    fn launch(&mut self, input: StepInput<'_>) -> Result<(), RunError> {
        let step = input.step;
        Err(RunError::Device(format!("step {step} cannot be launched ahead")))
    }

    /// Waits for the step that was launched first of those in the air.
    fn land<'a>(&'a mut self) -> RunFuture<'a> {
        let none = "no step is in the air".to_string();
        Box::pin(std::future::ready(Err(RunError::Device(none))))
    }

    /// Moves blocks of the pool to host blocks, then host blocks to blocks of the pool, before
    /// the next step; answers how many bytes one block has.
    fn swap<'a>(&'a mut self, out: &'a [BlockSwap], back: &'a [BlockSwap]) -> SwapFuture<'a>;

    /// Asked once; limits are never set beyond it.
    fn capacity(&self) -> Capacity {
        Capacity { tokens: u32::MAX, sequences: u32::MAX, flights: 1 }
    }
}

impl<R: Runner + ?Sized> Runner for Box<R> {
    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        (**self).run(input)
    }

    fn launch(&mut self, input: StepInput<'_>) -> Result<(), RunError> {
        (**self).launch(input)
    }

    fn land<'a>(&'a mut self) -> RunFuture<'a> {
        (**self).land()
    }

    fn swap<'a>(&'a mut self, out: &'a [BlockSwap], back: &'a [BlockSwap]) -> SwapFuture<'a> {
        (**self).swap(out, back)
    }

    fn capacity(&self) -> Capacity {
        (**self).capacity()
    }
}
