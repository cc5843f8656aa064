//! The real [`Runner`]: a model on a device. Turns the rows of a step into a batch, runs its
//! recording and reads the sampled ids.

use super::runner_api::{
    Capacity, KernelTime, Probe, Probed, RunError, RunFuture, Runner, SampleInput, Sampled,
    StepInput, StepOutput, SwapFuture, TokenLogprobs, Wanted,
};
use crate::base::KvType;
use crate::model::{Batch, Edit, Model, SampleResult, SampleRow, kernel_name};
use crate::record::{Device, DeviceError, Facts, Recording, Timing};
use crate::sched::BlockSwap;
use std::collections::BTreeMap;

/// Added to the logit of a token that may not be chosen. Finite, so that no NaN arises.
const BANNED: f32 = -1e30;

/// A model with the device that holds it.
pub struct DeviceRunner {
    model: Model,
    device: Box<dyn Device>,
    batch: Batch,
    recording: Recording,
    /// What host blocks hold.
    host: BTreeMap<u32, Box<[u8]>>,
}

impl DeviceRunner {
    pub fn new(model: Model, device: Box<dyn Device>) -> Self {
        Self {
            model,
            device,
            batch: Batch::default(),
            recording: Recording::default(),
            host: BTreeMap::new(),
        }
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    fn fill(&mut self, input: StepInput<'_>) -> Result<(), RunError> {
        self.batch.clear();
        let size = self.model.options.block_size;
        self.batch.copies.extend(input.copies.iter().map(|c| (c.from.0, c.to.0)));
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
            if let Some(probe) = &row.probe {
                self.probe(first, probe);
            }
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

    pub fn facts(&self) -> &Facts {
        self.device.facts()
    }

    /// How keys and values are stored.
    pub fn kv(&self) -> KvType {
        self.model.options.kv
    }

    /// Asks about tokens of the row whose first token is `first`.
    fn probe(&mut self, first: u32, probe: &Probe<'_>) {
        let tokens = first + probe.first..first + probe.first + probe.count;
        match probe.wanted {
            Wanted::Logprobs { next, top } => {
                let row =
                    |&id: &u32| SampleRow { given: id + 1, top: top + 1, ..Default::default() };
                self.batch.samples.extend(tokens.zip(next.iter().map(row)));
            }
            Wanted::Hidden => self.batch.hidden.extend(tokens),
        }
    }

    /// What came back, dealt out to the rows that asked.
    fn answers(&self, input: StepInput<'_>, bytes: &[u8]) -> Option<StepOutput> {
        let mut results = self.model.results(&self.batch, bytes).into_iter();
        let mut states = self.model.hidden(&self.batch, bytes).into_iter();
        let mut output = StepOutput::default();
        for row in input.rows {
            if let Some(probe) = &row.probe {
                let count = probe.count as usize;
                output.probed.push(match probe.wanted {
                    Wanted::Logprobs { .. } => scored(results.by_ref().take(count)),
                    Wanted::Hidden => Probed::Hidden(states.by_ref().take(count).collect()),
                });
            }
            if let Some(sample) = &row.sample {
                let wanted = sample.sampling.logprobs.is_some();
                output.sampled.push(sampled(results.next()?, wanted));
            }
        }
        Some(output)
    }
}

/// The launches of a step, summed by kernel.
fn by_kernel(timings: &[Timing]) -> Vec<KernelTime> {
    let mut all: BTreeMap<_, KernelTime> = BTreeMap::new();
    for timing in timings {
        let fresh = || KernelTime { kernel: kernel_name(timing.variant), launches: 0, nanos: 0 };
        let time = all.entry(timing.variant).or_insert_with(fresh);
        time.launches += 1;
        time.nanos = time.nanos.saturating_add(timing.nanos);
    }
    all.into_values().collect()
}

/// Log-probabilities of tokens that were given.
fn scored(results: impl Iterator<Item = SampleResult>) -> Probed {
    let one = |r: SampleResult| r.finite.then_some(TokenLogprobs { chosen: r.logprob, top: r.top });
    match results.map(one).collect() {
        Some(logprobs) => Probed::Logprobs(logprobs),
        None => Probed::NotFinite,
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

fn sampled(result: SampleResult, wanted: bool) -> Sampled {
    let logprobs = wanted.then_some(TokenLogprobs { chosen: result.logprob, top: result.top });
    Sampled { token: result.token, finite: result.finite, logprobs }
}

/// Bytes moved by one submission.
const SWAP_BYTES: usize = 32 << 20;

impl DeviceRunner {
    /// Block by block, as many in one recording as [`SWAP_BYTES`] hold.
    async fn swap_out(&mut self, out: &[BlockSwap]) -> Result<(), RunError> {
        let size = self.model.block_bytes() as usize;
        for group in out.chunks((SWAP_BYTES / size).max(1)) {
            let mut recording = Recording::default();
            for swap in group {
                self.model.block_parts(swap.block.0).for_each(|part| recording.download(part));
            }
            let finished = self.device.submit(&recording)?.await?;
            for (swap, bytes) in group.iter().zip(finished.bytes.chunks_exact(size)) {
                self.host.insert(swap.host, bytes.into());
            }
        }
        Ok(())
    }

    async fn swap_in(&mut self, back: &[BlockSwap]) -> Result<(), RunError> {
        let size = self.model.block_bytes() as usize;
        for group in back.chunks((SWAP_BYTES / size).max(1)) {
            let mut recording = Recording::default();
            for swap in group {
                let missing = || RunError::Device(format!("host block {} is empty", swap.host));
                let bytes = self.host.remove(&swap.host).ok_or_else(missing)?;
                let mut at = 0;
                for part in self.model.block_parts(swap.block.0) {
                    let next = at + part.bytes as usize;
                    recording.upload(part.buffer, part.offset, &bytes[at..next]);
                    at = next;
                }
            }
            self.device.submit(&recording)?.await?;
        }
        Ok(())
    }
}

impl Runner for DeviceRunner {
    fn swap<'a>(&'a mut self, out: &'a [BlockSwap], back: &'a [BlockSwap]) -> SwapFuture<'a> {
        Box::pin(async move {
            self.swap_out(out).await?;
            self.swap_in(back).await?;
            Ok(self.model.block_bytes())
        })
    }

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
            let short = || {
                let found = self.model.results(&self.batch, &finished.bytes).len();
                RunError::WrongCount { expected, found }
            };
            let mut output = self.answers(input, &finished.bytes).ok_or_else(short)?;
            output.kernels = by_kernel(&finished.timings);
            Ok(output)
        })
    }
}
