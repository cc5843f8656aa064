//! How long a step takes: fitted to a real run, or the roofline of a device and a model (Williams,
//! Waterman, Patterson, "Roofline", 2009).

use crate::trace::RowCost;

/// Fixed + tokens + pairs of query and key, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Linear {
    pub fixed: u64,
    pub token: u64,
    pub pair: u64,
}

/// What a model asks of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ModelShape {
    /// Of all weights that a step reads.
    pub weight_bytes: f64,
    /// Multiplications and additions for one token, attention aside.
    pub flops_per_token: f64,
    /// Keys and values of one position.
    pub kv_bytes_per_token: f64,
    /// For one query and one key, all layers and heads.
    pub flops_per_pair: f64,
}

impl ModelShape {
    /// Llama 3 8B in bfloat16: 8.03·10⁹ weights, 32 layers, 32 query and 8 KV heads of 128.
    pub const LLAMA_3_8B: Self = Self {
        weight_bytes: 16.06e9,
        flops_per_token: 16.06e9,
        kv_bytes_per_token: 131_072.0,
        flops_per_pair: 4.0 * 32.0 * 32.0 * 128.0,
    };
}

/// A device's two ceilings over a model's two demands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Roofline {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Floating-point operations per second.
    pub flops: f64,
    /// Of every step, whatever is in it.
    pub overhead_micros: f64,
    pub shape: ModelShape,
}

impl Roofline {
    /// An H100 SXM: 3.35 TB/s, 989 Tflop/s in bfloat16 without sparsity (NVIDIA's data sheet).
    pub const H100_8B: Self = Self {
        bandwidth: 3.35e12,
        flops: 989e12,
        overhead_micros: 100.0,
        shape: ModelShape::LLAMA_3_8B,
    };

    /// Operations per byte above which a step is bound by arithmetic.
    pub fn ridge(&self) -> f64 {
        self.flops / self.bandwidth
    }

    /// Seconds that memory and arithmetic take for `tokens` positions whose queries meet `pairs`
    /// keys, of which `keys` are read from memory.
    pub fn bounds(&self, tokens: f64, pairs: f64, keys: f64) -> (f64, f64) {
        let shape = &self.shape;
        let bytes = shape.weight_bytes + (keys + tokens) * shape.kv_bytes_per_token;
        let flops = tokens * shape.flops_per_token + pairs * shape.flops_per_pair;
        (bytes / self.bandwidth, flops / self.flops)
    }
}

/// A model of step time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cost {
    Linear(Linear),
    Roofline(Roofline),
}

/// Picoseconds of a second.
const PICOS: f64 = 1e12;

impl Cost {
    /// Microseconds of a step with these rows `(start, len)`.
    pub fn micros(&self, rows: impl Iterator<Item = (u32, u32)>) -> u64 {
        let (mut tokens, mut pairs, mut keys) = (0u64, 0u64, 0u64);
        for (start, len) in rows {
            tokens += u64::from(len);
            pairs += pairs_of(start, len);
            keys += u64::from(start);
        }
        match self {
            Self::Linear(linear) => {
                let part = |each: u64, count: u64| u128::from(each) * u128::from(count);
                let picos = u128::from(linear.fixed)
                    + part(linear.token, tokens)
                    + part(linear.pair, pairs);
                u64::try_from(picos.div_ceil(1_000_000)).unwrap_or(u64::MAX)
            }
            Self::Roofline(roofline) => {
                let (memory, arithmetic) =
                    roofline.bounds(tokens as f64, pairs as f64, keys as f64);
                (memory.max(arithmetic) * 1e6 + roofline.overhead_micros).ceil() as u64
            }
        }
        .max(1)
    }

    /// As costs that add up: what attribution shares a step's time by.
    pub fn linear(&self) -> Linear {
        match self {
            Self::Linear(linear) => *linear,
            Self::Roofline(roofline) => {
                let shape = &roofline.shape;
                let fixed = roofline.overhead_micros * 1e6
                    + shape.weight_bytes / roofline.bandwidth * PICOS;
                Linear {
                    fixed: fixed as u64,
                    token: (shape.flops_per_token / roofline.flops * PICOS) as u64,
                    pair: (shape.kv_bytes_per_token / roofline.bandwidth * PICOS) as u64,
                }
            }
        }
    }
}

/// Pairs of query and key of `len` positions from `start` on.
fn pairs_of(start: u32, len: u32) -> u64 {
    let (start, len) = (u64::from(start), u64::from(len));
    len * start + len * (len + 1) / 2
}

impl RowCost for Linear {
    fn fixed(&self) -> u64 {
        self.fixed
    }

    fn row(&self, start: u32, len: u32) -> u64 {
        let tokens = self.token.saturating_mul(u64::from(len));
        tokens.saturating_add(self.pair.saturating_mul(pairs_of(start, len)))
    }
}
