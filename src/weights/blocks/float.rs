//! F32, F16 and BF16: one value a block, little-endian.

use super::{Codec, to_half};
use half::{bf16, f16};

pub(super) const F32: Codec = Codec {
    decode: |block, out| out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
    encode: Some(|values, out| out.extend(values[0].to_le_bytes())),
};

pub(super) const F16: Codec = Codec {
    decode: |block, out| out[0] = f16::from_le_bytes([block[0], block[1]]).to_f32(),
    encode: Some(|values, out| out.extend(to_half(values[0]))),
};

/// BF16 is the upper half of an f32: decoding is exact, NaN's payload included.
pub(super) const BF16: Codec = Codec {
    decode: |block, out| out[0] = f32::from_bits(u32::from_le_bytes([0, 0, block[0], block[1]])),
    encode: Some(|values, out| {
        let near = bf16::from_f32(values[0]);
        let near = match (near.is_infinite() && values[0].is_finite(), values[0] < 0.0) {
            (false, _) => near,
            (true, false) => bf16::MAX,
            (true, true) => bf16::MIN,
        };
        out.extend(near.to_le_bytes());
    }),
};
