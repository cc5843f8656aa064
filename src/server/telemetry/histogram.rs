//! Counts by upper bound, as Prometheus has them.

use std::fmt::Write;

/// Seconds until a first token, and of other phases of a request.
pub(super) const PHASES: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Seconds between tokens.
pub(super) const GAPS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
/// Seconds of whole requests.
pub(super) const WHOLES: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// Seconds of a part of a step.
pub(super) const STEPS: &[f64] = &[
    0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5,
];
/// Seconds that a cached block was not used.
pub(super) const IDLES: &[f64] =
    &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 1800.0];
/// Tokens.
pub(super) const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    20_000.0, 50_000.0, 100_000.0,
];
/// Choices.
pub(super) const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// Observations of one quantity.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: the last counts what lies above all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub fn observe(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|&bound| bound < value)] += 1;
        self.sum += value;
    }

    pub fn observe_micros(&mut self, from: u64, to: u64) {
        self.observe(to.saturating_sub(from) as f64 / 1e6);
    }

    /// The lines of `name`; `labels` without braces, not empty.
    pub fn render(&self, out: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        let bounds = self.bounds.iter().map(|bound| bound.to_string());
        for (bound, count) in bounds.chain(["+Inf".to_string()]).zip(&self.counts) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", self.sum);
        let _ = writeln!(out, "{name}_count{{{labels}}} {below}");
    }
}
