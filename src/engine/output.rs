//! What comes back from the engine for one request, and every way to be refused or to fail.

use super::runner_api::{RunError, TokenLogprobs};
use super::sampling::InvalidField;
use crate::base::{LimitsError, RequestId, TokenId};
use crate::sched::LimitsFixed;
use crate::text::GuideError;
use crate::trace::FinishReason;
use futures_util::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// One message to the caller. `Finished` or `Failed` comes last, exactly once.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// The request is in the queue. `max_new_tokens` is what it may produce at most.
    Started {
        prompt_tokens: u32,
        max_new_tokens: u32,
        seed: u64,
    },
    /// Log-probabilities of the prompt's tokens from the second on, before the first token.
    Scored(Vec<TokenLogprobs>),
    /// The prompt's hidden state, pooled.
    Pooled(Vec<f32>),
    /// One token. `text` is what became certain with it, maybe nothing. `end` marks an end
    /// token: it counts and has an id, but its text is not content.
    Token {
        id: TokenId,
        text: String,
        logprobs: Option<TokenLogprobs>,
        end: bool,
    },
    Finished {
        reason: FinishReason,
        usage: Usage,
    },
    Failed(GenerateError),
}

/// Token counts of one request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
}

/// Why a request was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    #[error("the prompt has no tokens")]
    Empty,
    #[error(
        "this model's maximum context length is {limit} tokens; the prompt has {prompt} tokens \
         and needs room for at least one more"
    )]
    BeyondContext { prompt: u64, limit: u32 },
    #[error(
        "the KV cache holds {limit} tokens in all; the prompt has {prompt} tokens and needs \
         room for at least one more"
    )]
    BeyondPool { prompt: u64, limit: u64 },
    #[error(
        "{waiting} requests are waiting and the queue holds {max}; try again in about \
         {retry_seconds} s"
    )]
    QueueFull { waiting: u32, max: u32, retry_seconds: u32 },
    #[error("the server is shutting down")]
    Stopping,
    #[error("the engine has failed: {0}")]
    Failed(String),
}

/// Why limits or policies were not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    #[error(transparent)]
    Fixed(#[from] LimitsFixed),
    #[error("`{field}` can be 1 to {most} with the buffers of this engine, not {asked}")]
    Range { field: &'static str, asked: u32, most: u32 },
    #[error(transparent)]
    Never(#[from] LimitsError),
}

impl SettingError {
    /// What cannot have the value that was asked for.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Fixed(LimitsFixed { field, .. }) | Self::Range { field, .. } => field,
            Self::Never(LimitsError { field, .. }) => field,
        }
    }
}

/// Why a request that was taken did not finish.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GenerateError {
    #[error(transparent)]
    Refused(#[from] SubmitError),
    #[error(
        "the model produced numbers that are not finite, so this request was ended; where the KV \
         cache is f16, --kv-dtype f32 may hold them"
    )]
    NonFinite,
    /// The form that the answer was held to is at fault.
    #[error(transparent)]
    Grammar(#[from] GuideError),
    #[error("the answer was not read fast enough: {0} messages were pending")]
    SlowReader(usize),
    #[error("the request was cancelled")]
    Cancelled,
    #[error("the request was not complete after {millis} ms, its own limit")]
    Timeout { millis: u64 },
    #[error(
        "the request waited {millis} ms in the queue, which is the most; try again in about \
         {retry_seconds} s"
    )]
    QueueTimeout { millis: u64, retry_seconds: u32 },
    #[error("the engine was stopped")]
    Stopped,
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the engine has failed: {0}")]
    Engine(String),
}

/// An accepted request's outputs. Dropping it cancels the request.
#[derive(Debug)]
pub struct Generation {
    id: RequestId,
    outputs: mpsc::Receiver<Output>,
    ended: bool,
}

impl Generation {
    pub(super) fn new(id: RequestId, outputs: mpsc::Receiver<Output>) -> Self {
        Self { id, outputs, ended: false }
    }

    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The next output; `None` after the last one.
    pub async fn next(&mut self) -> Option<Output> {
        std::future::poll_fn(|context| self.poll_output(context)).await
    }

    /// Everything to the end, as one value.
    pub async fn collect(mut self) -> Result<Completion, GenerateError> {
        let mut all = Completion::default();
        while let Some(output) = self.next().await {
            match output {
                Output::Started { .. } => {}
                Output::Scored(logprobs) => all.prompt_logprobs = logprobs,
                Output::Pooled(values) => all.pooled = values,
                Output::Token { id, text, logprobs, end } => {
                    all.text.push_str(&text);
                    all.tokens.push(CompletionToken { id, logprobs, end });
                }
                Output::Finished { reason, usage } => {
                    (all.reason, all.usage) = (Some(reason), usage);
                }
                Output::Failed(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<Option<Output>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.outputs.poll_recv(context).map(|next| {
            // A channel closed without a last word: the engine's thread is gone.
            let next = next.unwrap_or(Output::Failed(GenerateError::Stopped));
            self.ended = matches!(next, Output::Finished { .. } | Output::Failed(_));
            Some(next)
        })
    }
}

impl Stream for Generation {
    type Item = Output;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Output>> {
        self.get_mut().poll_output(context)
    }
}

/// A finished request.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Completion {
    pub text: String,
    pub tokens: Vec<CompletionToken>,
    /// Of the prompt's tokens from the second on, if asked for.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// The prompt's hidden state, if asked for.
    pub pooled: Vec<f32>,
    pub reason: Option<FinishReason>,
    pub usage: Usage,
}

impl Completion {
    /// Every id, end token included.
    pub fn ids(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|t| t.id).collect()
    }
}

/// One token of a [`Completion`].
#[derive(Clone, PartialEq, Debug)]
pub struct CompletionToken {
    pub id: TokenId,
    pub logprobs: Option<TokenLogprobs>,
    pub end: bool,
}
