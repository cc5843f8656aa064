//! The real [`Runner`]: a model on a device. Turns the rows of a step into a batch, runs its
//! recording and reads the sampled ids.

use super::runner_api::{
    Capacity, KernelTime, NextIds, Probe, Probed, RunError, RunFuture, Runner, SampleInput,
    Sampled, StepInput, StepOutput, StepRow, SwapFuture, TokenLogprobs, Wanted,
};
use crate::base::{Activations, KvType};
use crate::model::{Batch, BatchRow, Edit, Model, SampleResult, SampleRow, kernel_name};
use crate::record::{Device, DeviceError, Facts, Pending, Recording, Timing};
use crate::sched::BlockSwap;
use std::collections::{BTreeMap, VecDeque};

/// Added to the logit of a token that may not be chosen. Finite, so that no NaN arises.
const BANNED: f32 = -1e30;

/// A model with the device that holds it.
pub struct DeviceRunner {
    model: Model,
    device: Box<dyn Device>,
    recording: Recording,
    /// Steps that were submitted, in their order.
    flights: VecDeque<Flight>,
    /// Batches that no flight needs, kept for their memory.
    spare: Vec<Batch>,
    /// What host blocks hold.
    host: BTreeMap<u32, Box<[u8]>>,
}

/// A step that was submitted, and what its results mean.
struct Flight {
    pending: Pending,
    batch: Batch,
    asked: Vec<Asked>,
}

/// What a row asks for.
enum Asked {
    /// Log-probabilities of so many tokens that were given.
    Given(usize),
    /// So many hidden states.
    Hidden(usize),
    /// A token, with log-probabilities or without.
    Token { logprobs: bool },
}

impl DeviceRunner {
    pub fn new(model: Model, device: Box<dyn Device>) -> Self {
        Self {
            model,
            device,
            recording: Recording::default(),
            flights: VecDeque::new(),
            spare: Vec::new(),
            host: BTreeMap::new(),
        }
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    fn fill(&self, input: StepInput<'_>, batch: &mut Batch) -> Result<(), RunError> {
        batch.clear();
        let size = self.model.options.block_size;
        batch.copies.extend(input.copies.iter().map(|c| (c.from.0, c.to.0)));
        let before = self.flights.back().map(|flight| &flight.batch);
        let answers: Vec<u32> =
            before.map(|batch| sampled_rows(batch).collect()).unwrap_or_default();
        for row in input.rows {
            let needed = (row.start + row.tokens.len() as u32).div_ceil(size) as usize;
            let blocks = row.blocks.get(..needed).ok_or_else(|| {
                let (have, sequence) = (row.blocks.len(), row.sequence);
                RunError::Device(format!("sequence {sequence} has {have} of {needed} blocks"))
            })?;
            let first = batch.tokens.len() as u32;
            batch.rows.push(BatchRow {
                first,
                len: row.tokens.len() as u32,
                start: row.start,
                table: batch.tables.len() as u32,
            });
            match row.chosen {
                None => batch.tokens.extend_from_slice(row.tokens),
                Some(answer) => {
                    let missing = || RunError::Device(format!("no answer {answer} is in the air"));
                    let sample = answers.get(answer as usize).ok_or_else(missing)?;
                    batch.tokens.push(Batch::chosen(*sample));
                }
            }
            batch.tables.extend(blocks.iter().map(|b| b.0));
            if let Some(probe) = &row.probe {
                ask(batch, first, probe);
            }
            for sample in row.samples() {
                let number = batch.samples.len() as u32;
                let first_edit = batch.edits.len() as u32;
                edits(number, &sample, &mut batch.edits);
                let edits = batch.edits.len() as u32 - first_edit;
                let last = first + (sample.position - row.start) - 1;
                batch.samples.push((last, sample_row(&sample, first_edit, edits)));
            }
        }
        if batch.edits.len() > self.model.edits_max() as usize {
            let (have, most) = (batch.edits.len(), self.model.edits_max());
            return Err(RunError::Device(format!(
                "{have} changed logits in a step, at most {most}"
            )));
        }
        Ok(())
    }

    fn submit(&mut self, input: StepInput<'_>, batch: &mut Batch) -> Result<Pending, RunError> {
        self.fill(input, batch)?;
        if input.sampling().any(|(_, sample)| sample.guide.is_some()) {
            return self.submit_guided(input, batch);
        }
        self.model.record(batch, &mut self.recording);
        Ok(self.device.submit(&self.recording)?)
    }

    /// A step some of whose rows are held to grammars: while the device computes the layers, the
    /// masks come from other threads.
    fn submit_guided(
        &mut self,
        input: StepInput<'_>,
        batch: &mut Batch,
    ) -> Result<Pending, RunError> {
        self.recording.clear();
        let meta = self.model.record_layers(batch, &mut self.recording);
        let layers = self.device.submit(&self.recording)?;
        let chosen: Vec<_> = sampled_rows(batch).collect();
        for (at, (_, sample)) in chosen.into_iter().zip(input.sampling()) {
            if let Some(mask) = sample.guide.and_then(NextIds::mask) {
                batch.hold(at as usize, &mask);
            }
        }
        self.recording.clear();
        self.model.record_answers(batch, &meta, &mut self.recording);
        let answers = self.device.submit(&self.recording)?;
        Ok(Box::pin(async move {
            let layers = layers.await?;
            let mut answers = answers.await?;
            answers.timings.extend(layers.timings);
            Ok(answers)
        }))
    }

    pub fn facts(&self) -> &Facts {
        self.device.facts()
    }

    /// How keys and values are stored.
    pub fn kv(&self) -> KvType {
        self.model.options.kv
    }

    /// How products take what they read, where their formats let them choose.
    pub fn activations(&self) -> Activations {
        self.model.options.activations
    }

    /// What came back, dealt out to the rows that asked.
    fn answers(&self, flight: &Flight, bytes: &[u8]) -> Option<StepOutput> {
        let mut results = self.model.results(&flight.batch, bytes).into_iter();
        let mut states = self.model.hidden(&flight.batch, bytes).into_iter();
        let mut output = StepOutput::default();
        for asked in &flight.asked {
            match *asked {
                Asked::Given(count) => output.probed.push(scored(results.by_ref().take(count))),
                Asked::Hidden(count) => {
                    output.probed.push(Probed::Hidden(states.by_ref().take(count).collect()));
                }
                Asked::Token { logprobs } => {
                    output.sampled.push(sampled(results.next()?, logprobs));
                }
            }
        }
        Some(output)
    }
}

/// The samples of a batch that choose a token of a sequence; the others' are given.
fn sampled_rows(batch: &Batch) -> impl Iterator<Item = u32> {
    (0..).zip(&batch.samples).filter(|(_, sample)| sample.1.given == 0).map(|(at, _)| at)
}

/// Asks about tokens of the row whose first token is `first`.
fn ask(batch: &mut Batch, first: u32, probe: &Probe<'_>) {
    let tokens = first + probe.first..first + probe.first + probe.count;
    match probe.wanted {
        Wanted::Logprobs { next, top } => {
            let row = |&id: &u32| SampleRow { given: id + 1, top: top + 1, ..Default::default() };
            batch.samples.extend(tokens.zip(next.iter().map(row)));
        }
        Wanted::Hidden => batch.hidden.extend(tokens),
    }
}

/// What the rows ask for, in the order of their answers.
fn asked(input: StepInput<'_>) -> Vec<Asked> {
    let of_row = |row: &StepRow<'_>, all: &mut Vec<Asked>| {
        all.extend(row.probe.as_ref().map(|probe| match probe.wanted {
            Wanted::Logprobs { .. } => Asked::Given(probe.count as usize),
            Wanted::Hidden => Asked::Hidden(probe.count as usize),
        }));
        let token = |s: SampleInput<'_>| Asked::Token { logprobs: s.sampling.logprobs.is_some() };
        all.extend(row.samples().map(token));
    };
    let mut all = Vec::new();
    input.rows.iter().for_each(|row| of_row(row, &mut all));
    all
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
        let (tokens, sequences) = (options.step_tokens_max, options.sequences_max);
        Capacity { tokens, sequences, flights: 2 }
    }

    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        Box::pin(async move {
            self.launch(input)?;
            self.land().await
        })
    }

    fn launch(&mut self, input: StepInput<'_>) -> Result<(), RunError> {
        let mut batch = self.spare.pop().unwrap_or_default();
        let pending = self.submit(input, &mut batch)?;
        self.flights.push_back(Flight { pending, batch, asked: asked(input) });
        Ok(())
    }

    fn land<'a>(&'a mut self) -> RunFuture<'a> {
        Box::pin(async move {
            let none = || RunError::Device("no step is in the air".to_string());
            let mut flight = self.flights.pop_front().ok_or_else(none)?;
            let finished = (&mut flight.pending).await.inspect_err(|_| self.flights.clear())?;
            let expected = flight.batch.samples.len();
            let short = || {
                let found = self.model.results(&flight.batch, &finished.bytes).len();
                RunError::WrongCount { expected, found }
            };
            let mut output = self.answers(&flight, &finished.bytes).ok_or_else(short)?;
            output.kernels = by_kernel(&finished.timings);
            self.spare.push(flight.batch);
            Ok(output)
        })
    }
}
