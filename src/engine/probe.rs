//! What a request may ask about its prompt beside a continuation: the log-probability of each of
//! its tokens, or its hidden state as one vector. The prompt is computed in pieces; what each
//! piece tells is collected here, position by position, once, also when a preempted prompt is
//! computed again.

use super::output::Output;
use super::runner_api::{Probe, Probed, TokenLogprobs, Wanted};
use crate::base::TokenId;

/// How the hidden states of a prompt become one vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pooling {
    /// The last token's.
    Last,
    /// The mean over all tokens.
    Mean,
}

/// A question about the prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// Log-probabilities of the prompt's tokens from the second on, and of this many alternatives.
    Logprobs(u32),
    Pooled(Pooling),
}

impl Question {
    /// Whether every row of the prompt has to be computed, so that no cached prefix may stand in.
    pub fn needs_every_row(self) -> bool {
        self != Question::Pooled(Pooling::Last)
    }
}

/// A question and what is known of its answer.
pub(super) struct Collected {
    question: Question,
    prompt_tokens: u32,
    /// Positions below have been collected.
    done: u32,
    logprobs: Vec<TokenLogprobs>,
    /// Summed in f64 by ascending position, so that pieces make no difference.
    sum: Vec<f64>,
}

impl Collected {
    pub fn new(question: Question, prompt_tokens: u32) -> Self {
        Self { question, prompt_tokens, done: 0, logprobs: Vec::new(), sum: Vec::new() }
    }

    /// The positions that are asked about: of these, logits or hidden states are wanted.
    fn positions(&self) -> (u32, u32) {
        match self.question {
            Question::Logprobs(_) => (0, self.prompt_tokens - 1),
            Question::Pooled(Pooling::Mean) => (0, self.prompt_tokens),
            Question::Pooled(Pooling::Last) => (self.prompt_tokens - 1, self.prompt_tokens),
        }
    }

    pub fn needs_every_row(&self) -> bool {
        self.question.needs_every_row()
    }

    /// Positions of the row `start..end` that are asked about and not known yet.
    pub fn wants(&self, start: u32, end: u32) -> Option<(u32, u32)> {
        let (first, last) = self.positions();
        let (from, to) = (start.max(first).max(self.done), end.min(last));
        (from < to).then_some((from, to))
    }

    /// What a row of positions `start..end` has to tell; `history` holds the whole prompt.
    pub fn probe<'a>(&self, start: u32, end: u32, history: &'a [TokenId]) -> Option<Probe<'a>> {
        let (from, to) = self.wants(start, end)?;
        let wanted = match self.question {
            Question::Logprobs(top) => {
                let next = &history[from as usize + 1..to as usize + 1];
                Wanted::Logprobs { next, top }
            }
            Question::Pooled(_) => Wanted::Hidden,
        };
        Some(Probe { first: from - start, count: to - from, wanted })
    }

    /// Takes what a row told. False if its numbers were not finite.
    pub fn take(&mut self, probed: Probed) -> bool {
        match probed {
            Probed::Logprobs(logprobs) => {
                self.done += logprobs.len() as u32;
                self.logprobs.extend(logprobs);
                true
            }
            Probed::Hidden(states) => {
                self.done = self.done.max(self.positions().0) + states.len() as u32;
                self.sum.resize(states.first().map_or(0, Vec::len), 0.0);
                for state in &states {
                    for (sum, value) in self.sum.iter_mut().zip(state) {
                        *sum += f64::from(*value);
                    }
                }
                self.sum.iter().all(|sum| sum.is_finite())
            }
            Probed::NotFinite => false,
        }
    }

    /// The answer; the whole prompt has been computed.
    pub fn finish(self) -> Output {
        match self.question {
            Question::Logprobs(_) => Output::Scored(self.logprobs),
            Question::Pooled(pooling) => {
                let count = match pooling {
                    Pooling::Mean => f64::from(self.prompt_tokens),
                    Pooling::Last => 1.0,
                };
                Output::Pooled(self.sum.iter().map(|sum| (sum / count) as f32).collect())
            }
        }
    }
}
