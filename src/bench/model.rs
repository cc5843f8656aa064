//! The shape of llama-bench: prompt processing (pp) and token generation (tg), fixed token ids,
//! no tokenising and no text, at several batch sizes; mean ± standard deviation of the runs.

use crate::base::Clock;
use crate::model::{Batch, Model, Options};
use crate::record::{Device, DeviceError, Facts, Recording};
use serde::Serialize;

/// One test: tokens per second, all sequences together.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub test: String,
    pub batch: u32,
    pub mean: f64,
    pub deviation: f64,
    pub runs: Vec<f64>,
}

impl Measured {
    fn of(test: String, batch: u32, runs: Vec<f64>) -> Self {
        let count = runs.len().max(1) as f64;
        let mean = runs.iter().sum::<f64>() / count;
        let square = runs.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / count;
        Self { test, batch, mean, deviation: square.sqrt(), runs }
    }
}

/// A model on a device, without scheduler.
pub struct BenchModel<C> {
    model: Model,
    device: Box<dyn Device>,
    clock: C,
    batch: Batch,
    recording: Recording,
}

impl<C: Clock> BenchModel<C> {
    pub fn new(model: Model, device: Box<dyn Device>, clock: C) -> Self {
        let (batch, recording) = (Batch::default(), Recording::default());
        Self { model, device, clock, batch, recording }
    }

    pub fn facts(&self) -> &Facts {
        self.device.facts()
    }

    pub fn options(&self) -> &Options {
        &self.model.options
    }

    /// Blocks of sequence `number`, as many as the pool gives each.
    fn table(&self, number: u32, of: u32) -> Vec<u32> {
        let each = self.model.options.blocks / of;
        (number * each..(number + 1) * each).collect()
    }

    fn step(&mut self) -> Result<(), DeviceError> {
        self.model.record(&self.batch, &mut self.recording);
        self.device.run(&self.recording)?;
        Ok(())
    }

    /// One prompt of `tokens` behind `depth` others, cut by the step budget.
    pub fn prompt(&mut self, tokens: u32, depth: u32, runs: u32) -> Result<Measured, DeviceError> {
        let mut speeds = Vec::new();
        for run in 0..=runs {
            let start = self.clock.now_micros();
            let table = self.table(0, 1);
            let budget = self.model.options.step_tokens_max;
            for first in (0..tokens).step_by(budget as usize) {
                let len = budget.min(tokens - first);
                self.batch.clear();
                let ids = ids(first, len, &self.model);
                let at = self.batch.push_row(&ids, depth + first, &table);
                self.batch.samples.push((at + len - 1, Default::default()));
                self.step()?;
            }
            if run > 0 {
                speeds.push(self.speed(tokens, start));
            }
        }
        Ok(Measured::of(test("pp", tokens, depth), 1, speeds))
    }

    /// `count` steps of `batch` sequences with `depth` tokens each. What the cache holds changes no
    /// time, so nothing is computed for it.
    pub fn generate(
        &mut self,
        count: u32,
        batch: u32,
        depth: u32,
        runs: u32,
    ) -> Result<Measured, DeviceError> {
        let mut speeds = Vec::new();
        for run in 0..=runs {
            let start = self.clock.now_micros();
            for position in 0..count {
                self.batch.clear();
                for number in 0..batch {
                    let table = self.table(number, batch);
                    let token = ids(position + number, 1, &self.model);
                    let at = self.batch.push_row(&token, depth + position, &table);
                    self.batch.samples.push((at, Default::default()));
                }
                self.step()?;
            }
            if run > 0 {
                speeds.push(self.speed(count * batch, start));
            }
        }
        Ok(Measured::of(test("tg", count, depth), batch, speeds))
    }

    fn speed(&self, tokens: u32, start: u64) -> f64 {
        let micros = self.clock.now_micros().saturating_sub(start).max(1);
        f64::from(tokens) / micros as f64 * 1e6
    }
}

/// As llama-bench names tests.
fn test(kind: &str, tokens: u32, depth: u32) -> String {
    match depth {
        0 => format!("{kind}{tokens}"),
        depth => format!("{kind}{tokens} @ d{depth}"),
    }
}

/// Fixed, varied token ids.
fn ids(first: u32, count: u32, model: &Model) -> Vec<u32> {
    (first..first + count).map(|i| (i * 7919 + 13) % model.spec.vocab).collect()
}
