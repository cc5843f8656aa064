//! What a caller may ask of one generation, and the one place where it is checked: every
//! message names the field as the API spells it, so that faces only pass errors on.

use super::card::ModelCard;
use super::probe::Question;
use crate::base::{CLASS_MAX, TokenId, threefry2x32};
use crate::text::Grammar;
use std::sync::Arc;

/// Most entries of `stop`.
pub const STOP_MAX: usize = 4;
/// Most alternatives per token that `logprobs` may ask for.
pub const TOP_LOGPROBS_MAX: u32 = 20;
/// Most entries of `logit_bias`.
pub const LOGIT_BIAS_MAX: usize = 1024;

/// Most choices of one request.
pub const CHOICES_MAX: u32 = 128;

/// A request before it is checked. `None` means: the model's default.
#[derive(Clone, Default, Debug)]
pub struct GenerateRequest {
    pub prompt: Vec<TokenId>,
    pub max_tokens: Option<u32>,
    pub min_tokens: Option<u32>,
    pub temperature: Option<f32>,
    /// 0 keeps all.
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub logit_bias: Vec<(TokenId, f32)>,
    pub seed: Option<u64>,
    pub stop: Vec<String>,
    pub stop_token_ids: Vec<TokenId>,
    pub ignore_eos: bool,
    /// Ask for log-probabilities: of the chosen token and of this many alternatives.
    pub logprobs: Option<u32>,
    /// Priority class, 0 first; [`crate::base::CLASS_DEFAULT`].
    pub priority: Option<u32>,
    /// Whom it is for, under fair queueing; nobody in particular.
    pub tenant: Option<String>,
    /// How long it may take in all; for ever.
    pub timeout_ms: Option<u64>,
    /// Asks about the prompt itself. `max_tokens` may be 0 then: nothing is generated.
    pub question: Option<Question>,
    /// Answers to the prompt, 1 if not given. Each has a seed of its own; see [`choice_seed`].
    pub n: Option<u32>,
    /// What the answers are held to.
    pub grammar: Option<Arc<dyn Grammar>>,
    /// Control tokens whose text is content, as where a model writes its calls of tools with them.
    pub shown: Vec<TokenId>,
    /// Only requests with the same salt find each other's prompts in the prefix cache.
    pub cache_salt: Option<String>,
}

/// The seed of choice `index` of a request with `seed`. The first has the request's own, so that
/// it is the answer that the request would get alone; the others' are random bits of both.
pub fn choice_seed(seed: u64, index: u32) -> u64 {
    if index == 0 {
        return seed;
    }
    let word = threefry2x32([seed as u32, (seed >> 32) as u32], [index, 2]);
    u64::from(word[0]) | u64::from(word[1]) << 32
}

/// Checked sampling parameters, as a runner gets them.
#[derive(Clone, PartialEq, Debug)]
pub struct Sampling {
    /// 0 = greedy.
    pub temperature: f32,
    /// 0 = all.
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// Sorted by id, each id once.
    pub logit_bias: Vec<(TokenId, f32)>,
    pub logprobs: Option<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            logprobs: None,
        }
    }
}

/// What a model's generation config says; `None` where it is silent.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct SamplingDefaults {
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
}

impl Sampling {
    /// Logits are changed before the choice, in ways that may depend on the tokens before it.
    pub fn edits_logits(&self) -> bool {
        let counted = self.presence_penalty != 0.0 || self.frequency_penalty != 0.0;
        counted || self.repetition_penalty != 1.0 || !self.logit_bias.is_empty()
    }
}

/// A field with a value it cannot have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {message}")]
pub struct InvalidField {
    pub field: &'static str,
    pub message: String,
}

impl InvalidField {
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into() }
    }
}

impl GenerateRequest {
    /// Fills in the model's defaults and checks every field but the prompt's length.
    pub fn sampling(&self, card: &ModelCard) -> Result<Sampling, InvalidField> {
        let sampling = self.over(&card.defaults)?;
        check_ids("prompt", self.prompt.iter().copied(), card)?;
        check_ids("stop_token_ids", self.stop_token_ids.iter().copied(), card)?;
        Ok(Sampling { logit_bias: self.checked_bias(card)?, ..sampling })
    }

    /// What can be checked of a request before a model is known.
    pub fn check(&self) -> Result<(), InvalidField> {
        self.over(&SamplingDefaults::default()).map(drop)
    }

    /// The values over a model's defaults, without what depends on its vocabulary.
    fn over(&self, defaults: &SamplingDefaults) -> Result<Sampling, InvalidField> {
        self.check_limits()?;
        let logprobs = self.logprobs;
        let of_prompt = match self.question {
            Some(Question::Logprobs(top)) => Some(top),
            _ => None,
        };
        if logprobs.max(of_prompt).is_some_and(|top| top > TOP_LOGPROBS_MAX) {
            let message = format!("at most {TOP_LOGPROBS_MAX} alternatives per token");
            return Err(InvalidField::new("top_logprobs", message));
        }
        let or = |asked: Option<f32>, own: Option<f32>, neutral| asked.or(own).unwrap_or(neutral);
        let repetition = or(self.repetition_penalty, defaults.repetition_penalty, 1.0);
        if !(repetition.is_finite() && repetition > 0.0) {
            let message = "must be a number above 0";
            return Err(InvalidField::new("repetition_penalty", message));
        }
        Ok(Sampling {
            temperature: range(
                "temperature",
                or(self.temperature, defaults.temperature, 1.0),
                0.0,
                2.0,
            )?,
            top_k: self.top_k.or(defaults.top_k).unwrap_or(0),
            top_p: range("top_p", or(self.top_p, defaults.top_p, 1.0), 0.0, 1.0)?,
            min_p: range("min_p", or(self.min_p, defaults.min_p, 0.0), 0.0, 1.0)?,
            repetition_penalty: repetition,
            presence_penalty: range(
                "presence_penalty",
                self.presence_penalty.unwrap_or(0.0),
                -2.0,
                2.0,
            )?,
            frequency_penalty: range(
                "frequency_penalty",
                self.frequency_penalty.unwrap_or(0.0),
                -2.0,
                2.0,
            )?,
            logit_bias: Vec::new(),
            logprobs,
        })
    }

    fn check_limits(&self) -> Result<(), InvalidField> {
        if self.n.is_some_and(|n| !(1..=CHOICES_MAX).contains(&n)) {
            return Err(InvalidField::new("n", format!("must be from 1 to {CHOICES_MAX}")));
        }
        if self.cache_salt.as_deref() == Some("") {
            return Err(InvalidField::new("cache_salt", "must not be empty"));
        }
        if self.max_tokens == Some(0) && self.question.is_none() {
            return Err(InvalidField::new("max_tokens", "must be at least 1"));
        }
        if self.timeout_ms == Some(0) {
            return Err(InvalidField::new("timeout", "must be above 0"));
        }
        if self.priority.is_some_and(|class| class > u32::from(CLASS_MAX)) {
            let message = format!("must be a class from 0, the first, to {CLASS_MAX}");
            return Err(InvalidField::new("priority", message));
        }
        if let (Some(min), Some(max)) = (self.min_tokens, self.max_tokens)
            && min > max
        {
            let message = format!("{min} is above max_tokens, which is {max}");
            return Err(InvalidField::new("min_tokens", message));
        }
        if self.stop.len() > STOP_MAX {
            let message =
                format!("at most {STOP_MAX} strings are allowed, {} were given", self.stop.len());
            return Err(InvalidField::new("stop", message));
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(InvalidField::new("stop", "a stop string must not be empty"));
        }
        Ok(())
    }

    fn checked_bias(&self, card: &ModelCard) -> Result<Vec<(TokenId, f32)>, InvalidField> {
        if self.logit_bias.len() > LOGIT_BIAS_MAX {
            let message = format!("at most {LOGIT_BIAS_MAX} entries are allowed");
            return Err(InvalidField::new("logit_bias", message));
        }
        check_ids("logit_bias", self.logit_bias.iter().map(|b| b.0), card)?;
        for &(_, bias) in &self.logit_bias {
            range("logit_bias", bias, -100.0, 100.0)?;
        }
        let mut sorted = self.logit_bias.clone();
        sorted.sort_by_key(|b| b.0);
        if let Some(twice) = sorted.windows(2).find(|w| w[0].0 == w[1].0) {
            let message = format!("token id {} is given twice", twice[0].0);
            return Err(InvalidField::new("logit_bias", message));
        }
        Ok(sorted)
    }
}

fn range(field: &'static str, value: f32, low: f32, high: f32) -> Result<f32, InvalidField> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(InvalidField::new(field, format!("must be a number from {low} to {high}")))
}

fn check_ids(
    field: &'static str,
    mut ids: impl Iterator<Item = TokenId>,
    card: &ModelCard,
) -> Result<(), InvalidField> {
    match ids.find(|&id| id >= card.logit_rows) {
        None => Ok(()),
        Some(id) => {
            let rows = card.logit_rows;
            let message = format!("token id {id} is outside the vocabulary of {rows} ids");
            Err(InvalidField::new(field, message))
        }
    }
}
