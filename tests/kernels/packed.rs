//! `mul_pack`: rows as signed bytes with a scale per 32 values, against what the words mean; and
//! such rows made here, for the products that read them.

use super::lab::{Draws, Lab, same_bits};
use crate::support::On;
use tilewright::kernels::mul::{Pack, packed_stride};
use tilewright::record::Recording;

const SEED: u64 = 0x7061_636b;

/// Allowed error of a scale, relative: a product of two.
const SCALE_TOLERANCE: f64 = 1e-6;
/// A byte may be the next one where the value lies so near the middle, in steps.
const MIDDLE: f64 = 1e-3;

/// The values that 12 words stand for, in their order.
fn unpacked(words: &[u32]) -> ([i8; 32], f32, [i32; 3]) {
    let mut bytes = [0; 32];
    for (e, pair) in words[..8].chunks_exact(2).enumerate() {
        for i in 0..4 {
            bytes[e * 8 + 2 * i] = pair[0].to_le_bytes()[i].cast_signed();
            bytes[e * 8 + 2 * i + 1] = pair[1].to_le_bytes()[i].cast_signed();
        }
    }
    (bytes, f32::from_bits(words[8]), [9, 10, 11].map(|at| words[at].cast_signed()))
}

/// `rows` rows of x as products read them, and the values that they then have.
pub fn pack(x: &[f32], cols: usize, x_stride: usize) -> (Vec<u32>, Vec<f32>) {
    let stride = packed_stride(cols as u32) as usize;
    // Products read whole blocks, and nothing behind them.
    let mut words = vec![f32::NAN.to_bits(); x.len() / x_stride * stride];
    let mut values = x.to_vec();
    for (row, out) in words.chunks_exact_mut(stride).enumerate() {
        let blocks = values[row * x_stride..][..cols].chunks_exact_mut(32);
        for (x, out) in blocks.zip(out.chunks_exact_mut(12)) {
            let scale = x.iter().fold(0f32, |top, x| top.max(x.abs())) / 127.0;
            let byte = |x: f32| if scale == 0.0 { 0 } else { (x / scale).round() as i8 };
            let bytes: Vec<i8> = x.iter().map(|x| byte(*x)).collect();
            let four = |from: usize| [0, 2, 4, 6].map(|i| bytes[from + i].cast_unsigned());
            for (w, out) in out[..8].iter_mut().enumerate() {
                *out = u32::from_le_bytes(four(w / 2 * 8 + w % 2));
            }
            let sum = |part: &[i8]| part.iter().map(|b| i32::from(*b)).sum::<i32>();
            let sums = [sum(&bytes[..16]), sum(&bytes[16..])].map(i32::cast_unsigned);
            out[8..].copy_from_slice(&[scale.to_bits(), sums[0], sums[1], 0]);
            x.iter_mut().zip(&bytes).for_each(|(x, b)| *x = scale * f32::from(*b));
        }
    }
    (words, values)
}

pub fn run(x: &[f32], rows: u32, cols: u32, x_stride: u32, lab: &mut Lab) -> Vec<u32> {
    let untouched = vec![7; (rows * packed_stride(cols)) as usize];
    let (x, y) = (lab.floats(x), lab.words(&untouched));
    let mut recording = Recording::default();
    Pack { rows, cols, x, x_stride, y }.record(&lab.facts, &mut recording);
    lab.run(recording, &[y]).remove(0).iter().map(|v| v.to_bits()).collect()
}

/// What is wrong with the packed words of the 32 values `x`.
fn fault(x: &[f32], words: &[u32]) -> Option<String> {
    let (bytes, scale, sums) = unpacked(words);
    let top = x.iter().fold(0f64, |top, x| top.max(f64::from(x.abs())));
    if x.iter().any(|x| !x.is_finite()) {
        return (!scale.is_nan()).then(|| format!("scale {scale} of what is no number"));
    }
    let wanted = top / 127.0;
    if (f64::from(scale) - wanted).abs() > SCALE_TOLERANCE * wanted {
        return Some(format!("scale {scale}, wanted {wanted}"));
    }
    let off = |(x, byte): (&f32, &i8)| {
        // So small that its bytes are nothing.
        let there = if top < 1e-30 { 0.0 } else { f64::from(*x) / wanted };
        (there - f64::from(*byte)).abs() > 0.5 + MIDDLE
    };
    if let Some(at) = x.iter().zip(&bytes).position(off) {
        return Some(format!("byte {at} is {} of {} at scale {scale}", bytes[at], x[at]));
    }
    let sum = |part: &[i8]| part.iter().map(|b| i32::from(*b)).sum::<i32>();
    let wanted = [sum(&bytes[..16]), sum(&bytes[16..]), 0];
    (sums != wanted).then(|| format!("sums {sums:?}, wanted {wanted:?}"))
}

pub fn check(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (rows, cols) in [(1u32, 32u32), (3, 96), (33, 576), (7, 1056)] {
        let stride = cols + 32;
        let mut x = draws.values((rows * stride) as usize);
        // Blocks of very different size; one of zeros, some with what is no number.
        for (n, block) in x.chunks_exact_mut(32).enumerate() {
            block.iter_mut().for_each(|x| *x *= 10f32.powi(n as i32 % 11 - 5));
            match n % 37 {
                5 => block.fill(0.0),
                6 => block[n % 32] = f32::NAN,
                7 => block[n % 32] = f32::NEG_INFINITY,
                8 => block.fill(1e-36),
                9 => block.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 - 63.5),
                _ => {}
            }
        }
        let words = run(&x, rows, cols, stride, &mut lab);
        let (y_stride, used) = (packed_stride(cols) as usize, (cols / 32 * 12) as usize);
        for (row, words) in words.chunks_exact(y_stride).enumerate() {
            let x = &x[row * stride as usize..][..cols as usize];
            for (kb, (x, words)) in x.chunks_exact(32).zip(words.chunks_exact(12)).enumerate() {
                let fault = fault(x, words);
                assert_eq!(fault, None, "row {row}, k-block {kb}, seed {SEED:#x}");
            }
            assert!(words[used..].iter().all(|w| *w == 7), "written behind row {row}");
        }
        let last = ((rows - 1) * stride) as usize;
        let alone = run(&x[last..], 1, cols, stride, &mut lab);
        let bits = |words: &[u32]| words.iter().map(|w| f32::from_bits(*w)).collect::<Vec<_>>();
        let together = &words[(rows as usize - 1) * y_stride..];
        same_bits(&bits(&alone), &bits(together)).unwrap_or_else(|e| panic!("alone: {e}"));
        // The comparison sees another byte, another scale, another sum.
        for at in [0, 8, 9, 10] {
            let mut bad = words[..12].to_vec();
            bad[at] ^= 0x10;
            assert!(fault(&x[..32], &bad).is_some(), "a planted fault in word {at}");
        }
        lab.clear();
    }
}
