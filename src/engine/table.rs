//! The open requests: everything the engine knows of one beside its tokens and blocks, which
//! are the scheduler's. Decides, token by token, what text is out and whether it is the end.

use super::draft::Reach;
use super::guided::Guided;
use super::output::{GenerateError, Output, Usage};
use super::probe::Collected;
use super::runner_api::{Probed, Sampled};
use super::sampling::Sampling;
use crate::base::{RequestId, SequenceId, TokenId};
use crate::text::{Next, StopMatcher, TextStream};
use crate::trace::FinishReason;
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// The engine's requests by sequence, in order of arrival.
pub(super) type Table = BTreeMap<SequenceId, Request>;

/// One open request.
pub(super) struct Request {
    pub id: RequestId,
    pub sampling: Sampling,
    pub seed: u64,
    pub tenant: u32,
    pub class: u8,
    /// When the engine took it, in microseconds of its clock.
    pub arrived: u64,
    /// How long after that it may take.
    pub timeout_ms: Option<u64>,
    pub prompt_tokens: u32,
    pub max_new_tokens: u32,
    pub min_tokens: u32,
    /// Ids that end this request.
    pub stop_ids: Vec<TokenId>,
    /// End ids that do not end it (`ignore_eos`), whose text is still no content.
    pub ignored_ids: Vec<TokenId>,
    pub produced: u32,
    /// Its last token and what is guessed to follow, if anything is.
    pub drafts: Vec<TokenId>,
    pub reach: Reach,
    pub cached_tokens: u32,
    /// What is asked about the prompt, until it is answered.
    pub asked: Option<Collected>,
    /// What the answer is held to.
    pub guide: Option<Guided>,
    /// Control tokens whose text is content.
    pub shown: Vec<TokenId>,
    pub text: TextStream,
    pub stops: StopMatcher,
    pub sender: Sender,
}

/// The way to one caller. Holds a place for the last word, so that it always arrives.
pub(super) struct Sender {
    /// `None` where nobody listens: what comes of the request is in the trace alone.
    outputs: Option<mpsc::Sender<Output>>,
    last: Option<mpsc::OwnedPermit<Output>>,
}

impl Sender {
    /// A channel that holds `capacity` outputs and the last one.
    pub fn new(capacity: usize) -> (Self, mpsc::Receiver<Output>) {
        let (outputs, receiver) = mpsc::channel(capacity.max(1) + 1);
        let last = outputs.clone().try_reserve_owned().ok();
        (Self { outputs: Some(outputs), last }, receiver)
    }

    /// To nobody.
    pub fn quiet() -> Self {
        Self { outputs: None, last: None }
    }

    pub fn is_quiet(&self) -> bool {
        self.outputs.is_none()
    }

    /// The caller has dropped its end.
    pub fn gone(&self) -> bool {
        self.outputs.as_ref().is_some_and(mpsc::Sender::is_closed)
    }

    pub fn send(&self, output: Output) -> Result<(), GenerateError> {
        let Some(outputs) = &self.outputs else { return Ok(()) };
        outputs.try_send(output).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                GenerateError::SlowReader(outputs.max_capacity() - 1)
            }
            mpsc::error::TrySendError::Closed(_) => GenerateError::Cancelled,
        })
    }

    pub fn send_last(mut self, output: Output) {
        if let Some(permit) = self.last.take() {
            permit.send(output);
        }
    }
}

impl Request {
    /// False where only the prompt is asked about.
    pub fn generates(&self) -> bool {
        self.max_new_tokens > 0
    }

    /// Whether a row of positions `start..end` is asked about the prompt.
    pub fn probes(&self, start: u32, end: u32) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.wants(start, end).is_some())
    }

    /// Takes what a row told about the prompt.
    pub fn probed(&mut self, probed: Probed) -> Result<(), GenerateError> {
        let good = self.asked.as_mut().is_none_or(|asked| asked.take(probed));
        if good { Ok(()) } else { Err(GenerateError::NonFinite) }
    }

    /// Tells the caller about the prompt, once all of it has been computed.
    pub fn answer_asked(&mut self) -> Result<(), GenerateError> {
        self.asked.take().map_or(Ok(()), |asked| self.sender.send(asked.finish()))
    }

    /// Ids that must not be chosen for the next token.
    pub fn banned(&self) -> &[TokenId] {
        if self.produced < self.min_tokens { &self.stop_ids } else { &[] }
    }

    /// Whether the tokens to come may be guessed, or gone on from before the host knows them: not
    /// where a choice depends on those before it by more than the model does, nor while the prompt
    /// is asked about.
    pub fn is_plain(&self) -> bool {
        let free = self.guide.is_none() && !self.sampling.edits_logits();
        free && self.banned().is_empty() && self.asked.is_none()
    }

    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.produced,
            cached_tokens: self.cached_tokens,
        }
    }

    /// Takes what was sampled and tells the caller; why the request ends with it, if it does.
    pub fn take(&mut self, sampled: Sampled) -> Result<Option<FinishReason>, GenerateError> {
        if !sampled.finite {
            return Err(GenerateError::NonFinite);
        }
        let (output, finish) = self.accept(sampled)?;
        self.sender.send(output)?;
        Ok(finish)
    }

    /// Takes the next token; says what to send and whether the request ends with it.
    fn accept(
        &mut self,
        sampled: Sampled,
    ) -> Result<(Output, Option<FinishReason>), GenerateError> {
        self.produced += 1;
        let Sampled { token, logprobs, .. } = sampled;
        let stops = self.stop_ids.contains(&token);
        let end = stops || self.ignored_ids.contains(&token);
        let mut text = String::new();
        let (mut matched, mut complete) = (false, false);
        let read = !self.sender.is_quiet() || !self.stops.is_empty();
        if !end {
            if let Some(guide) = &self.guide {
                complete = guide.accept(token)? == Next::Complete;
            }
            if read {
                let piece = match self.shown.contains(&token) {
                    true => self.text.push_shown(token),
                    false => self.text.push(token),
                };
                matched = self.give(&piece, &mut text);
            }
        }
        let ends = stops || matched || complete || self.produced >= self.max_new_tokens;
        if read && ends && !matched {
            let rest = self.text.finish();
            matched = self.give(&rest, &mut text);
            if !matched {
                text.push_str(&self.stops.finish());
                matched = self.stops.stopped();
            }
        }
        // An end token on the last allowed place is still a stop.
        let reason = match (ends, stops || matched || complete) {
            (false, _) => None,
            (true, true) => Some(FinishReason::Stop),
            (true, false) => Some(FinishReason::Length),
        };
        Ok((Output::Token { id: token, text, logprobs, end }, reason))
    }

    /// Lets `piece` out as far as no stop string may begin in it; true if one is complete.
    fn give(&mut self, piece: &str, text: &mut String) -> bool {
        if self.produced <= self.min_tokens {
            text.push_str(piece);
            return false;
        }
        let step = self.stops.push(piece);
        text.push_str(&step.text);
        step.stopped
    }
}
