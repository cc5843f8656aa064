//! Four bits a value that choose from a table of sixteen steps, closer together near zero.
//!
//! IQ4_NL: f16 d, 16 bytes of nibbles in Q4_0's order; value = d·table[q]. IQ4_XS: eight such
//! groups of 32 with one f16 d; each has a 6-bit scale, value = d·(scale − 32)·table[q].

use super::{Codec, half_at};

pub(super) const IQ4_NL: Codec = Codec { decode: decode_nl, encode: None };
pub(super) const IQ4_XS: Codec = Codec { decode: decode_xs, encode: None };

/// The steps, from ggml's `kvalues_iq4nl`.
const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

fn decode_nl(block: &[u8], out: &mut [f32]) {
    unpack(half_at(block, 0), &block[2..], out);
}

/// f16 d, u16 of upper scale bits, 4 bytes of lower scale nibbles, 128 bytes of codes.
fn decode_xs(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for (g, out) in out.chunks_exact_mut(32).enumerate() {
        let low = block[4 + g / 2] >> (4 * (g % 2)) & 15;
        let scale = i16::from(low) | ((high >> (2 * g) & 3) << 4).cast_signed();
        unpack(d * f32::from(scale - 32), &block[8 + g * 16..][..16], out);
    }
}

fn unpack(scale: f32, codes: &[u8], out: &mut [f32]) {
    for (i, byte) in codes.iter().enumerate() {
        out[i] = scale * f32::from(STEPS[usize::from(byte & 15)]);
        out[i + 16] = scale * f32::from(STEPS[usize::from(byte >> 4)]);
    }
}
