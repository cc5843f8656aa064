//! Fable, the model compiled in: it makes the program answer at once, with no download.

use crate::weights::{Weights, WeightsError};
use std::borrow::Cow;

macro_rules! fable {
    ($($file:literal)*) => {
        vec![$(($file, Cow::Borrowed(
            include_bytes!(concat!("../../assets/fable/", $file)).as_slice(),
        ))),*]
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
