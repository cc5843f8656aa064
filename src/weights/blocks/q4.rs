//! Four bits a value, 32 values a block. Byte i holds value i in its low nibble and value i + 16
//! in its high nibble.
//!
//! Q4_0: f16 d, 16 bytes; value = d·(q − 8). Q4_1: f16 d, f16 m, 16 bytes; value = d·q + m.

use super::{Codec, half_at, inverse, largest, range, scale_to_half, to_half};

pub(super) const Q4_0: Codec = Codec { decode: decode_0, encode: Some(encode_0) };
pub(super) const Q4_1: Codec = Codec { decode: decode_1, encode: Some(encode_1) };

fn decode_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, byte) in block[2..].iter().enumerate() {
        out[i] = d * (f32::from(byte & 15) - 8.0);
        out[i + 16] = d * (f32::from(byte >> 4) - 8.0);
    }
}

fn decode_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, byte) in block[4..].iter().enumerate() {
        out[i] = d * f32::from(byte & 15) + m;
        out[i + 16] = d * f32::from(byte >> 4) + m;
    }
}

fn encode_0(values: &[f32], out: &mut Vec<u8>) {
    // The value of the largest magnitude becomes exactly −8·d, whatever its sign.
    let d = largest(values) / -8.0;
    let id = inverse(d);
    out.extend(scale_to_half(d));
    pack(values, out, |v| ((v * id + 8.5) as u8).min(15));
}

fn encode_1(values: &[f32], out: &mut Vec<u8>) {
    let (least, most) = range(values);
    let d = (most - least) / 15.0;
    let id = inverse(d);
    out.extend(scale_to_half(d));
    out.extend(to_half(least));
    pack(values, out, |v| (((v - least) * id + 0.5) as u8).min(15));
}

fn pack(values: &[f32], out: &mut Vec<u8>, code: impl Fn(f32) -> u8) {
    out.extend((0..16).map(|i| code(values[i]) | code(values[i + 16]) << 4));
}
