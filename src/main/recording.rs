//! Recordings for the viewer: read from a file, with the words of the model that made them.

use crate::cli::ModelArgs;
use crate::model;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use tilewright::engine::{LoadOptions, read_card};
use tilewright::model::Spec;
use tilewright::viewer::{Source, Viewer, Words, read_recording};

/// By its name: `.jsonl`, or `.jsonl.gz`.
#[cfg(feature = "window")]
pub fn is_recording(path: &Path) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    name.ends_with(".jsonl") || name.ends_with(".gz")
}

/// Shows the recording at `path`. What was read before a damage is shown with the error.
pub fn open(viewer: &mut Viewer, path: &Path, args: &ModelArgs) -> Result<()> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    viewer.open(Source::Recording { name }, None);
    let read = read_recording(file, &mut |event| viewer.push(&event));
    let header = read.with_context(|| path.display().to_string())?;
    viewer.set_block_picos(header.block_picos());
    if let Some(words) = words(&header.model, args) {
        viewer.set_words(words);
    }
    Ok(())
}

/// The vocabulary of the model at hand, if the recording is of that one (or does not say). Without
/// one the viewer shows token ids.
fn words(recorded: &str, args: &ModelArgs) -> Option<Words> {
    let weights = model::weights(&args.model).ok()?;
    let vocab = Spec::read(&weights).ok()?.vocab;
    let card = read_card(&weights, vocab, &LoadOptions::default(), &mut Vec::new()).ok()?;
    let same = recorded.is_empty() || recorded == card.name;
    same.then(|| -> Words { Rc::new(move |token| Some(card.tokenizer.token_text(token))) })
}
