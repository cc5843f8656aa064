//! `quality`: what other weights, or another KV storage type, do to a model's answers on a text.

use crate::cli::QualityArgs;
use crate::{device, model, print};
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use tilewright::base::{Activations, KvType};
use tilewright::bench::{PIECE, Quality, Scores};
use tilewright::engine::{LoadOptions, read_card};
use tilewright::model::Spec;
use tilewright::weights::Weights;

/// The types of a reference.
const PLAIN: (KvType, Activations) = (KvType::F32, Activations::F32);

/// The text that is used where none is given.
const TEXT: &str = include_str!("../../assets/quality/text.txt");

pub fn run(args: &QualityArgs) -> Result<ExitCode> {
    let text = match &args.text {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("--text {}", path.display()))?
        }
        None => TEXT.to_string(),
    };
    let candidate = model::weights(&args.model)?;
    let ids = encode(&candidate, &text)?;
    if ids.len() < 2 {
        bail!("the text has {} tokens, at least 2 are needed: give a longer --text", ids.len());
    }
    let kv = args.kv_dtype.unwrap_or(KvType::F32);
    let types = (kv, args.activations);
    let differs = args.kv_dtype.is_some() || args.activations != Activations::F32;
    let (reference, name) = match (&args.against, differs) {
        (Some(against), _) => {
            let reference = model::weights(against)?;
            if encode(&reference, &text)? != ids {
                bail!(
                    "{} and {} do not read the text as the same tokens, so they cannot be compared",
                    args.model,
                    against
                );
            }
            (reference, named(against, PLAIN))
        }
        (None, true) => (model::weights(&args.model)?, named(&args.model, PLAIN)),
        (None, false) => bail!(
            "name what to compare with: --against MODEL for a reference, or --kv-dtype TYPE for \
             the same model with its KV cache stored so, or --activations int8 for its products"
        ),
    };
    let scores = |weights: &Weights, types| -> Result<Scores> {
        let mut device = device::open(&args.device)?;
        Ok(Scores::of(weights, device.as_mut(), types, &ids, &mut |_, _| {})?)
    };
    let quality = scores(&reference, PLAIN)?.compare(&scores(&candidate, types)?);
    if args.json {
        print(&(serde_json::to_string_pretty(&quality)? + "\n"))?;
    } else {
        print(&page(&quality, &name, &named(&args.model, types)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn named(model: &str, (kv, activations): (KvType, Activations)) -> String {
    match activations {
        Activations::F32 => format!("{model}, KV {kv}"),
        Activations::Int8 => format!("{model}, KV {kv}, activations {activations}"),
    }
}

/// The ids of `text` in the vocabulary of `weights`.
fn encode(weights: &Weights, text: &str) -> Result<Vec<u32>> {
    let vocab = Spec::read(weights)?.vocab;
    let card = read_card(weights, vocab, &LoadOptions::default(), &mut Vec::new())?;
    let ids = card.tokenizer.encode_prompt(text)?;
    match ids.iter().find(|id| **id >= vocab) {
        Some(id) => bail!("{}: token {id} has no row of logits", weights.name()),
        None => Ok(ids),
    }
}

fn page(q: &Quality, reference: &str, candidate: &str) -> String {
    format!(
        "{} tokens predicted, in pieces of {PIECE}\n\
         reference            {reference}\n\
         candidate            {candidate}\n\
         perplexity           {:.4} -> {:.4} ({:+.3} %)\n\
         greedy agreement     {:.2} %\n\
         mean |dlogprob|      {:.6}\n",
        q.tokens,
        q.reference_perplexity,
        q.candidate_perplexity,
        (q.candidate_perplexity / q.reference_perplexity - 1.0) * 100.0,
        q.greedy_agreement * 100.0,
        q.mean_logprob_difference,
    )
}
