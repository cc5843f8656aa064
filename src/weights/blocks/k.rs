//! The K formats: 256 values a block, cut into groups of 16 or 32 that have small scales (and
//! minimums) of their own, in units of the block's half-precision d (and dmin). Layouts as in
//! ggml's `ggml-quants.h`.

use super::{Codec, half_at};

pub(super) const Q2_K: Codec = Codec { decode: decode_2, encode: None };
pub(super) const Q3_K: Codec = Codec { decode: decode_3, encode: None };
pub(super) const Q4_K: Codec = Codec { decode: decode_4, encode: None };
pub(super) const Q5_K: Codec = Codec { decode: decode_5, encode: None };
pub(super) const Q6_K: Codec = Codec { decode: decode_6, encode: None };

/// 16 bytes of scale (low nibble) and minimum, 64 bytes of codes, d, dmin;
/// value = d·scale·q − dmin·minimum, groups of 16.
fn decode_2(block: &[u8], out: &mut [f32]) {
    let (d, least) = (half_at(block, 80), half_at(block, 82));
    for (i, out) in out.iter_mut().enumerate() {
        let group = block[i / 16];
        let q = two_bits(&block[16..80], i);
        *out = d * f32::from(group & 15) * f32::from(q) - least * f32::from(group >> 4);
    }
}

/// 32 bytes of third bits (set: nothing is subtracted), 64 bytes of codes, 12 bytes of 6-bit
/// scales, d; value = d·(scale − 32)·(q − 4), groups of 16.
fn decode_3(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 108);
    let scales = &block[96..108];
    for (i, out) in out.iter_mut().enumerate() {
        let group = i / 16;
        let low = scales[group % 8] >> (4 * (group / 8)) & 15;
        let high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
        let scale = i16::from(low | high << 4) - 32;
        let third = block[i % 32] >> (i / 32) & 1;
        let q = i16::from(two_bits(&block[32..96], i) | third << 2) - 4;
        *out = d * f32::from(scale) * f32::from(q);
    }
}

/// d, dmin, 12 bytes of 6-bit scales and minimums, 128 bytes of codes;
/// value = d·scale·q − dmin·minimum, groups of 32.
fn decode_4(block: &[u8], out: &mut [f32]) {
    decode_pairs(block, out, |i| nibble(&block[16..], i));
}

/// As Q4_K, with 32 bytes of fifth bits before the codes.
fn decode_5(block: &[u8], out: &mut [f32]) {
    decode_pairs(block, out, |i| {
        nibble(&block[48..], i) | (block[16 + i % 32] >> (i / 32) & 1) << 4
    });
}

fn decode_pairs(block: &[u8], out: &mut [f32], code: impl Fn(usize) -> u8) {
    let (d, least) = (half_at(block, 0), half_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, minimum) = pair(&block[4..16], i / 32);
        *out = d * f32::from(scale) * f32::from(code(i)) - least * f32::from(minimum);
    }
}

/// Scale and minimum of group `g`: groups 4 to 7 have their upper bits in the top of groups 0 to 3.
fn pair(bytes: &[u8], g: usize) -> (u8, u8) {
    if g < 4 {
        return (bytes[g] & 63, bytes[g + 4] & 63);
    }
    let (low, scale, minimum) = (bytes[g + 4], bytes[g - 4] >> 6, bytes[g] >> 6);
    (low & 15 | scale << 4, low >> 4 | minimum << 4)
}

/// 128 bytes of nibbles, 64 bytes of upper two bits, 16 signed scales, d;
/// value = d·scale·(q − 32), groups of 16.
fn decode_6(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 208);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = block[192 + i / 16].cast_signed();
        // Both fields come in two halves of 128 values; in each, four runs of 32.
        let (half, run) = (i / 128, i % 128 / 32);
        let low = block[half * 64 + i % 64] >> (4 * (run / 2)) & 15;
        let high = block[128 + half * 32 + i % 32] >> (2 * run) & 3;
        *out = d * f32::from(scale) * f32::from((low | high << 4).cast_signed() - 32);
    }
}

/// Two-bit code `i`: two halves of 128 values, in each byte one value of each of four runs of 32.
fn two_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3
}

/// Four-bit code `i`: runs of 64 values, the first 32 in the low nibbles of 32 bytes.
fn nibble(codes: &[u8], i: usize) -> u8 {
    codes[i / 64 * 32 + i % 32] >> (4 * (i % 64 / 32)) & 15
}
