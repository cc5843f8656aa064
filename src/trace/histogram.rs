//! Counts of values by size, in constant memory: exact below 128, then 64 classes for each power of
//! two, so that a quantile is at most 1/64 too high.

/// Classes of one power of two.
const CLASSES: u64 = 64;

/// How often which values came.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    pub fn record(&mut self, value: u64) {
        let class = class(value);
        if self.counts.len() <= class {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// `None` of nothing.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The smallest value that at least this many of a thousand do not exceed; `None` of nothing.
    pub fn quantile(&self, permille: u32) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(permille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0u128;
        let at = self.counts.iter().position(|&count| {
            seen += u128::from(count);
            seen >= rank
        })?;
        Some(largest(at).min(self.max))
    }
}

fn class(value: u64) -> usize {
    // 64-bit values have 58 powers of two beyond the exact part: a small number.
    let shift = u64::from(value.max(1).ilog2()).saturating_sub(6);
    (shift * CLASSES + (value >> shift)) as usize
}

/// The largest value of a class.
fn largest(class: usize) -> u64 {
    let class = class as u64;
    let shift = (class / CLASSES).saturating_sub(1);
    let top = class - shift * CLASSES;
    (top << shift) + ((1 << shift) - 1)
}
