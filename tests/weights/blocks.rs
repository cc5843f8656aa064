//! What the bytes of each format mean: blocks made by hand, all half floats, and the reference
//! quantiser's own output.

use crate::support::{Rows, root, shared};
use half::f16;
use std::path::PathBuf;
use tilewright::base::{Format, unit_from_seed};
use tilewright::weights::blocks::{decode, encode, encodes};
use tilewright::weights::{Tensor, Weights};

pub fn rows(rows: &mut Rows) {
    rows.add("weights::blocks_by_hand", blocks_by_hand);
    rows.add("weights::blocks_as_gguf_package_reads_them", blocks_of_gguf_package);
    rows.add("weights::floats_are_exact", floats_are_exact);
    rows.add("weights::encode_keeps_decoded_blocks", encode_keeps_decoded_blocks);
    rows.add("weights::encode_is_within_half_a_step", encode_is_within_half_a_step);
    rows.add("weights::encode_never_makes_infinity", encode_never_makes_infinity);
    rows.add("weights::wrong_lengths_panic", wrong_lengths_panic);
    rows.add_if(shared("fixtures/gguf"), "weights::encode_is_llama_cpp's", encode_is_reference);
    rows.add_if(shared("fixtures/gguf"), "weights::decode_is_near_f32", decode_is_near_f32);
}

fn decoded(format: Format, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / format.block_bytes() * format.block_len()];
    decode(format, bytes, &mut out);
    out
}

fn encoded(format: Format, values: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(format, values, &mut out);
    out
}

/// The formats that are written as well as read.
fn written() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|f| encodes(*f))
}

fn half(value: f32) -> [u8; 2] {
    f16::from_f32(value).to_le_bytes()
}

/// Nibbles: byte i holds i in its low half and 15 − i in its high half.
fn nibbles() -> Vec<u8> {
    (0..16).map(|i| i | (15 - i) << 4).collect()
}

fn blocks_by_hand() {
    let low = || (0..16).map(|i| i as f32);
    let both = || low().chain(low().map(|i| 15.0 - i));
    let [d, m] = [half(0.5), half(-2.0)];
    let check = |format, bytes: Vec<u8>, values: Vec<f32>| {
        assert_eq!(decoded(format, &bytes), values, "{format}");
    };
    check(Format::F32, 1.5f32.to_le_bytes().to_vec(), vec![1.5]);
    check(Format::F16, vec![0x00, 0xC0], vec![-2.0]);
    check(Format::BF16, vec![0xC0, 0x3F], vec![1.5]);
    // Case 11: d = 0.5, m = −2, nibbles 0..15 in the low half are elements 0..15: −2 … 5.5.
    check(Format::Q4_1, [&d[..], &m, &nibbles()].concat(), both().map(|q| 0.5 * q - 2.0).collect());
    check(Format::Q4_0, [&d[..], &nibbles()].concat(), both().map(|q| 0.5 * (q - 8.0)).collect());
    // Fifth bits of elements 0, 7, 16 and 31.
    let word = (1u32 | 1 << 7 | 1 << 16 | 1 << 31).to_le_bytes();
    let fives =
        || both().enumerate().map(|(i, q)| if [0, 7, 16, 31].contains(&i) { q + 16.0 } else { q });
    let bytes = [&d[..], &word, &nibbles()].concat();
    check(Format::Q5_0, bytes, fives().map(|q| 0.5 * (q - 16.0)).collect());
    let bytes = [&d[..], &m, &word, &nibbles()].concat();
    check(Format::Q5_1, bytes, fives().map(|q| 0.5 * q - 2.0).collect());
    let codes: Vec<i8> =
        (0..32).map(|i| if i == 31 { -128 } else { (i * 8 - 127) as i8 }).collect();
    let bytes: Vec<u8> = d.into_iter().chain(codes.iter().map(|q| q.cast_unsigned())).collect();
    check(Format::Q8_0, bytes, codes.iter().map(|q| 0.5 * f32::from(*q)).collect());
    for format in written() {
        let zeros = vec![0.0; format.block_len()];
        assert_eq!(decoded(format, &encoded(format, &zeros)), zeros, "{format}");
        assert_eq!(encoded(format, &zeros).len(), format.block_bytes());
    }
}

/// Blocks of random bits against the decoder of pip's `gguf` (made by tests/make_fixtures.py).
fn blocks_of_gguf_package() {
    for format in Format::ALL.into_iter().filter(|f| !encodes(*f)) {
        let path = root().join(format!("tests/data/blocks/{format}.bin"));
        let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (raw, expected) = file.split_at(3 * format.block_bytes());
        let (values, rest) = expected.as_chunks::<4>();
        assert_eq!((values.len(), rest.len()), (3 * format.block_len(), 0), "{format}");
        for (at, (got, want)) in decoded(format, raw).iter().zip(values).enumerate() {
            let want = f32::from_le_bytes(*want);
            // The package may round in another order.
            assert!((got - want).abs() <= want.abs() * 1e-6, "{format} {at}: {got}, {want}");
        }
        let mut other = raw.to_vec();
        other[format.block_bytes() / 2] ^= 0x10;
        assert_ne!(
            decoded(format, &other),
            decoded(format, raw),
            "{format}: a bit without meaning"
        );
    }
    let panics = std::panic::catch_unwind(|| encode(Format::Q6_K, &[0.0; 256], &mut Vec::new()));
    assert!(panics.is_err(), "a format that is only read");
}

/// Case 11: BF16 is a shift, whatever the value; F16 is IEEE's, subnormals included.
fn floats_are_exact() {
    for bits in 0..=u16::MAX {
        let bytes = bits.to_le_bytes();
        let brain = decoded(Format::BF16, &bytes)[0];
        assert_eq!(brain.to_bits(), u32::from(bits) << 16);
        let half = decoded(Format::F16, &bytes)[0];
        assert_eq!(half.to_bits(), f16::from_bits(bits).to_f32().to_bits());
        if !brain.is_nan() {
            assert_eq!(encoded(Format::BF16, &[brain]), bytes);
        }
        if !half.is_nan() {
            assert_eq!(encoded(Format::F16, &[half]), bytes);
        }
    }
    let three = decoded(Format::BF16, &encoded(Format::BF16, &[3.0e38]))[0];
    assert!((three / 3.0e38 - 1.0).abs() < 1.0 / 256.0);
    let tiny = decoded(Format::BF16, &encoded(Format::BF16, &[1e-40]))[0];
    assert_eq!(tiny.to_bits(), 1 << 16, "the nearest subnormal");
    for format in [Format::F32, Format::F16, Format::BF16] {
        assert!(decoded(format, &encoded(format, &[f32::NAN]))[0].is_nan());
        assert_eq!(decoded(format, &encoded(format, &[f32::INFINITY]))[0], f32::INFINITY);
    }
}

/// Values from a seed, of a scale that changes from block to block, zeros among them.
fn values(seed: u64, count: usize) -> Vec<f32> {
    let scale = |block: u32| 10f32.powf(unit_from_seed(seed + 1, block) * 4.0 - 3.0);
    (0..count as u32)
        .map(|i| match i % 37 {
            0 => 0.0,
            _ => (unit_from_seed(seed, i) * 2.0 - 0.9) * scale(i / 32),
        })
        .collect()
}

fn encode_keeps_decoded_blocks() {
    for format in written() {
        let once = encoded(format, &values(3, 32 * 400));
        let twice = encoded(format, &decoded(format, &once));
        assert_eq!(decoded(format, &once), decoded(format, &twice), "{format}");
    }
}

fn encode_is_within_half_a_step() {
    for (format, steps) in [
        (Format::Q4_0, 8.0),
        (Format::Q4_1, 7.5),
        (Format::Q5_0, 16.0),
        (Format::Q5_1, 15.5),
        (Format::Q8_0, 127.0),
    ] {
        let from = values(5, 32 * 400);
        let to = decoded(format, &encoded(format, &from));
        for (from, to) in from.chunks(32).zip(to.chunks(32)) {
            let most = from.iter().fold(0f32, |most, v| most.max(v.abs()));
            // The signed formats have no code for +8 d (or +16 d): a whole step there.
            let signed = matches!(format, Format::Q4_0 | Format::Q5_0);
            let bound = most / steps * if signed { 1.0 } else { 0.5 };
            for (a, b) in from.iter().zip(to) {
                // The stored scale is a half float: 2^-11 of it, or a subnormal's step.
                let scale = most * 1e-3 + (steps + 1.0) * 2f32.powi(-24);
                assert!((a - b).abs() <= bound + scale, "{format}: {a} became {b}");
            }
        }
    }
}

fn encode_never_makes_infinity() {
    let mut large = vec![0.0; 32];
    (large[0], large[1], large[31]) = (f32::MAX, f32::MIN, 70_000.0);
    for format in written() {
        for sign in [1.0, -1.0] {
            let from: Vec<f32> = large.iter().map(|v| v * sign).collect();
            let to = decoded(format, &encoded(format, &from));
            assert!(to.iter().all(|v| v.is_finite()), "{format}: {to:?}");
            assert!(to[0] * sign > 0.0 || format.block_len() > 1, "{format}: {to:?}");
        }
        // No value of a weight, but no panic either.
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            large[3] = odd;
            decoded(format, &encoded(format, &large));
        }
        large[3] = 0.0;
    }
    assert_eq!(
        decoded(Format::F16, &encoded(Format::F16, &[70_000.0, -1e30])),
        [65504.0, -65504.0]
    );
}

fn wrong_lengths_panic() {
    let panics = |body: fn()| std::panic::catch_unwind(body).is_err();
    assert!(panics(|| decode(Format::Q4_1, &[0; 20], &mut [0.0; 31])));
    assert!(panics(|| decode(Format::Q4_1, &[0; 19], &mut [0.0; 32])));
    assert!(panics(|| decode(Format::F32, &[0; 8], &mut [0.0; 1])));
    assert!(panics(|| encode(Format::Q8_0, &[0.0; 33], &mut Vec::new())));
}

fn quantised(dir: &std::path::Path, name: &str) -> Weights {
    let path = dir.join(format!("tiny-{name}.gguf"));
    Weights::open(&path).unwrap_or_else(|e| panic!("{e}"))
}

fn all(weights: &Weights, tensor: &Tensor) -> Vec<u8> {
    weights.read_rows(tensor, 0, tensor.rows()).unwrap_or_else(|e| panic!("{e}"))
}

/// The fixtures were quantised by llama.cpp from the f32 one: our encoder gives the same bits.
fn encode_is_reference(dir: PathBuf) {
    let from = quantised(&dir, "f32");
    for format in written() {
        let to = quantised(&dir, format.name());
        let mut compared = 0;
        for tensor in to.tensors().values().filter(|t| t.format == format) {
            let values = decoded(Format::F32, &all(&from, &from.tensors()[&tensor.name]));
            assert!(encoded(format, &values) == all(&to, tensor), "{format} {}", tensor.name);
            compared += 1;
        }
        assert!(compared >= 15, "{format}: {compared} tensors");
    }
}

/// Decoded blocks lie as near the f32 weights as their bits allow, so that no two formats are
/// taken for each other and no halves are swapped.
fn decode_is_near_f32(dir: PathBuf) {
    let from = quantised(&dir, "f32");
    for (name, bound) in [
        ("f16", 0.001),
        ("bf16", 0.005),
        ("q8_0", 0.01),
        ("q6_k", 0.02),
        ("q5_1", 0.05),
        ("q5_0", 0.06),
        ("q5_k_m", 0.06),
        ("q4_1", 0.1),
        ("q4_k_m", 0.1),
        ("iq4_nl", 0.1),
        ("q4_0", 0.12),
        ("q3_k_m", 0.2),
        ("q2_k", 0.4),
    ] {
        let to = quantised(&dir, name);
        assert_eq!(to.tensors().len(), from.tensors().len());
        for tensor in to.tensors().values() {
            let exact = decoded(Format::F32, &all(&from, &from.tensors()[&tensor.name]));
            let near = decoded(tensor.format, &all(&to, tensor));
            let square = |f: &dyn Fn(usize) -> f32| {
                (0..exact.len()).map(|i| f64::from(f(i)).powi(2)).sum::<f64>()
            };
            let error = square(&|i| exact[i] - near[i]) / square(&|i| exact[i]);
            assert!(error.sqrt() < bound, "{name} {}: {}", tensor.name, error.sqrt());
        }
    }
}
