//! How long a step takes: fixed + tokens + pairs of query and key, fitted to measured steps while
//! they run, in integers, so that a latency target holds on a device nobody tuned.
//!
//! Least squares of the relative error. Steps are kept as sums by size (powers of two of tokens),
//! each of which forgets its own past: hours of small steps do not wash out what is known of large
//! ones. A coefficient that would be negative, or that the steps seen so far cannot tell from
//! another, is left out.

use std::collections::VecDeque;

/// Sizes of step told apart.
const SIZES: usize = 24;
/// A size class remembers about this many of its steps.
const MEMORY_LOG2: u32 = 5;
/// A step counts as at most this many times its prediction, so that one stall is not believed.
const STALL: u64 = 4;
/// The slack is what this many steps took beyond their prediction, but for the worst of them: of
/// those to come, fewer than one in a hundred take more. The first steps show the fit's youth, not
/// the device.
const ERRORS: usize = 256;
const FIRST_STEPS: u32 = 32;
/// Most slack, in thousandths: steps are then predicted at half the target.
const SLACK_MAX_PERMILLE: u64 = 1000;
/// Pairs are fitted in units of this many.
const PAIRS_LOG2: u32 = 8;
/// Longest step and most pairs (in units): with these no sum reaches 2^112.
const MICROS_MAX: u64 = (1 << 26) - 1;
const UNITS_MAX: u64 = (1 << 26) - 1;
/// Sums are cut to this many bits before determinants of them are taken.
const BITS: u32 = 38;

/// The work of a step, as its time depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Work {
    pub tokens: u64,
    /// Keys read, summed over the step's tokens.
    pub pairs: u64,
}

impl Work {
    /// `len` positions of one sequence from `start` on: each reads all keys up to itself.
    pub fn row(start: u32, len: u32) -> Self {
        let (start, len) = (u64::from(start), u64::from(len));
        // Recordings may be damaged: nothing here may overflow.
        Self { tokens: len, pairs: (len * start).saturating_add(len * (len + 1) / 2) }
    }
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            pairs: self.pairs.saturating_add(other.pairs),
        }
    }
}

/// A fitted step time, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StepCost {
    pub fixed: u64,
    pub token: u64,
    pub pair: u64,
}

impl StepCost {
    fn picos(&self, work: Work) -> u128 {
        let part = |each: u64, count: u64| u128::from(each) * u128::from(count);
        u128::from(self.fixed) + part(self.token, work.tokens) + part(self.pair, work.pairs)
    }

    pub fn micros(&self, work: Work) -> u64 {
        u64::try_from(self.picos(work) / 1_000_000).unwrap_or(u64::MAX)
    }

    /// What this work adds to a step, in picoseconds.
    pub fn marginal(&self, work: Work) -> u64 {
        u64::try_from(self.picos(work) - u128::from(self.fixed)).unwrap_or(u64::MAX)
    }
}

/// A budget and what it was decided on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    pub budget: u32,
    /// Tokens of rows that decode.
    pub decode: u32,
    pub predicted_micros: u64,
    pub cost: StepCost,
    pub slack_permille: u32,
}

/// Weighted sums of 1, tokens, pairs and micros, each with each.
type Sums = [[i128; 4]; 4];

/// The model of step time.
#[derive(Clone, Debug, Default)]
pub struct StepTime {
    sizes: [Sums; SIZES],
    cost: Option<StepCost>,
    steps: u32,
    /// What the last steps took beyond their prediction, in thousandths of it.
    errors: VecDeque<u64>,
}

impl StepTime {
    /// Takes a measured step.
    pub fn observe(&mut self, work: Work, micros: u64) {
        let mut micros = micros.clamp(1, MICROS_MAX);
        if let Some(cost) = self.cost {
            let predicted = cost.micros(work).clamp(1, MICROS_MAX);
            micros = micros.min(predicted.saturating_mul(STALL));
            if self.steps >= FIRST_STEPS {
                self.errors.truncate(ERRORS - 1);
                self.errors.push_front(micros.saturating_sub(predicted) * 1000 / predicted);
            }
        }
        let size = (work.tokens.max(1).ilog2() as usize).min(SIZES - 1);
        let units = (work.pairs >> PAIRS_LOG2).min(UNITS_MAX);
        let x = [1, work.tokens.min(UNITS_MAX), units, micros].map(i128::from);
        // Relative errors: a step counts by the square of its own time.
        let weight = 1i128 << (2 * (MICROS_MAX.ilog2() + 1 - micros.ilog2()));
        for (row, a) in self.sizes[size].iter_mut().zip(x) {
            for (sum, b) in row.iter_mut().zip(x) {
                *sum += a * b * weight - (*sum >> MEMORY_LOG2);
            }
        }
        self.cost = Some(self.fit());
        self.steps = self.steps.saturating_add(1);
    }

    /// By how much a step may take longer than predicted, in thousandths.
    fn slack_permille(&self) -> u32 {
        let mut worst = [0; 2];
        for &error in &self.errors {
            worst =
                if error > worst[0] { [error, worst[0]] } else { [worst[0], worst[1].max(error)] };
        }
        worst[1].min(SLACK_MAX_PERMILLE) as u32
    }

    /// `None` until a step was measured.
    pub fn cost(&self) -> Option<StepCost> {
        self.cost
    }

    fn fit(&self) -> StepCost {
        let mut sums = Sums::default();
        for part in &self.sizes {
            for (row, part) in sums.iter_mut().zip(part) {
                row.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
        }
        for parts in [&[0, 1, 2][..], &[0, 1], &[1, 2], &[1], &[0]] {
            if let Some([fixed, token, units]) = solve(&sums, parts) {
                return StepCost { fixed, token, pair: units >> PAIRS_LOG2 };
            }
        }
        StepCost::default()
    }

    /// The most tokens that a step may have to keep to `target_micros`. `running` are the
    /// (position, tokens missing) of those that run: what lacks one token decodes and comes
    /// first, then pieces of prompts, then newcomers. Where nobody decodes, nobody waits for a
    /// next token, and a step has `most`. Else a token is always left for prompts: more would take
    /// as long as it takes deep in one. Where decoding alone breaks the target, prompts get a
    /// quarter of its time on top: the target is no use then, and to break it by much more is none
    /// either. `least` tokens are left while nothing is known.
    pub fn choose(
        &self,
        target_micros: u32,
        running: impl Iterator<Item = (u32, u32)> + Clone,
        least: u32,
        most: u32,
    ) -> Choice {
        let mut work = Work::default();
        for (at, _) in running.clone().filter(|r| r.1 == 1) {
            work = work + Work::row(at, 1);
        }
        let decode = u32::try_from(work.tokens).unwrap_or(u32::MAX);
        let slack_permille = self.slack_permille();
        let cost = self.cost.unwrap_or_default();
        let lowest = match self.cost {
            _ if decode == 0 => most,
            Some(_) => decode.saturating_add(1).min(most),
            None => decode.saturating_add(least).min(most),
        };
        let mut choice =
            Choice { budget: lowest, decode, predicted_micros: 0, cost, slack_permille };
        let target = u128::from(target_micros) * 1_000_000;
        let alone = cost.picos(work);
        let allowed = match alone < target {
            _ if decode == 0 => u128::MAX,
            true => target * 1000 / (1000 + u128::from(slack_permille)),
            false => alone + alone / 4,
        };
        let mut left = allowed.saturating_sub(alone);
        let newcomers = std::iter::once((0, u32::MAX));
        let mut budget = decode;
        for (start, missing) in running.filter(|r| r.1 > 1).chain(newcomers) {
            let room = missing.min(most.saturating_sub(budget));
            let len = longest_row(&cost, start, room, left);
            let row = Work::row(start, len);
            work = work + row;
            left = left.saturating_sub(cost.picos(row) - u128::from(cost.fixed));
            budget += len;
            if len < missing {
                break;
            }
        }
        if self.cost.is_some() {
            choice.budget = budget.clamp(lowest, most);
        }
        let more = u64::from(choice.budget).saturating_sub(work.tokens);
        choice.predicted_micros = cost.micros(Work { tokens: work.tokens + more, ..work });
        choice
    }
}

/// The longest row from `start` that takes at most `picos` beside the fixed part of a step.
fn longest_row(cost: &StepCost, start: u32, room: u32, picos: u128) -> u32 {
    let (mut fits, mut beyond) = (0, u64::from(room) + 1);
    while beyond - fits > 1 {
        let len = u64::midpoint(fits, beyond);
        let taken = cost.picos(Work::row(start, len as u32)) - u128::from(cost.fixed);
        if taken <= picos { fits = len } else { beyond = len }
    }
    fits as u32
}

/// Least squares over the features `parts` alone, in picoseconds a unit; `None` where they cannot
/// be told apart or one would be negative.
fn solve(sums: &Sums, parts: &[usize]) -> Option<[u64; 3]> {
    // Each feature is cut so that its own square has at most BITS bits; by Cauchy and Schwarz so
    // have the products, and a determinant of three stays far below 127 bits.
    let cut = |i: usize| {
        let bits = i128::BITS - sums[i][i].leading_zeros();
        (bits.saturating_sub(BITS)).div_ceil(2)
    };
    let at = |i: usize, j: usize| sums[i][j] >> (cut(i) + cut(j));
    let columns = |replaced: Option<usize>| {
        let mut m: [[i128; 3]; 3] = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
        for (r, &i) in parts.iter().enumerate() {
            for (c, &j) in parts.iter().enumerate() {
                m[r][c] = at(i, if replaced == Some(c) { 3 } else { j });
            }
        }
        m
    };
    let whole = columns(None);
    let det = determinant(&whole);
    let apart = whole[0][0] * whole[1][1] * whole[2][2];
    // Collinear but for a thousandth: the difference is noise.
    if det <= apart >> 10 {
        return None;
    }
    let mut found = [0; 3];
    for (c, &i) in parts.iter().enumerate() {
        let part = determinant(&columns(Some(c)));
        if part < 0 {
            return None;
        }
        found[i] = picos(part, det, cut(3), cut(i))?;
    }
    Some(found)
}

/// `part / det` microseconds of a cut unit, in picoseconds of a whole one.
fn picos(part: i128, det: i128, up: u32, down: u32) -> Option<u64> {
    let spare = (i128::BITS - det.leading_zeros()).saturating_sub(80);
    let (part, det) = (part >> spare, det >> spare);
    let whole = (part / det).checked_mul(1_000_000)?;
    let rest = (((part % det) << 40) / det * 1_000_000) >> 40;
    let picos = whole.checked_add(rest)?;
    let wide = picos.checked_shl(up).filter(|wide| wide >> up == picos)?;
    u64::try_from(wide >> down).ok()
}

fn determinant(m: &[[i128; 3]; 3]) -> i128 {
    let minor = |a: usize, b: usize| m[1][a] * m[2][b] - m[1][b] * m[2][a];
    m[0][0] * minor(1, 2) - m[0][1] * minor(0, 2) + m[0][2] * minor(0, 1)
}
