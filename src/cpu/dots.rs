//! Twins of `mul_pack`, and of `mul_mat` and `mul_vec` where they take x as it leaves it: sums of a
//! k-block in whole numbers.

use super::Launch;
use super::mul::Sums;
use super::quant::{CodeScales, Codes, LANES, Quants, Streams, signed_byte};
use crate::kernels::mul::{MulParams, PackParams};

/// One k-block of packed x.
struct Bytes {
    values: [i32; 32],
    scale: f32,
    /// Of the values of the first half and of the other.
    sums: [i32; 2],
}

impl Bytes {
    /// Bytes of the values 0 2 4 6, then 1 3 5 7 of each eight, scale, and sums of two halves.
    #[inline(always)]
    fn of(words: &[u32]) -> Self {
        let mut values = [0; 32];
        for (i, value) in values.iter_mut().enumerate() {
            *value = signed_byte(words[i / 8 * 2 + i % 2], i % 8 / 2);
        }
        Self {
            values,
            scale: f32::from_bits(words[8]),
            sums: [words[9].cast_signed(), words[10].cast_signed()],
        }
    }
}

pub fn mul_pack(launch: &mut Launch<'_>) {
    let p: PackParams = launch.params();
    let x: &[f32] = bytemuck::cast_slice(launch.read[0]);
    let y = &mut launch.write[0];
    let values = p.k_blocks as usize * 32;
    for row in 0..p.rows as usize {
        let from = &x[row * p.x_stride as usize..][..values];
        pack_row(from, &mut y[row * p.y_stride as usize..]);
    }
}

/// Whole k-blocks of x, packed.
pub(super) fn pack_row(x: &[f32], y: &mut [u32]) {
    for (x, y) in x.chunks_exact(32).zip(y.chunks_exact_mut(12)) {
        pack(x, y);
    }
}

/// As lib/bytes says: scale = max |x| / 127, halves to even, NaN where a value is no number.
fn pack(x: &[f32], y: &mut [u32]) {
    let top = x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
    let finite = top < 0x7f80_0000;
    let high = if finite { f32::from_bits(top) } else { 0.0 };
    let per = if high < 1e-30 { 0.0 } else { 127.0 / high };
    let byte = |i: usize| (x[i] * per).round_ties_even().clamp(-127.0, 127.0) as i8;
    for (e, words) in y[..8].chunks_exact_mut(2).enumerate() {
        for (odd, word) in words.iter_mut().enumerate() {
            let four = std::array::from_fn(|i| byte(e * 8 + i * 2 + odd).cast_unsigned());
            *word = u32::from_le_bytes(four);
        }
    }
    let scale = if finite { f32::from_bits(top) * (1.0 / 127.0) } else { f32::NAN };
    let sum = |from: usize| (from..from + 16).map(|i| i32::from(byte(i))).sum::<i32>();
    y[8..].copy_from_slice(&[scale.to_bits(), sum(0).cast_unsigned(), sum(16).cast_unsigned(), 0]);
}

/// One product over `LANES` outputs, all tokens; x is packed.
pub(super) struct DotStrip<'a> {
    pub w: Streams<'a>,
    pub p: MulParams,
    pub x: &'a [u32],
    pub first: usize,
    pub count: usize,
}

impl DotStrip<'_> {
    pub fn run(&self) -> Sums {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: both features were detected just now.
            return unsafe { self.run_avx2() };
        }
        self.sum::<false>()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn run_avx2(&self) -> Sums {
        self.sum::<true>()
    }

    /// Each output adds its k-blocks in ascending order, in `segments` parts that are then added.
    #[inline(always)]
    fn sum<const FMA: bool>(&self) -> Sums {
        let (p, blocks) = (&self.p, self.p.k_blocks as usize);
        let tokens = (p.tokens - p.first) as usize;
        let (stride, segments) = (p.x_stride as usize, p.segments as usize);
        let mut total = vec![[0f32; LANES]; tokens];
        let mut acc = vec![[0f32; LANES]; tokens];
        let mut quants = Quants::default();
        for segment in 0..segments {
            acc.fill([0.0; LANES]);
            for kb in segment * blocks / segments..(segment + 1) * blocks / segments {
                let w = self.w.codes(kb, self.first, self.count, &mut quants);
                for (token, acc) in acc.iter_mut().enumerate() {
                    let x = Bytes::of(&self.x[token * stride + kb * 12..][..12]);
                    add::<FMA>(acc, &w, &x);
                }
            }
            for (total, acc) in total.iter_mut().zip(&acc) {
                for lane in 0..LANES {
                    total[lane] += acc[lane];
                }
            }
        }
        total
    }
}

/// `acc` with a k-block added, as in lib/x8.
#[inline(always)]
fn add<const FMA: bool>(acc: &mut [f32; LANES], w: &Codes, x: &Bytes) {
    let fma = |a: f32, b: f32, c: f32| if FMA { a.mul_add(b, c) } else { a * b + c };
    let mut dots = [[0i32; LANES]; 2];
    for (i, (x, w)) in x.values.iter().zip(&w.codes).enumerate() {
        let dots = &mut dots[i / 16];
        for lane in 0..LANES {
            dots[lane] += x * w[lane];
        }
    }
    for (lane, acc) in acc.iter_mut().enumerate() {
        let [low, high] = [dots[0][lane], dots[1][lane]];
        let all = (low + high) as f32;
        *acc = match &w.scales {
            CodeScales::One(d) => fma(all, d[lane] * x.scale, *acc),
            CodeScales::Affine(d, m) => {
                let sum = (x.sums[0] + x.sums[1]) as f32;
                let least = fma(sum * x.scale, m[lane], *acc);
                fma(all, d[lane] * x.scale, least)
            }
            CodeScales::Halves(d) => {
                let lower = fma(low as f32, d[0][lane] * x.scale, *acc);
                fma(high as f32, d[1][lane] * x.scale, lower)
            }
            CodeScales::AffineHalves(d, m) => {
                let [first, last] = x.sums.map(|sum| sum as f32);
                let least = fma(last, m[1][lane], first * m[0][lane]);
                let lower = fma(low as f32, d[0][lane], least);
                fma(fma(high as f32, d[1][lane], lower), x.scale, *acc)
            }
        };
    }
}
