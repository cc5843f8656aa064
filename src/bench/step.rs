//! Where the time of a decode step goes: a plan of the real scheduler, the recording, the
//! submission, the device, and what comes back. No engine, no text and no client around it. By
//! turns with those, steps two of which are in the air: each is planned, recorded and submitted
//! while the device runs the one before, from whose choice it goes on.

use crate::base::{Limits, RequestId, SequenceId};
use crate::model::{Batch, Model, Options, SampleResult, SampleRow, kernel_name};
use crate::record::{Device, DeviceError, DeviceKind, Facts, Pending, Recording, Timing};
use crate::sched::{NewSequence, Outcome, Plan, Scheduler};
use crate::trace::Event;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Steps that are not counted: the first ones make what is made lazily.
const WARM: u32 = 2;

/// Steps whose launches are timed.
const TIMED: u32 = 3;

/// After so many single steps come [`CHAIN`] of which two are in the air at a time.
const TURN: u32 = 4;
const CHAIN: u32 = 6;

/// What a step consists of, in microseconds; of each the median of its own.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct StepParts {
    /// `Scheduler::plan` and `Scheduler::commit`.
    pub plan: f64,
    /// From the plan to a recording.
    pub record: f64,
    /// Until `Device::submit` returns.
    pub submit: f64,
    /// Until the result is there, less what a submission without launches takes for that.
    pub device: f64,
    /// What a submission takes that only brings the same bytes back, and reading them.
    pub readback: f64,
}

/// All launches of one kernel in a step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KernelShare {
    pub kernel: &'static str,
    pub launches: u32,
    pub micros: f64,
    /// Of the time of all kernels.
    pub percent: f64,
}

/// Decode steps of one size.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StepMeasured {
    pub batch: u32,
    pub depth: u32,
    pub steps: u32,
    /// The median of whole steps.
    pub micros: f64,
    pub parts: StepParts,
    /// Percentage of a step that is not `device`.
    pub outside_percent: f64,
    /// From one result to the next with two steps in the air; the median.
    pub micros_in_flight: f64,
    pub tokens_per_second: f64,
    pub launches: usize,
    /// From further steps whose launches are timed one by one; empty where the device cannot.
    pub kernels: Vec<KernelShare>,
}

/// Sequences that decode, as the scheduler holds them.
struct World {
    sched: Scheduler,
    plan: Plan,
    events: Vec<Event>,
    outcomes: Vec<Outcome>,
}

impl World {
    /// `batch` sequences with `depth` computed tokens each. Nothing ran on the device: what its
    /// cache holds changes no time.
    fn new(options: &Options, batch: u32, depth: u32, steps: u32) -> Self {
        let depth = depth.max(1);
        let limits = Limits {
            sequences_max: batch,
            step_tokens_max: batch.saturating_mul(depth),
            block_size: options.block_size,
            blocks: options.blocks,
            context_max: options.context_max,
            queue_max: batch,
            watermark_permille: 0,
            ..Limits::default()
        };
        let (sched, plan) = (Scheduler::new(limits), Plan::default());
        let mut world = Self { sched, plan, events: Vec::new(), outcomes: Vec::new() };
        for id in 0..batch {
            let prompt = vec![id; depth as usize];
            let new = NewSequence::new(SequenceId(id), RequestId(id), prompt, steps);
            // Blocks are not shared: each sequence's keys and values are read for themselves.
            let new = NewSequence { uncached: true, ..new };
            // Refused, it has no row, which `fill` tells.
            let _ = world.sched.submit(new, 0, &mut world.events);
        }
        world.plan();
        world.commit(&[]);
        world
    }

    fn plan(&mut self) {
        self.events.clear();
        self.sched.plan(0, &mut self.plan, &mut self.events);
    }

    fn commit(&mut self, results: &[SampleResult]) {
        let plan = std::mem::take(&mut self.plan);
        self.commit_plan(&plan, results);
        self.plan = plan;
    }

    fn commit_plan(&mut self, plan: &Plan, results: &[SampleResult]) {
        self.outcomes.clear();
        let tokens = results.iter().map(|r| r.token).chain(std::iter::repeat(0));
        self.outcomes.extend(plan.rows.iter().zip(tokens).map(|(row, token)| Outcome {
            sequence: row.sequence,
            token: row.samples.then_some(token),
            finish: None,
        }));
        self.sched.commit(plan, &self.outcomes, 0, &mut self.events);
    }
}

/// A model on a device.
pub struct StepBench {
    model: Model,
    device: Box<dyn Device>,
    batch: Batch,
    recording: Recording,
}

impl StepBench {
    pub fn new(model: Model, device: Box<dyn Device>) -> Self {
        let (batch, recording) = (Batch::default(), Recording::default());
        Self { model, device, batch, recording }
    }

    pub fn facts(&self) -> &Facts {
        self.device.facts()
    }

    pub fn options(&self) -> &Options {
        &self.model.options
    }

    /// Positions that a sequence needs for `steps` steps at `depth`.
    pub fn positions(depth: u32, steps: u32) -> u32 {
        depth.max(1).saturating_add(Self::all_steps(steps))
    }

    /// Those that a measurement of `steps` consists of.
    fn all_steps(steps: u32) -> u32 {
        let single = steps.saturating_add(WARM);
        let chains = single.div_ceil(TURN).saturating_mul(CHAIN);
        single.saturating_add(chains).saturating_add(TIMED + 1)
    }

    /// `steps` steps of `batch` sequences that have `depth` tokens in the cache when they begin.
    pub fn measure(
        &mut self,
        batch: u32,
        depth: u32,
        steps: u32,
    ) -> Result<StepMeasured, DeviceError> {
        let mut world = World::new(&self.model.options, batch, depth, Self::all_steps(steps));
        self.device.time_launches(false);
        let (mut found, mut in_flight) = (Vec::new(), Vec::new());
        for step in 0..WARM + steps {
            let parts = self.step(&mut world, batch)?;
            if step >= WARM {
                found.push(parts);
            }
            if step % TURN == TURN - 1 || step + 1 == WARM + steps {
                self.chain(&mut world, batch, &mut in_flight)?;
            }
        }
        let floor = self.floor(steps)?;
        let kernels = match self.device.time_launches(true) {
            true => self.timed(&mut world, batch)?,
            false => Vec::new(),
        };
        self.device.time_launches(false);
        let of = |part: fn(&StepParts) -> f64| median(found.iter().map(part).collect());
        let (submit, wait, read) = (of(|p| p.submit), of(|p| p.device), of(|p| p.readback));
        // The plain-Rust twins compute before they return.
        let (submit, device) = match self.facts().kind {
            DeviceKind::Cpu => (0.0, submit + wait),
            _ => (submit, (wait - floor).max(0.0)),
        };
        let readback = read + floor.min(wait);
        let parts =
            StepParts { plan: of(|p| p.plan), record: of(|p| p.record), submit, device, readback };
        let micros =
            of(|p| p.plan + p.record + p.submit + p.device + p.readback).max(f64::MIN_POSITIVE);
        Ok(StepMeasured {
            batch,
            depth,
            steps,
            micros,
            parts,
            outside_percent: (100.0 * (1.0 - device / micros)).max(0.0),
            micros_in_flight: median(in_flight),
            tokens_per_second: f64::from(batch) / micros * 1e6,
            launches: self.recording.commands.len(),
            kernels,
        })
    }

    /// One step; `device` is the whole wait here.
    fn step(&mut self, world: &mut World, batch: u32) -> Result<StepParts, DeviceError> {
        let mut clock = Lap(Instant::now());
        world.plan();
        let plan = clock.lap();
        self.fill(world, batch)?;
        self.model.record(&self.batch, &mut self.recording);
        let record = clock.lap();
        let pending = self.device.submit(&self.recording)?;
        let submit = clock.lap();
        let finished = pollster::block_on(pending)?;
        let device = clock.lap();
        let results = self.model.results(&self.batch, &finished.bytes);
        let readback = clock.lap();
        world.commit(&results);
        Ok(StepParts { plan: plan + clock.lap(), record, submit, device, readback })
    }

    /// Steps in a row, two in the air: the microseconds from one result to the next, but for those
    /// at either end, where one flies alone.
    fn chain(
        &mut self,
        world: &mut World,
        batch: u32,
        out: &mut Vec<f64>,
    ) -> Result<(), DeviceError> {
        let mut flights: VecDeque<(Plan, Pending)> = VecDeque::new();
        let mut clock = Lap(Instant::now());
        for sent in 0..=CHAIN {
            if sent < CHAIN {
                world.plan();
                self.fill(world, batch)?;
                self.model.record(&self.batch, &mut self.recording);
                let pending = self.device.submit(&self.recording)?;
                flights.push_back((std::mem::take(&mut world.plan), pending));
            }
            if sent == 0 {
                continue;
            }
            let Some((plan, pending)) = flights.pop_front() else { break };
            let finished = pollster::block_on(pending)?;
            // Whichever batch it was, its samples are alike.
            world.commit_plan(&plan, &self.model.results(&self.batch, &finished.bytes));
            let micros = clock.lap();
            out.extend((2..CHAIN).contains(&sent).then_some(micros));
        }
        Ok(())
    }

    /// The plan as the model takes it.
    fn fill(&mut self, world: &World, batch: u32) -> Result<(), DeviceError> {
        let rows = &world.plan.rows;
        if rows.len() as u32 != batch || rows.iter().any(|row| row.len != 1) {
            let Options { blocks, context_max, .. } = self.model.options;
            return Err(DeviceError::Validation(format!(
                "{batch} sequences do not decode together: {blocks} blocks or a context of \
                 {context_max} are too few for them"
            )));
        }
        self.batch.clear();
        for (row, place) in rows.iter().zip(0..) {
            // One that is not known yet, the device knows.
            let known = world.sched.tokens(row.sequence).get(row.start as usize);
            let token = known.copied().unwrap_or(Batch::chosen(place));
            let at = self.batch.push_row(&[token], row.start, &[]);
            self.batch.tables.extend(world.sched.blocks(row.sequence).iter().map(|b| b.0));
            self.batch.samples.push((at, SampleRow::default()));
        }
        Ok(())
    }

    /// Microseconds from submitting nothing but the step's downloads until they are here.
    fn floor(&mut self, runs: u32) -> Result<f64, DeviceError> {
        let downloads = self.recording.downloads.clone();
        let empty = Recording { downloads, ..Recording::default() };
        let mut found = Vec::new();
        for _ in 0..runs.max(3) {
            let pending = self.device.submit(&empty)?;
            let mut clock = Lap(Instant::now());
            pollster::block_on(pending)?;
            found.push(clock.lap());
        }
        Ok(median(found))
    }

    /// Some steps whose launches are timed, summed by kernel, the longest first.
    fn timed(&mut self, world: &mut World, batch: u32) -> Result<Vec<KernelShare>, DeviceError> {
        let mut sums: BTreeMap<&'static str, (u32, u64)> = BTreeMap::new();
        for _ in 0..TIMED {
            world.plan();
            self.fill(world, batch)?;
            self.model.record(&self.batch, &mut self.recording);
            let finished = self.device.run(&self.recording)?;
            for Timing { variant, nanos } in &finished.timings {
                let sum = sums.entry(kernel_name(*variant)).or_default();
                *sum = (sum.0 + 1, sum.1.saturating_add(*nanos));
            }
            let results = self.model.results(&self.batch, &finished.bytes);
            world.commit(&results);
        }
        let all = sums.values().map(|sum| sum.1).sum::<u64>().max(1) as f64;
        let share = |(kernel, (launches, nanos)): (&'static str, (u32, u64))| KernelShare {
            kernel,
            launches: launches / TIMED,
            micros: nanos as f64 / 1e3 / f64::from(TIMED),
            percent: 100.0 * nanos as f64 / all,
        };
        let mut out: Vec<_> = sums.into_iter().map(share).collect();
        out.sort_by(|a, b| b.micros.total_cmp(&a.micros));
        Ok(out)
    }
}

/// Microseconds between two looks.
struct Lap(Instant);

impl Lap {
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        (now - std::mem::replace(&mut self.0, now)).as_nanos() as f64 / 1e3
    }
}

/// The middle one; 0 of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
