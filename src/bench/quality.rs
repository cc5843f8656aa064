//! What a change of weights or of KV storage does to a model's answers: over a text, each next
//! token's log-probability and the most likely one, of a reference and of a candidate.

use crate::base::{Activations, KvType};
use crate::model::{Batch, Model, ModelError, Options, Progress, Spec};
use crate::record::{Device, Recording};
use crate::weights::Weights;
use serde::Serialize;

/// Tokens that one piece of the text has; each begins anew at position 0.
pub const PIECE: usize = 512;

/// Positions whose logits are brought back at once.
const AT_ONCE: u32 = 64;

/// What a model says to a text, one entry per token that has one before it.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Scores {
    /// The most likely token.
    pub best: Vec<u32>,
    /// Natural logarithm of the probability of the text's own token.
    pub logprob: Vec<f64>,
}

/// A candidate against its reference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Quality {
    /// Tokens that were predicted.
    pub tokens: usize,
    /// e to the mean of -logprob.
    pub reference_perplexity: f64,
    pub candidate_perplexity: f64,
    /// Share of positions where both find the same token most likely.
    pub greedy_agreement: f64,
    /// Mean |difference of the log-probabilities of the text's tokens|.
    pub mean_logprob_difference: f64,
}

impl Scores {
    /// Loads `weights` with a KV cache and products of these types and runs the text through it.
    pub fn of(
        weights: &Weights,
        device: &mut dyn Device,
        (kv, activations): (KvType, Activations),
        ids: &[u32],
        progress: Progress<'_>,
    ) -> Result<Self, ModelError> {
        let context = Spec::read(weights)?.context.min(PIECE as u32);
        let options = Options {
            kv,
            activations,
            block_size: 16,
            blocks: context.div_ceil(16),
            step_tokens_max: AT_ONCE,
            sequences_max: AT_ONCE,
            context_max: context,
            memory_bytes: None,
        };
        let model = Model::load(weights, device, options, progress)?;
        let mut scores = Scores::default();
        for piece in ids.chunks(context as usize) {
            scores.add(&model, device, piece)?;
        }
        Ok(scores)
    }

    fn add(
        &mut self,
        model: &Model,
        device: &mut dyn Device,
        ids: &[u32],
    ) -> Result<(), ModelError> {
        let table: Vec<u32> = (0..model.options.blocks).collect();
        let at_once = Model::logit_rows(&model.spec, &model.options, device.facts()).min(AT_ONCE);
        let (mut batch, mut recording) = (Batch::default(), Recording::default());
        let mut start = 0;
        for part in ids.chunks(at_once as usize) {
            batch.clear();
            let first = batch.push_row(part, start as u32, &table);
            let rows = 0..part.len() as u32;
            batch.samples.extend(rows.map(|i| (first + i, Default::default())));
            batch.logits = true;
            model.record(&batch, &mut recording);
            let finished = device.run(&recording)?;
            for (row, logits) in model.logits(&batch, &finished.bytes).iter().enumerate() {
                if let Some(next) = ids.get(start + row + 1) {
                    self.best.push(best(logits));
                    self.logprob.push(logprob(logits, *next));
                }
            }
            start += part.len();
        }
        Ok(())
    }

    fn perplexity(&self) -> f64 {
        (-self.logprob.iter().sum::<f64>() / self.logprob.len().max(1) as f64).exp()
    }

    /// How far `candidate` is from these.
    pub fn compare(&self, candidate: &Scores) -> Quality {
        let count = self.best.len().max(1) as f64;
        let pairs = self.best.iter().zip(&candidate.best);
        let off = self.logprob.iter().zip(&candidate.logprob).map(|(a, b)| (a - b).abs());
        Quality {
            tokens: self.best.len(),
            reference_perplexity: self.perplexity(),
            candidate_perplexity: candidate.perplexity(),
            greedy_agreement: pairs.filter(|(a, b)| a == b).count() as f64 / count,
            mean_logprob_difference: off.sum::<f64>() / count,
        }
    }
}

/// The first of the most likely.
fn best(logits: &[f32]) -> u32 {
    let better = |best: usize, (i, v): (usize, &f32)| if *v > logits[best] { i } else { best };
    logits.iter().enumerate().fold(0, better) as u32
}

fn logprob(logits: &[f32], token: u32) -> f64 {
    let high = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|v| f64::from(v - high).exp()).sum();
    f64::from(logits[token as usize] - high) - sum.ln()
}
