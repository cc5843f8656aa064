//! Twins of `mul_mat`, `mul_vec` and `mul_gemm` (the same sums in the same order), `mul_unit`,
//! `to_halves` and `embed`.

use super::Launch;
use super::block::act;
use super::dots::DotStrip;
use super::quant::{LANES, Quants, Streams, Tile, format_of};
use crate::kernels::mul::{EmbedParams, HalvesParams, MulParams, SAMPLED, TURN};
use crate::kernels::sample::OUT_WORDS;
use half::f16;
use rayon::prelude::*;
use std::ops::Range;

/// One product over `LANES` outputs, all tokens.
pub(super) struct Strip<'a> {
    pub w: Streams<'a>,
    pub p: MulParams,
    pub x: &'a [f32],
    pub first: usize,
    pub count: usize,
}

impl Strip<'_> {
    pub(super) fn run(&self) -> Sums {
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

    /// Each output sums k in ascending order, in `segments` parts that are then added up.
    #[inline(always)]
    fn sum<const FMA: bool>(&self) -> Sums {
        let (p, blocks) = (&self.p, self.p.k_blocks as usize);
        let tokens = (p.tokens - p.first) as usize;
        let stride = self.p.x_stride as usize;
        let segments = self.p.segments as usize;
        let mut total = vec![[0f32; LANES]; tokens];
        let mut acc = vec![[0f32; LANES]; tokens];
        let (mut quants, mut tile) = (Quants::default(), Tile::default());
        for segment in 0..segments {
            acc.fill([0.0; LANES]);
            for kb in segment * blocks / segments..(segment + 1) * blocks / segments {
                self.w.decode(kb, self.first, self.count, (&mut quants, &mut tile));
                for (token, acc) in acc.iter_mut().enumerate() {
                    let from = token * stride + kb * 32;
                    let mut sum = *acc;
                    for (x, w) in self.x[from..from + 32].iter().zip(&tile) {
                        for lane in 0..LANES {
                            sum[lane] = if FMA {
                                x.mul_add(w[lane], sum[lane])
                            } else {
                                x * w[lane] + sum[lane]
                            };
                        }
                    }
                    *acc = sum;
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

pub fn mul_mat(launch: &mut Launch<'_>) {
    let x = launch.read[2];
    multiply(launch.params(), x, launch);
}

/// Halves are widened first, and weights not narrowed: the bits of matrix units are their own.
pub fn mul_unit(launch: &mut Launch<'_>) {
    let p: MulParams = launch.params();
    let halves: &[f16] = bytemuck::cast_slice(launch.read[2]);
    let cols = p.k_blocks as usize * 32;
    let mut x = Vec::with_capacity(p.tokens as usize * cols);
    for row in halves.chunks_exact(cols + 8).take(p.tokens as usize) {
        let scale = row[cols].to_f32();
        x.extend(row[..cols].iter().map(|v| v.to_f32() * scale));
    }
    multiply(
        MulParams { x_stride: cols as u32, segments: 1, ..p },
        bytemuck::cast_slice(&x),
        launch,
    );
}

pub fn to_halves(launch: &mut Launch<'_>) {
    let p: HalvesParams = launch.params();
    let x: &[f32] = bytemuck::cast_slice(launch.read[0]);
    let y: &mut [f16] = bytemuck::cast_slice_mut(launch.write[0]);
    let cols = p.k_blocks as usize * 32;
    let rows = x.chunks(p.x_stride.max(1) as usize).zip(y.chunks_exact_mut(cols + 8));
    for (x, y) in rows.take(p.rows as usize) {
        let largest = x[..cols].iter().fold(0f32, |most, v| most.max(v.abs()));
        let e = ((largest.to_bits() >> 23 & 255) as i32 - 127 - 13).clamp(-14, 15);
        for (y, x) in y.iter_mut().zip(&x[..cols]) {
            *y = f16::from_f32(x * (-e as f32).exp2());
        }
        y[cols..].fill(f16::from_f32((e as f32).exp2()));
    }
}

fn multiply(p: MulParams, x: &[u32], launch: &mut Launch<'_>) {
    let rows = p.rows as usize;
    let format = format_of(&launch.variant.imports["quant"]);
    let w = Streams { format, rows, quants: launch.read[0], scales: launch.read[1] };
    let packed = launch.variant.imports.contains_key("dots");
    let bias: &[f32] = bytemuck::cast_slice(launch.read[3]);
    let y: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let strip = |first, count| sums(packed, w, p, x, first..first + count);
    if p.act != 0 {
        return gated(p, rows, strip, bias, y);
    }
    product(rows, strip, |token, column, sum| {
        let token = p.first as usize + token;
        let column = p.y_column as usize + column;
        let at = token * p.y_stride as usize + column;
        let biased = if p.has_bias == 1 { sum + bias[column] } else { sum };
        let scaled = biased * p.scale;
        y[at] = if p.accumulate == 1 { scaled + y[at] } else { scaled };
    });
}

/// The product of gates and what they are for, which come in turns.
fn gated(
    p: MulParams,
    rows: usize,
    strip: impl Fn(usize, usize) -> Sums + Sync,
    bias: &[f32],
    y: &mut [f32],
) {
    let turn = TURN as usize;
    let mut sums = vec![0f32; (p.tokens - p.first) as usize * rows];
    product(rows, strip, |token, row, sum| {
        let biased = if p.has_bias == 1 { sum + bias[p.y_column as usize + row] } else { sum };
        sums[token * rows + row] = biased;
    });
    for (token, sums) in sums.chunks_exact(rows).enumerate() {
        let y = &mut y[(p.first as usize + token) * p.y_stride as usize..];
        for (pairs, y) in sums.chunks_exact(2 * turn).zip(y.chunks_mut(turn)) {
            for (i, y) in y.iter_mut().enumerate() {
                *y = act(p.act, pairs[i]) * pairs[turn + i];
            }
        }
    }
}

/// The sums of a strip, by token.
pub(super) type Sums = Vec<[f32; LANES]>;

/// Those of `outputs`, at most [`LANES`]; x is packed, or f32.
pub(super) fn sums(
    packed: bool,
    w: Streams<'_>,
    p: MulParams,
    x: &[u32],
    outputs: Range<usize>,
) -> Sums {
    let (first, count) = (outputs.start, outputs.len());
    match packed {
        true => DotStrip { w, p, x, first, count }.run(),
        false => Strip { w, p, x: bytemuck::cast_slice(x), first, count }.run(),
    }
}

/// Runs the strips of `rows` outputs side by side, then `store(token, output, sum)` for each.
pub(super) fn product(
    rows: usize,
    strip: impl Fn(usize, usize) -> Sums + Sync,
    mut store: impl FnMut(usize, usize, f32),
) {
    let strips: Vec<Sums> = (0..rows.div_ceil(LANES))
        .into_par_iter()
        .map(|n| strip(n * LANES, LANES.min(rows - n * LANES)))
        .collect();
    for (n, sums) in strips.iter().enumerate() {
        for (token, sums) in sums.iter().enumerate() {
            for (lane, sum) in sums.iter().enumerate().take(rows - n * LANES) {
                store(token, n * LANES + lane, *sum);
            }
        }
    }
}

pub fn embed(launch: &mut Launch<'_>) {
    let p: EmbedParams = launch.params();
    let rows = p.rows as usize;
    let format = format_of(&launch.variant.imports["quant"]);
    let w = Streams { format, rows, quants: launch.read[0], scales: launch.read[1] };
    let (meta, sampled) = (launch.read[2], launch.read[4]);
    let x: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let (mut quants, mut tile) = (Quants::default(), Tile::default());
    for t in 0..p.tokens as usize {
        let mut token = meta[p.tokens_at as usize + t];
        if token & SAMPLED > 0 {
            token = sampled[((token & !SAMPLED) * OUT_WORDS) as usize];
        }
        let row = token.wrapping_sub(p.first) as usize;
        if row >= rows {
            continue;
        }
        for kb in 0..p.k_blocks as usize {
            w.decode(kb, row, 1, (&mut quants, &mut tile));
            let to = t * p.x_stride as usize + kb * 32;
            for (i, x) in x[to..to + 32].iter_mut().enumerate() {
                *x = tile[i][0] * p.scale;
            }
        }
    }
}
