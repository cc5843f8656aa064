//! What a face needs to know of the loaded model: names, tokenizer, template, defaults.

use super::sampling::SamplingDefaults;
use crate::base::TokenId;
use crate::text::{ChatTemplate, Tokenizer};
use std::sync::Arc;

/// The loaded model as callers see it. Made once by the loader.
pub struct ModelCard {
    /// The name it is served under.
    pub name: String,
    pub tokenizer: Arc<Tokenizer>,
    /// `None`: chat is refused, plain completion works.
    pub template: Option<ChatTemplate>,
    pub defaults: SamplingDefaults,
    /// Union of all end ids of tokenizer, config, generation config and GGUF metadata.
    pub stop_ids: Vec<TokenId>,
    /// Rows of the output head: every id in or out lies below.
    pub logit_rows: u32,
}
