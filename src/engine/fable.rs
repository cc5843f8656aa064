//! Fable, the model compiled in: it makes the program answer at once, with no download.

use super::load::LoadError;
use crate::text::{Tokenizer, TokenizerExtra};
use crate::weights::{Weights, WeightsError};
use std::borrow::Cow;

macro_rules! fable {
    ($file:literal) => {
        include_bytes!(concat!("../../assets/fable/", $file)).as_slice()
    };
    ($($file:literal)*) => {
        vec![$(($file, Cow::Borrowed(fable!($file)))),*]
    };
}

/// The embedded checkpoint.
pub fn fable() -> Result<Weights, WeightsError> {
    let files = fable! {
        "config.json"
        "generation_config.json"
        "model.safetensors"
        "tokenizer.json"
        "tokenizer_config.json"
        "chat_template.jinja"
    };
    Weights::from_folder_bytes("fable", files)
}

/// Its tokenizer alone, for a model with `logit_rows` ids that computes nothing: the page, which
/// simulates too, need not hold the weights for that.
pub fn fable_tokenizer(logit_rows: u32) -> Result<Tokenizer, LoadError> {
    let wrong = |error| LoadError::Text { file: "fable".to_string(), error };
    let extra = TokenizerExtra::from_config(Some(fable!("tokenizer_config.json")));
    let extra = TokenizerExtra { logit_rows: Some(logit_rows), ..extra.map_err(wrong)? };
    Tokenizer::from_json(fable!("tokenizer.json"), extra).map_err(wrong)
}
