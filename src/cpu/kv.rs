//! The stored form of keys and values: twin of `shaders/lib/kv_X` and `put_X`.

use crate::base::KvType;
use crate::kernels::variants::Variant;
use half::f16;
use std::borrow::Cow;

/// Bits beyond this are too large for an f16: halfway from 65504 to 65536.
const F16_LIMIT: f32 = 65520.0;

/// How one cache (K or V of a layer) lies in its words.
#[derive(Clone, Copy)]
pub struct Layout {
    pub kv: KvType,
    pub block_size: usize,
    pub head_dim: usize,
}

impl Layout {
    /// The layout that a variant of attention or of rope_kv reads or writes.
    pub fn of(variant: &Variant, block_size: u32, head_dim: usize) -> Self {
        let name = variant.imports.get("kv").map_or("", String::as_str);
        let kv = name.strip_prefix("kv_").and_then(|kv| kv.parse().ok());
        let kv = kv.unwrap_or_else(|| unreachable!("`{name}` is in the variant table"));
        Self { kv, block_size: block_size as usize, head_dim }
    }

    /// Words of a row's values, and where they begin.
    fn row(self, tile: usize, offset: usize) -> std::ops::Range<usize> {
        let words = match self.kv {
            KvType::F32 => self.head_dim,
            KvType::F16 => self.head_dim / 2,
            KvType::Q8 => self.head_dim / 4,
        };
        let scale = usize::from(self.kv == KvType::Q8);
        let at = tile * self.block_size * (words + scale) + offset * words;
        at..at + words
    }

    /// Where a row's scale lies.
    fn scale(self, tile: usize, offset: usize) -> usize {
        let words = self.head_dim / 4;
        tile * self.block_size * (words + 1) + self.block_size * words + offset
    }

    /// The values of row `offset` of `tile` (block * kv heads + kv head).
    pub fn read(self, cache: &[u32], tile: usize, offset: usize) -> Cow<'_, [f32]> {
        let words = &cache[self.row(tile, offset)];
        match self.kv {
            KvType::F32 => Cow::Borrowed(bytemuck::cast_slice(words)),
            KvType::F16 => {
                let values: &[f16] = bytemuck::cast_slice(words);
                values.iter().map(|v| v.to_f32()).collect()
            }
            KvType::Q8 => {
                let scale = f32::from_bits(cache[self.scale(tile, offset)]);
                let values: &[i8] = bytemuck::cast_slice(words);
                values.iter().map(|v| f32::from(*v) * scale).collect()
            }
        }
    }

    pub fn write(self, cache: &mut [u32], tile: usize, offset: usize, values: &[f32]) {
        let words = &mut cache[self.row(tile, offset)];
        match self.kv {
            KvType::F32 => words.copy_from_slice(bytemuck::cast_slice(values)),
            KvType::F16 => {
                let to: &mut [f16] = bytemuck::cast_slice_mut(words);
                for (to, value) in to.iter_mut().zip(values) {
                    let fits = value.abs() < F16_LIMIT;
                    *to = if fits { f16::from_f32(*value) } else { f16::NAN };
                }
            }
            KvType::Q8 => {
                let top = values.iter().map(|v| v.abs().to_bits()).max().unwrap_or(0);
                let high = f32::from_bits(top);
                let inverse = if high >= 1e-30 { 127.0 / high } else { 0.0 };
                let to: &mut [i8] = bytemuck::cast_slice_mut(words);
                for (to, value) in to.iter_mut().zip(values) {
                    *to = (value * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
                }
                let scale = if high.is_finite() { high * (1.0 / 127.0) } else { f32::NAN };
                cache[self.scale(tile, offset)] = scale.to_bits();
            }
        }
    }
}
