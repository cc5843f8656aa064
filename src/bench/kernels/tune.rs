//! Which of the ways that have the same bits serves a product best on this device.

use super::lab::Record;
use super::{KernelBench, products};
use crate::base::{Activations, Format};
use crate::kernels::mul::{Matrix, Way, halves_bytes, packed_stride, ways};
use crate::record::{DeviceError, Facts, Tuned, TunedChoice};
use serde::Serialize;

/// Rounds in which all ways take turns; the median of each counts.
const ROUNDS: usize = 5;

/// A way must take less than this part of the rule's time to be taken in its place.
const WORTH: f64 = 0.97;

/// One way at one size.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WayMeasured {
    pub format: &'static str,
    pub activations: Activations,
    pub rows: u32,
    pub cols: u32,
    pub tokens: u32,
    pub variant: String,
    pub micros: f64,
    /// What the kernels' own table takes.
    pub rule: bool,
    /// What is taken from now on.
    pub chosen: bool,
}

/// The facts of a device on which every product of `w` goes `way`.
fn only(way: Way, w: &Matrix, activations: Activations, facts: &Facts) -> Facts {
    let choice = TunedChoice { from: 1, kernel: way.kernel.stem.to_string(), tile: way.tile };
    let (format, rows, cols) = (w.format, w.rows, w.cols);
    let choices = vec![choice];
    Facts { tuned: vec![Tuned { format, activations, rows, cols, choices }], ..facts.clone() }
}

impl KernelBench {
    /// Measures every way for so many `tokens` at a time, which go upwards, of rows of x as they
    /// are or packed before.
    pub fn tune(
        &mut self,
        (format, activations): (Format, Activations),
        shape: [u32; 2],
        tokens: &[u32],
    ) -> Result<(Tuned, Vec<WayMeasured>), DeviceError> {
        let [rows, cols] = shape;
        let matrices = self.lab.matrices(format, shape)?;
        let (mut choices, mut found): (Vec<TunedChoice>, _) = (Vec::new(), Vec::new());
        for &tokens in tokens {
            let halves = self.lab.zeros(halves_bytes(tokens, cols))?;
            let operands = [self.lab.rows(tokens, cols)?, self.lab.rows(tokens, rows)?, halves];
            let bytes = u64::from(tokens) * u64::from(packed_stride(cols)) * 4;
            let packed = self.lab.zeros(bytes)?;
            let read = (activations == Activations::Int8).then_some(packed);
            let facts = &self.lab.facts;
            let ways = ways(&matrices[0], tokens, facts, activations);
            let facts = ways.iter().map(|way| only(*way, &matrices[0], activations, facts));
            let mut records: Vec<_> =
                facts.map(|facts| products(&matrices, tokens, (operands, read), facts)).collect();
            let mut turns: Vec<Record<'_>> = Vec::new();
            turns.extend(records.iter_mut().map(|record| record as Record<'_>));
            let timed = self.lab.by_turns(ROUNDS, &mut turns)?;
            let nanos = |n: usize| timed[n].nanos;
            let best = (0..ways.len()).min_by(|&a, &b| nanos(a).total_cmp(&nanos(b)));
            let best = best.filter(|&best| nanos(best) < nanos(0) * WORTH).unwrap_or(0);
            found.extend(timed.iter().enumerate().map(|(n, timed)| WayMeasured {
                format: format.name(),
                activations,
                rows,
                cols,
                tokens,
                variant: timed.variants.clone(),
                micros: timed.nanos / 1e3,
                rule: n == 0,
                chosen: n == best,
            }));
            let Way { kernel, tile } = ways[best];
            choices.push(TunedChoice { from: tokens, kernel: kernel.stem.to_string(), tile });
            self.lab.free(&operands);
            self.lab.free(&[packed]);
        }
        self.lab.clear();
        choices.dedup_by(|next, before| (&next.kernel, next.tile) == (&before.kernel, before.tile));
        Ok((Tuned { format, activations, rows, cols, choices }, found))
    }
}
