//! How long outputs get: counts of past lengths in buckets a quarter of an octave wide, halved now
//! and then so that old habits fade. Integers only, so that a replay predicts the same.

/// Lengths below 8 have their own bucket; above, four to an octave.
const BUCKETS: usize = 8 + 29 * 4;
/// Counts are halved at this many, so the last few hundred outputs decide.
const TOTAL_MAX: u32 = 512;
/// Fewer observations than this say nothing.
const ENOUGH: u32 = 16;

/// Past output lengths of one kind of request.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: [u32; BUCKETS],
    total: u32,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    pub fn observe(&mut self, length: u32) {
        self.counts[bucket(length)] += 1;
        self.total += 1;
        if self.total >= TOTAL_MAX {
            self.counts.iter_mut().for_each(|c| *c /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// A length that `percent` of the outputs do not exceed; `None` while too few were seen.
    pub fn quantile(&self, percent: u32) -> Option<u32> {
        if self.total < ENOUGH {
            return None;
        }
        let wanted = (u64::from(self.total) * u64::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|&c| {
            seen += u64::from(c);
            seen >= wanted
        });
        at.map(longest)
    }
}

/// Past output lengths by the length of the prompt, an octave a class.
#[derive(Clone, Debug)]
pub(super) struct Lengths(Vec<Histogram>);

impl Default for Lengths {
    fn default() -> Self {
        Self(vec![Histogram::default(); 33])
    }
}

impl Lengths {
    pub fn observe(&mut self, prompt: u32, length: u32) {
        self.0[class(prompt)].observe(length);
    }

    pub fn quantile(&self, prompt: u32, percent: u32) -> Option<u32> {
        self.0[class(prompt)].quantile(percent)
    }
}

fn class(prompt: u32) -> usize {
    (u32::BITS - prompt.leading_zeros()) as usize
}

fn bucket(length: u32) -> usize {
    if length < 8 {
        return length as usize;
    }
    let octave = length.ilog2();
    8 + ((octave - 3) * 4 + ((length >> (octave - 2)) & 3)) as usize
}

/// The largest length of a bucket.
fn longest(bucket: usize) -> u32 {
    if bucket < 8 {
        return bucket as u32;
    }
    let (octave, quarter) = ((bucket - 8) as u32 / 4 + 3, (bucket - 8) as u32 % 4);
    let step = 1u32 << (octave - 2);
    (1u32 << octave) + step * quarter + (step - 1)
}
