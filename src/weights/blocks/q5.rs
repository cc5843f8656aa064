//! Five bits a value, 32 values a block: a 32-bit word whose bit i is value i's fifth bit, then
//! 16 bytes of nibbles in the order of four-bit blocks.
//!
//! Q5_0: f16 d, word, nibbles; value = d·(q − 16).
//! Q5_1: f16 d, f16 m, word, nibbles; value = d·q + m.

use super::{Codec, half_at, inverse, largest, range, scale_to_half, to_half};

pub(super) const Q5_0: Codec = Codec { decode: decode_0, encode: Some(encode_0) };
pub(super) const Q5_1: Codec = Codec { decode: decode_1, encode: Some(encode_1) };

fn decode_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    unpack(&block[2..], out, |q| d * (f32::from(q) - 16.0));
}

fn decode_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    unpack(&block[4..], out, |q| d * f32::from(q) + m);
}

fn encode_0(values: &[f32], out: &mut Vec<u8>) {
    // The value of the largest magnitude becomes exactly −16·d, whatever its sign.
    let d = largest(values) / -16.0;
    let id = inverse(d);
    out.extend(scale_to_half(d));
    pack(values, out, |v| ((v * id + 16.5) as u8).min(31));
}

fn encode_1(values: &[f32], out: &mut Vec<u8>) {
    let (least, most) = range(values);
    let d = (most - least) / 31.0;
    let id = inverse(d);
    out.extend(scale_to_half(d));
    out.extend(to_half(least));
    pack(values, out, |v| (((v - least) * id + 0.5) as u8).min(31));
}

fn unpack(codes: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    let fifth = u32::from_le_bytes([codes[0], codes[1], codes[2], codes[3]]);
    let bit = |i: usize| ((fifth >> i & 1) as u8) << 4;
    for (i, byte) in codes[4..].iter().enumerate() {
        out[i] = value(byte & 15 | bit(i));
        out[i + 16] = value(byte >> 4 | bit(i + 16));
    }
}

fn pack(values: &[f32], out: &mut Vec<u8>, code: impl Fn(f32) -> u8) {
    let mut codes = [0; 32];
    for (to, value) in codes.iter_mut().zip(values) {
        *to = code(*value);
    }
    let fifth = (0..32).fold(0u32, |word, i| word | u32::from(codes[i] >> 4) << i);
    out.extend(fifth.to_le_bytes());
    out.extend((0..16).map(|i| codes[i] & 15 | codes[i + 16] << 4));
}
