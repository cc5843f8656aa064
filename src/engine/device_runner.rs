//! The real [`Runner`]: a model on a device. Turns the rows of a step into a batch, runs its
//! recording and reads the sampled ids.

use super::runner_api::{
    Capacity, RunError, RunFuture, Runner, SampleInput, Sampled, StepInput, TokenLogprobs,
};
use crate::model::{Batch, Edit, Model, SampleResult, SampleRow};
use crate::record::{Device, DeviceError, Recording};
use std::collections::BTreeMap;

/// Added to the logit of a token that may not be chosen. Finite, so that no NaN arises.
const BANNED: f32 = -1e30;

/// A model with the device that holds it.
pub struct DeviceRunner {
    model: Model,
    device: Box<dyn Device>,
    batch: Batch,
    recording: Recording,
}

impl DeviceRunner {
    pub fn new(model: Model, device: Box<dyn Device>) -> Self {
        Self { model, device, batch: Batch::default(), recording: Recording::default() }
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    fn fill(&mut self, input: StepInput<'_>) -> Result<(), RunError> {
        self.batch.clear();
        let size = self.model.options.block_size;
        for row in input.rows {
            let needed = (row.start + row.tokens.len() as u32).div_ceil(size) as usize;
            let blocks = row.blocks.get(..needed).ok_or_else(|| {
                let (have, sequence) = (row.blocks.len(), row.sequence);
                RunError::Device(format!("sequence {sequence} has {have} of {needed} blocks"))
            })?;
            let first = self.batch.tokens.len() as u32;
            self.batch.rows.push(crate::model::BatchRow {
                first,
                len: row.tokens.len() as u32,
                start: row.start,
                table: self.batch.tables.len() as u32,
            });
            self.batch.tokens.extend_from_slice(row.tokens);
            self.batch.tables.extend(blocks.iter().map(|b| b.0));
            if let Some(sample) = &row.sample {
                let number = self.batch.samples.len() as u32;
                let first_edit = self.batch.edits.len() as u32;
                edits(number, sample, &mut self.batch.edits);
                let edits = self.batch.edits.len() as u32 - first_edit;
                let last = first + row.tokens.len() as u32 - 1;
                self.batch.samples.push((last, sample_row(sample, first_edit, edits)));
            }
        }
        if self.batch.edits.len() > self.model.edits_max() as usize {
            let (have, most) = (self.batch.edits.len(), self.model.edits_max());
            return Err(RunError::Device(format!(
                "{have} changed logits in a step, at most {most}"
            )));
        }
        Ok(())
    }
}

fn sample_row(sample: &SampleInput<'_>, first_edit: u32, edits: u32) -> SampleRow {
    let s = sample.sampling;
    SampleRow {
        temperature: s.temperature,
        top_k: s.top_k,
        top_p: s.top_p,
        min_p: s.min_p,
        unit: sample.unit(),
        first_edit,
        edits,
        repetition: s.repetition_penalty,
        presence: s.presence_penalty,
        frequency: s.frequency_penalty,
        top: s.logprobs.map_or(0, |n| n + 1),
        ..SampleRow::default()
    }
}

/// The logits of row `number` that penalties, bias and bans change, one edit per token.
fn edits(number: u32, sample: &SampleInput<'_>, out: &mut Vec<Edit>) {
    let s = sample.sampling;
    let mut changed: BTreeMap<u32, Edit> = BTreeMap::new();
    let fresh = |token| Edit { row: number, token, ..Edit::default() };
    let counted = s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
    let repeated = s.repetition_penalty != 1.0;
    if counted || repeated {
        let skip = if repeated { 0 } else { sample.prompt_len as usize };
        for (at, &token) in sample.history.iter().enumerate().skip(skip) {
            let edit = changed.entry(token).or_insert_with(|| fresh(token));
            edit.seen = u32::from(repeated);
            edit.times += u32::from(counted && at >= sample.prompt_len as usize);
        }
    }
    for &(token, bias) in &s.logit_bias {
        changed.entry(token).or_insert_with(|| fresh(token)).bias += bias;
    }
    for &token in sample.banned {
        changed.entry(token).or_insert_with(|| fresh(token)).bias = BANNED;
    }
    out.extend(changed.into_values());
}

impl From<DeviceError> for RunError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Lost(why) => RunError::DeviceLost(why),
            DeviceError::OutOfMemory { .. } => RunError::OutOfMemory(error.to_string()),
            other => RunError::Device(other.to_string()),
        }
    }
}

fn sampled(result: SampleResult, top: u32) -> Sampled {
    let logprobs = (top > 0).then_some(TokenLogprobs { chosen: result.logprob, top: result.top });
    Sampled { token: result.token, finite: result.finite, logprobs }
}

impl Runner for DeviceRunner {
    fn capacity(&self) -> Capacity {
        let options = &self.model.options;
        Capacity { tokens: options.step_tokens_max, sequences: options.sequences_max }
    }

    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        Box::pin(async move {
            self.fill(input)?;
            self.model.record(&self.batch, &mut self.recording);
            let finished = self.device.submit(&self.recording)?.await?;
            let expected = self.batch.samples.len();
            let results = self.model.results(&self.batch, &finished.bytes);
            if results.len() != expected {
                return Err(RunError::WrongCount { expected, found: results.len() });
            }
            let rows = results.into_iter().zip(&self.batch.samples);
            Ok(rows.map(|(result, sample)| sampled(result, sample.1.top)).collect())
        })
    }
}
