//! What a request asked for, so that it can be run again: in the stream only where somebody wants
//! to replay it, because it holds more than counts.

use crate::base::TokenId;
use serde::{Deserialize, Serialize};

/// The checked parameters of a request, the model's defaults filled in. Its prompt follows in
/// pieces of at most [`Asked::PIECE`] tokens.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// Sequences with this prompt, their ids one after the other.
    pub choices: u32,
    /// Of the first choice; the others' follow from it.
    pub seed: u64,
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logit_bias: Vec<(TokenId, f32)>,
    pub logprobs: Option<u32>,
    pub min_tokens: u32,
    /// 0 where only the prompt is asked about.
    pub max_tokens: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Every id that ends it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop_ids: Vec<TokenId>,
    /// Answers were held to a grammar, which the stream does not hold.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub guided: bool,
    /// Control tokens whose text is content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<TokenId>,
    pub tenant: u32,
    pub class: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
    /// Alternatives, where log-probabilities of the prompt are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<u32>,
    /// How the prompt's hidden states are pooled, where they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooled: Option<String>,
}

impl Asked {
    /// Tokens of one piece of a prompt: a line of a file stays small.
    pub const PIECE: usize = 4096;
}
