//! What a face needs to know of the loaded model: names, tokenizer, template, defaults.

use super::sampling::SamplingDefaults;
use crate::base::{Activations, Invariance, TokenId};
use crate::text::{ChatTemplate, Tokenizer};
use std::collections::BTreeMap;
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
    /// Shapes of products whose kernels were chosen by what was measured on this device.
    pub tuned: u32,
    /// Whether an answer may depend on company.
    pub invariance: Invariance,
    /// What products take of the rows they read, by the format of their matrices; empty where
    /// nothing is computed.
    pub products: BTreeMap<String, Activations>,
}
