//! How long a step takes: fitted to a real run, or the roofline of a device and a model (Williams,
//! Waterman, Patterson, "Roofline", 2009).

use crate::trace::{StepCost, Work};

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
    /// Bytes per second to host memory and back.
    pub link: f64,
    pub shape: ModelShape,
}

impl Roofline {
    /// An H100 SXM: 3.35 TB/s, 989 Tflop/s in bfloat16 without sparsity (NVIDIA's data sheet);
    /// 50 of the 64 GB/s of PCIe 5 with 16 lanes.
    pub const H100_8B: Self = Self {
        bandwidth: 3.35e12,
        flops: 989e12,
        overhead_micros: 100.0,
        link: 50e9,
        shape: ModelShape::LLAMA_3_8B,
    };

    /// KV blocks of `block_size` tokens beside the weights in a tenth less than `memory` bytes.
    pub fn blocks(&self, memory: f64, block_size: u32) -> u32 {
        let free = (0.9 * memory - self.shape.weight_bytes).max(0.0);
        (free / (self.shape.kv_bytes_per_token * f64::from(block_size))) as u32
    }

    /// Picoseconds of moving one block to host memory or back.
    pub fn block_picos(&self, block_size: u32) -> u64 {
        (self.shape.kv_bytes_per_token * f64::from(block_size) / self.link * 1e12) as u64
    }

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
    /// Fitted to measured steps.
    Fitted(StepCost),
    Roofline(Roofline),
}

impl Cost {
    /// Microseconds of a step with these rows `(start, len)`.
    pub fn micros(&self, rows: impl Iterator<Item = (u32, u32)>) -> u64 {
        let (mut work, mut keys) = (Work::default(), 0u64);
        for (start, len) in rows {
            work = work + Work::row(start, len);
            keys += u64::from(start);
        }
        match self {
            Self::Fitted(cost) => cost.micros(work),
            Self::Roofline(roofline) => {
                let (memory, arithmetic) =
                    roofline.bounds(work.tokens as f64, work.pairs as f64, keys as f64);
                (memory.max(arithmetic) * 1e6 + roofline.overhead_micros).ceil() as u64
            }
        }
        .max(1)
    }
}
