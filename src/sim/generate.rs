//! Seeded workloads: gamma or Poisson arrivals, lognormal lengths, shared prefixes, tenants.

use super::arrivals::{Arrival, Prompt};
use crate::base::threefry2x32;

/// Lognormal lengths.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lengths {
    /// In tokens.
    pub mean: f64,
    /// Standard deviation ÷ mean; 0 gives every length the mean.
    pub cv: f64,
    pub max: u32,
}

/// What a generator makes.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    pub requests: u64,
    /// Requests per second; infinite: all at the start.
    pub rate: f64,
    /// Standard deviation ÷ mean of the time between two arrivals: 1 is Poisson, more is bursty.
    pub burstiness: f64,
    /// The part of a prompt that no other request has.
    pub prompt: Lengths,
    pub output: Lengths,
    /// Different prefixes, and the tokens of each; a prompt begins with one of them.
    pub prefixes: u32,
    pub prefix_tokens: u32,
    /// Tenants, all with the same share of the requests.
    pub tenants: u32,
    pub seed: u64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            requests: 1000,
            rate: 10.0,
            burstiness: 1.0,
            prompt: Lengths { mean: 256.0, cv: 1.0, max: 4096 },
            output: Lengths { mean: 64.0, cv: 1.0, max: 1024 },
            prefixes: 0,
            prefix_tokens: 0,
            tenants: 1,
            seed: 0,
        }
    }
}

/// A number that a workload cannot have.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{field}: {value} is not {wanted}")]
pub struct WorkloadError {
    pub field: &'static str,
    pub value: f64,
    pub wanted: &'static str,
}

impl Workload {
    pub fn generator(&self) -> Result<Generator, WorkloadError> {
        let ranges = [
            ("rate", self.rate, self.rate > 0.0, "a number above 0"),
            ("burstiness", self.burstiness, (0.0..=100.0).contains(&self.burstiness), "0 to 100"),
            ("prompt.mean", self.prompt.mean, self.prompt.mean >= 1.0, "at least 1"),
            ("prompt.cv", self.prompt.cv, (0.0..=100.0).contains(&self.prompt.cv), "0 to 100"),
            ("output.mean", self.output.mean, self.output.mean >= 1.0, "at least 1"),
            ("output.cv", self.output.cv, (0.0..=100.0).contains(&self.output.cv), "0 to 100"),
            ("tenants", f64::from(self.tenants), self.tenants > 0, "at least 1"),
        ];
        for (field, value, right, wanted) in ranges {
            if !right {
                return Err(WorkloadError { field, value, wanted });
            }
        }
        Ok(Generator { workload: self.clone(), next: 0, micros: 0.0 })
    }
}

/// The arrivals of a [`Workload`], in order of time.
#[derive(Clone, Debug)]
pub struct Generator {
    workload: Workload,
    next: u64,
    micros: f64,
}

impl Iterator for Generator {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let workload = &self.workload;
        if self.next >= workload.requests {
            return None;
        }
        let mut draws = Draws { seed: workload.seed, request: self.next, used: 0 };
        if self.next > 0 && workload.rate.is_finite() {
            self.micros += draws.gap(workload.burstiness) * 1e6 / workload.rate;
        }
        let own = draws.length(&workload.prompt);
        let output = draws.length(&workload.output);
        let tenant = draws.below(workload.tenants);
        let mut pieces = Vec::new();
        if workload.prefixes > 0 && workload.prefix_tokens > 0 {
            let which = u64::from(draws.below(workload.prefixes));
            pieces.push((mix(workload.seed, which, 2), workload.prefix_tokens));
        }
        pieces.push((mix(workload.seed, self.next, 3), own));
        self.next += 1;
        Some(Arrival {
            micros: self.micros as u64,
            prompt: Prompt::Pieces(pieces),
            output,
            output_max: workload.output.max,
            tenant,
            class: 0,
            said: Vec::new(),
        })
    }
}

/// Gives `arrivals` the moments that a workload of such gaps has.
pub fn draw_gaps(arrivals: &mut [Arrival], gaps: &Workload) -> Result<(), WorkloadError> {
    let workload = Workload { requests: arrivals.len() as u64, ..gaps.clone() };
    let drawn = workload.generator()?;
    arrivals.iter_mut().zip(drawn).for_each(|(arrival, drawn)| arrival.micros = drawn.micros);
    Ok(())
}

/// Has `arrivals`, in order of time, come at the rate of `gaps`. What they have of a pattern stays;
/// where all come at once there is none, and gaps are drawn.
pub fn at_rate(arrivals: &mut [Arrival], gaps: &Workload) -> Result<(), WorkloadError> {
    let span = arrivals.last().map_or(0, |last| last.micros) as f64 / 1e6;
    if span == 0.0 || gaps.rate.is_infinite() {
        return draw_gaps(arrivals, gaps);
    }
    let scale = arrivals.len() as f64 / span / gaps.rate;
    arrivals.iter_mut().for_each(|a| a.micros = (a.micros as f64 * scale) as u64);
    Ok(())
}

fn mix(seed: u64, number: u64, kind: u32) -> u64 {
    let key = [seed as u32, (seed >> 32) as u32 ^ kind];
    let [a, b] = threefry2x32(key, [number as u32, (number >> 32) as u32]);
    u64::from(a) | u64::from(b) << 32
}

/// The draws of one request: a function of seed, request and count alone.
struct Draws {
    seed: u64,
    request: u64,
    used: u32,
}

impl Draws {
    /// In (0, 1).
    fn unit(&mut self) -> f64 {
        self.used += 1;
        let key = [self.seed as u32, (self.seed >> 32) as u32 ^ (self.used << 8)];
        let counter = [self.request as u32, (self.request >> 32) as u32];
        let [a, b] = threefry2x32(key, counter);
        let bits = (u64::from(a) << 32 | u64::from(b)) >> 12;
        (bits as f64 + 0.5) / (1u64 << 52) as f64
    }

    fn below(&mut self, n: u32) -> u32 {
        ((self.unit() * f64::from(n)) as u32).min(n.saturating_sub(1))
    }

    /// Box and Muller's.
    fn normal(&mut self) -> f64 {
        let (u, v) = (self.unit(), self.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn length(&mut self, lengths: &Lengths) -> u32 {
        let variance = (1.0 + lengths.cv * lengths.cv).ln();
        let mean = lengths.mean.ln() - variance / 2.0;
        let drawn = (mean + variance.sqrt() * self.normal()).exp().round();
        (drawn as u32).clamp(1, lengths.max.max(1))
    }

    /// Of mean 1: gamma of shape 1/cv² (Marsaglia and Tsang, "A simple method for generating gamma
    /// variables", 2000).
    fn gap(&mut self, cv: f64) -> f64 {
        if cv == 0.0 {
            return 1.0;
        }
        let shape = 1.0 / (cv * cv);
        // Below shape 1 a draw of the next shape is brought down by a power of a uniform one.
        let (more, power) = match shape < 1.0 {
            true => (shape + 1.0, self.unit().powf(1.0 / shape)),
            false => (shape, 1.0),
        };
        let d = more - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * power / shape;
            }
        }
    }
}
