//! What the bytes of each storage format mean: exact decode, and for the simpler formats encode as
//! llama.cpp's reference quantiser does it. This is the reference that kernels and layouts are
//! tested against, not a fast path.
//!
//! A further format is one file here with a [`Codec`], and one line in [`codec`].

mod float;
mod iq4;
mod k;
mod q4;
mod q5;
mod q8;

use crate::base::{Format, threefry2x32};
use half::f16;

/// One format. `decode` gets one block and fills one block's values; `encode` the reverse.
struct Codec {
    decode: fn(&[u8], &mut [f32]),
    encode: Option<Encode>,
}

type Encode = fn(&[f32], &mut Vec<u8>);

fn codec(format: Format) -> &'static Codec {
    match format {
        Format::F32 => &float::F32,
        Format::F16 => &float::F16,
        Format::BF16 => &float::BF16,
        Format::Q4_0 => &q4::Q4_0,
        Format::Q4_1 => &q4::Q4_1,
        Format::Q5_0 => &q5::Q5_0,
        Format::Q5_1 => &q5::Q5_1,
        Format::Q8_0 => &q8::Q8_0,
        Format::Q2_K => &k::Q2_K,
        Format::Q3_K => &k::Q3_K,
        Format::Q4_K => &k::Q4_K,
        Format::Q5_K => &k::Q5_K,
        Format::Q6_K => &k::Q6_K,
        Format::IQ4_NL => &iq4::IQ4_NL,
        Format::IQ4_XS => &iq4::IQ4_XS,
    }
}

/// Decodes whole blocks.
///
/// # Panics
/// If `bytes` is not exactly the blocks of `out.len()` values.
pub fn decode(format: Format, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(
        format.bytes_of(out.len() as u64),
        Some(bytes.len() as u64),
        "decode of {} values from {} bytes of {format}",
        out.len(),
        bytes.len()
    );
    let decode = codec(format).decode;
    let blocks = bytes.chunks_exact(format.block_bytes());
    for (block, values) in blocks.zip(out.chunks_exact_mut(format.block_len())) {
        decode(block, values);
    }
}

/// Whether [`encode`] can write `format`; the others are only read.
pub fn encodes(format: Format) -> bool {
    codec(format).encode.is_some()
}

/// Appends the blocks of `values` to `out`. A finite value beyond the format's range becomes the
/// largest the format has, never infinity.
///
/// # Panics
/// If `values` is no whole number of blocks, or the format is only read.
pub fn encode(format: Format, values: &[f32], out: &mut Vec<u8>) {
    assert!(
        values.len().is_multiple_of(format.block_len()),
        "encode of {} values in blocks of {}",
        values.len(),
        format.block_len()
    );
    let encode = codec(format).encode.expect("a format that is written");
    for block in values.chunks_exact(format.block_len()) {
        encode(block, out);
    }
}

/// `count` blocks of random values, the same for the same seed, about as large as those of trained
/// weights.
pub fn random(format: Format, count: usize, seed: u64) -> Vec<u8> {
    let key = [seed as u32, (seed >> 32) as u32];
    let mut drawn = (0u32..).flat_map(|at| threefry2x32(key, [at, 0]));
    let small = |bits: u32, most: f32| bits as i32 as f32 / i32::MAX as f32 * most;
    let mut out = Vec::with_capacity(count * format.block_bytes());
    let mut values = vec![0.0; format.block_len()];
    for _ in 0..count {
        if encodes(format) {
            values.iter_mut().zip(&mut drawn).for_each(|(value, bits)| *value = small(bits, 0.05));
            encode(format, &values, &mut out);
            continue;
        }
        // Any bits will do, but for the half floats.
        let start = out.len();
        let bytes = drawn.by_ref().flat_map(u32::to_le_bytes);
        out.extend(bytes.take(format.block_bytes()));
        for at in halves(format) {
            let half = to_half(small(drawn.next().unwrap_or(0), 5e-4));
            out[start + at..][..2].copy_from_slice(&half);
        }
    }
    out
}

/// Where half floats lie in the blocks that are only read: the places of ggml's structs.
fn halves(format: Format) -> &'static [usize] {
    match format {
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q6_K => &[208],
        Format::IQ4_NL | Format::IQ4_XS => &[0],
        _ => &[],
    }
}

/// The half-precision number at `at` of a block.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The nearest half-precision number; beyond its range the largest finite one.
fn to_half(value: f32) -> [u8; 2] {
    let half = f16::from_f32(value);
    let half = match (half.is_infinite() && value.is_finite(), value < 0.0) {
        (false, _) => half,
        (true, false) => f16::MAX,
        (true, true) => f16::MIN,
    };
    half.to_le_bytes()
}

/// A block's scale from a quotient that may have left f32's range.
fn scale_to_half(scale: f32) -> [u8; 2] {
    to_half(scale.clamp(f32::MIN, f32::MAX))
}

/// 1 / scale, and 0 for a block of zeros.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// The value of the largest magnitude, the first of equals, with its sign.
fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |max: f32, &v| if v.abs() > max.abs() { v } else { max })
}

/// The least and the greatest value.
fn range(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::MAX, f32::MIN), |(least, most), &v| {
        (if v < least { v } else { least }, if v > most { v } else { most })
    })
}
