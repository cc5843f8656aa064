//! `verify`: every logit of a model against reference logits.

use crate::cli::VerifyArgs;
use crate::{device, model};
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use tilewright::base::{Activations, KvType};
use tilewright::model::{Batch, Model, Options, Spec};
use tilewright::record::{Device, Recording};
use tilewright::weights::{Weights, blocks};

/// Positions whose logits are brought back at once.
const PIECE: usize = 64;

pub fn run(args: &VerifyArgs) -> Result<ExitCode> {
    let (ids, expected) = golden(&args.golden)?;
    let weights = model::weights(&args.model)?;
    let mut device = device::open(&args.device)?;
    let spec = Spec::read(&weights)?;
    let vocab = spec.vocab as usize;
    if expected.len() != ids.len() * vocab {
        let (have, want) = (expected.len(), ids.len() * vocab);
        bail!("{}: `logits` has {have} values, expected {want}", args.golden.display());
    }
    if let Some(id) = ids.iter().find(|id| **id >= spec.vocab) {
        bail!("{}: `input_ids`: {id} is outside the vocabulary", args.golden.display());
    }
    let context = (ids.len() as u32).next_multiple_of(16);
    let options = Options {
        kv: KvType::F32,
        activations: Activations::F32,
        block_size: 16,
        blocks: context / 16,
        step_tokens_max: PIECE as u32,
        sequences_max: PIECE as u32,
        context_max: context,
        memory_bytes: None,
    };
    let model = Model::load(&weights, device.as_mut(), options, &mut |_, _| {})?;
    let logits = logits(&model, device.as_mut(), &ids)?;
    let (mut worst, mut worst_at, mut agree) = (0f32, 0, 0);
    for (at, (got, want)) in logits.iter().zip(expected.chunks_exact(vocab)).enumerate() {
        for (got, want) in got.iter().zip(want) {
            let off = (got - want).abs();
            if off > worst || off.is_nan() {
                (worst, worst_at) = (if off.is_nan() { f32::INFINITY } else { off }, at);
            }
        }
        agree += usize::from(best(got) == best(want));
    }
    let passed = worst <= args.tolerance;
    crate::print(&format!(
        "largest difference {worst:.3e} at position {worst_at} (tolerance {:.1e})\n\
         most likely token agrees at {agree} of {} positions\n{}\n",
        args.tolerance,
        ids.len(),
        if passed { "passed" } else { "FAILED" }
    ))?;
    Ok(ExitCode::from(u8::from(!passed)))
}

fn golden(path: &std::path::Path) -> Result<(Vec<u32>, Vec<f32>)> {
    let file = Weights::open(path)?;
    let (_, ids) = file.read_ints("input_ids")?;
    let ids: Result<Vec<u32>, _> = ids.into_iter().map(u32::try_from).collect();
    let ids = ids.with_context(|| format!("{}: `input_ids`: a negative id", path.display()))?;
    let Some(tensor) = file.tensor("logits") else {
        bail!("{}: there is no tensor `logits`", path.display());
    };
    let raw = file.read_rows(tensor, 0, tensor.rows())?;
    let count = raw.len() / tensor.format.block_bytes() * tensor.format.block_len();
    let mut values = vec![0f32; count];
    blocks::decode(tensor.format, &raw, &mut values);
    if ids.is_empty() {
        bail!("{}: `input_ids` is empty", path.display());
    }
    Ok((ids, values))
}

fn logits(model: &Model, device: &mut dyn Device, ids: &[u32]) -> Result<Vec<Vec<f32>>> {
    let table: Vec<u32> = (0..model.options.blocks).collect();
    let at_once = Model::logit_rows(&model.spec, &model.options, device.facts()) as usize;
    let (mut batch, mut recording, mut out) = (Batch::default(), Recording::default(), Vec::new());
    for (number, piece) in ids.chunks(at_once).enumerate() {
        batch.clear();
        let first = batch.push_row(piece, (number * at_once) as u32, &table);
        let rows = 0..piece.len() as u32;
        batch.samples.extend(rows.map(|i| (first + i, Default::default())));
        batch.logits = true;
        model.record(&batch, &mut recording);
        let finished = device.run(&recording)?;
        out.extend(model.logits(&batch, &finished.bytes));
    }
    Ok(out)
}

fn best(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, v)| if *v > row[best] { i } else { best })
}
