//! Recordings for the viewer: read from a file, with the words of the model that made them.

use crate::cli::ModelArgs;
use crate::model;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use tilewright::engine::{LoadOptions, ModelCard, read_card};
use tilewright::model::Spec;
use tilewright::trace::{Header, Stamped};
use tilewright::viewer::{Source, Viewer, Words, read_recording};

/// By its name: `.jsonl`, or `.jsonl.gz`.
#[cfg(feature = "window")]
pub fn is_recording(path: &Path) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    name.ends_with(".jsonl") || name.ends_with(".gz")
}

/// What is shown of a recording beside its events: its name.
pub fn source(path: &Path) -> Source {
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    Source::Recording { name }
}

/// Hands on the events of the recording at `path`, those before a damage too; its header, and the
/// model at hand if it is the one that was recorded.
pub fn read(
    path: &Path,
    args: &ModelArgs,
    take: &mut dyn FnMut(Stamped),
) -> Result<(Header, Option<ModelCard>)> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let header = read_recording(file, take).with_context(|| path.display().to_string())?;
    let card = card(&header.model, args);
    Ok((header, card))
}

/// Shows the recording at `path`. What was read before a damage is shown with the error.
pub fn open(viewer: &mut Viewer, path: &Path, args: &ModelArgs) -> Result<()> {
    viewer.open(source(path), None);
    let (header, card) = read(path, args, &mut |event| viewer.push(&event))?;
    opened(viewer, header, card);
    Ok(())
}

/// What is known once a recording is read.
pub fn opened(viewer: &mut Viewer, header: Header, card: Option<ModelCard>) {
    viewer.set_header(header);
    if let Some(card) = card {
        let words: Words = Rc::new(move |token| Some(card.tokenizer.token_text(token)));
        viewer.set_words(words);
    }
}

/// The model at hand, if the recording is of that one (or does not say). Without one the viewer
/// shows token ids.
fn card(recorded: &str, args: &ModelArgs) -> Option<ModelCard> {
    let weights = model::weights(&args.model).ok()?;
    let vocab = Spec::read(&weights).ok()?.vocab;
    let card = read_card(&weights, vocab, &LoadOptions::default(), &mut Vec::new()).ok()?;
    (recorded.is_empty() || recorded == card.name).then_some(card)
}
