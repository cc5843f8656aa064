//! Single kernels, by shape, format and tokens, beside what the device can do at most: bytes
//! copied per second, and multiply-adds of a shader that does nothing else.

mod cases;
mod lab;
mod tune;

use super::Shape;
use crate::base::{Activations, Format, KvType};
use crate::kernels::layout;
use crate::kernels::mul::{Matrix, Mul, activations, halves_bytes, packed_stride};
use crate::record::{Binding, Device, DeviceError, Facts, Recording, VariantId};
use cases::Case;
use lab::Lab;
use serde::Serialize;

pub use tune::WayMeasured;

/// What the device can do at most.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ceilings {
    /// Read and written, of copies between large buffers.
    pub copy_gb_per_second: f64,
    /// f32, two operations each; absent on the processor, which has no shader for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fma_gop_per_second: Option<f64>,
}

/// One kernel at one size.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KernelMeasured {
    pub kernel: String,
    /// The variants that were chosen.
    pub variant: String,
    pub shape: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<&'static str>,
    pub tokens: u32,
    pub micros: f64,
    /// What told the time: `timestamps` of each launch, or the `wall` clock over many.
    pub by: &'static str,
    pub gop_per_second: f64,
    pub gb_per_second: f64,
    /// Of [`Ceilings::copy_gb_per_second`].
    pub bandwidth_percent: f64,
    /// Of [`Ceilings::fma_gop_per_second`]; matrix units may take it beyond 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fma_percent: Option<f64>,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub formats: Vec<Format>,
    /// Taken by turns, where the format lets it choose.
    pub activations: Vec<Activations>,
    pub tokens: Vec<u32>,
    /// Keys of a decoding sequence.
    pub depth: u32,
    pub kv: KvType,
}

/// A device for single kernels.
pub struct KernelBench {
    lab: Lab,
    ceilings: Ceilings,
}

impl KernelBench {
    /// `fma` is the id of [`add_fma_shader`]'s shader, where the device has it.
    pub fn new(device: Box<dyn Device>, fma: Option<VariantId>) -> Result<Self, DeviceError> {
        let mut lab = Lab::new(device);
        let copy_gb_per_second = cases::copies(&mut lab)?;
        let fma_gop_per_second = fma.map(|id| cases::multiply_adds(&mut lab, id)).transpose()?;
        Ok(Self { lab, ceilings: Ceilings { copy_gb_per_second, fma_gop_per_second } })
    }

    pub fn facts(&self) -> &Facts {
        &self.lab.facts
    }

    pub fn ceilings(&self) -> Ceilings {
        self.ceilings
    }

    /// `[rows, cols]` in every format, times every number of tokens.
    pub fn matrix(
        &mut self,
        name: &str,
        [rows, cols]: [u32; 2],
        wanted: &Wanted,
    ) -> Result<Vec<KernelMeasured>, DeviceError> {
        let mut out = Vec::new();
        for &format in &wanted.formats {
            let format = Shape::stored(format, cols);
            let matrices = self.lab.matrices(format, [rows, cols])?;
            let mut kinds: Vec<_> =
                wanted.activations.iter().map(|wanted| activations(format, *wanted)).collect();
            kinds.dedup();
            for &tokens in &wanted.tokens {
                for &taken in &kinds {
                    out.push(self.product(name, &matrices, tokens, taken)?);
                }
            }
            self.lab.clear();
        }
        Ok(out)
    }

    /// Equal matrices, which take turns, times `tokens` rows.
    fn product(
        &mut self,
        name: &str,
        matrices: &[Matrix],
        tokens: u32,
        taken: Activations,
    ) -> Result<KernelMeasured, DeviceError> {
        let Matrix { format, rows, cols, .. } = matrices[0];
        let weights = self.lab.stream_bytes(format, [rows, cols]);
        let (x, y) = (self.lab.rows(tokens, cols)?, self.lab.rows(tokens, rows)?);
        let halves = self.lab.zeros(halves_bytes(tokens, cols))?;
        let (read, packed) = match taken {
            Activations::F32 => (cols, None),
            Activations::Int8 => {
                let words = packed_stride(cols);
                (words, Some(self.lab.zeros(u64::from(tokens) * u64::from(words) * 4)?))
            }
        };
        let facts = self.lab.facts.clone();
        let mut record = products(matrices, tokens, ([x, y, halves], packed), facts);
        let values = u64::from(rows) * u64::from(cols);
        let moved = u64::from(tokens) * u64::from(rows + read) * 4;
        let case = Case {
            kernel: name.to_string(),
            shape: format!("{rows}x{cols}"),
            format: Some(format.name()),
            tokens,
            operations: 2.0 * values as f64 * f64::from(tokens),
            bytes: (weights + moved) as f64,
        };
        let measured = self.measured(case, &mut record);
        let lent =
            [Some(x), Some(y), Some(halves), packed].into_iter().flatten().collect::<Vec<_>>();
        self.lab.free(&lent);
        measured
    }

    /// Every kernel of a step of this shape; those of mixtures and latents are in no shape.
    pub fn shape(
        &mut self,
        shape: &Shape,
        wanted: &Wanted,
    ) -> Result<Vec<KernelMeasured>, DeviceError> {
        let mut out = Vec::new();
        let mut seen = Vec::new();
        for (name, size) in shape.matrices() {
            if !seen.contains(&size) {
                seen.push(size);
                out.extend(self.matrix(&format!("mul {name}"), size, wanted)?);
            }
        }
        for &tokens in &wanted.tokens {
            for decode in [true, false] {
                let rows: Vec<_> = match decode {
                    true => (0..tokens).map(|n| (n, 1, wanted.depth.max(1) - 1)).collect(),
                    false => vec![(0, tokens, 0)],
                };
                out.push(self.attention(shape, wanted.kv, decode, &rows)?);
            }
            out.push(self.norm(shape, tokens)?);
            out.push(self.rope(shape, wanted.kv, tokens)?);
            out.push(self.gate(shape, tokens)?);
            if wanted.activations.contains(&Activations::Int8) {
                out.push(self.pack(shape, tokens)?);
            }
            out.push(self.sampling(shape, tokens)?);
        }
        Ok(out)
    }

    fn measured(
        &mut self,
        case: Case,
        record: &mut dyn FnMut(usize, &mut Recording),
    ) -> Result<KernelMeasured, DeviceError> {
        let timed = self.lab.time(record)?;
        let Case { kernel, shape, format, tokens, operations, bytes } = case;
        let (gop_per_second, gb_per_second) = (operations / timed.nanos, bytes / timed.nanos);
        Ok(KernelMeasured {
            kernel,
            variant: timed.variants,
            shape,
            format,
            tokens,
            micros: timed.nanos / 1e3,
            by: timed.by,
            gop_per_second,
            gb_per_second,
            bandwidth_percent: 100.0 * gb_per_second / self.ceilings.copy_gb_per_second,
            fma_percent: self.ceilings.fma_gop_per_second.map(|most| 100.0 * gop_per_second / most),
        })
    }
}

/// Products of `tokens` rows of x, or of x packed, with one of equal matrices after the other.
fn products(
    matrices: &[Matrix],
    tokens: u32,
    ([x, y, halves], packed): ([Binding; 3], Option<Binding>),
    facts: Facts,
) -> impl FnMut(usize, &mut Recording) {
    move |turn, recording| {
        let w = &matrices[turn % matrices.len()];
        Mul {
            w,
            tokens,
            x,
            x_stride: w.cols.next_multiple_of(layout::K_BLOCK),
            packed,
            y,
            y_stride: w.rows.next_multiple_of(layout::K_BLOCK),
            bias: None,
            accumulate: false,
            scale: 1.0,
            gate: None,
            halves,
        }
        .record(&facts, recording);
    }
}

/// Adds the shader whose speed is [`Ceilings::fma_gop_per_second`].
#[cfg(feature = "gpu")]
pub fn add_fma_shader(gpu: &mut crate::gpu::Gpu) -> Result<VariantId, DeviceError> {
    gpu.add_shader("fma", include_str!("fma.wgsl"))
}
