//! Twins of `mul_mat`, `mul_vec` (the same sums in the same order) and `embed`.

use super::Launch;
use super::quant::{LANES, Streams, Tile, format_of};
use crate::kernels::mul::{EmbedParams, MulParams};
use rayon::prelude::*;

/// One product over `LANES` outputs, all tokens.
pub(super) struct Strip<'a> {
    pub w: Streams<'a>,
    pub p: MulParams,
    pub x: &'a [f32],
    pub first: usize,
    pub count: usize,
}

impl Strip<'_> {
    fn run(&self) -> Vec<[f32; LANES]> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: both features were detected just now.
            return unsafe { self.run_avx2() };
        }
        self.sum::<false>()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn run_avx2(&self) -> Vec<[f32; LANES]> {
        self.sum::<true>()
    }

    /// Each output sums k in ascending order, in `segments` parts that are then added up.
    #[inline(always)]
    fn sum<const FMA: bool>(&self) -> Vec<[f32; LANES]> {
        let (p, blocks) = (&self.p, self.p.k_blocks as usize);
        let tokens = (p.tokens - p.first) as usize;
        let stride = self.p.x_stride as usize;
        let segments = self.p.segments as usize;
        let mut total = vec![[0f32; LANES]; tokens];
        let mut acc = vec![[0f32; LANES]; tokens];
        let mut tile: Tile = [[0.0; LANES]; 32];
        for segment in 0..segments {
            acc.fill([0.0; LANES]);
            for kb in segment * blocks / segments..(segment + 1) * blocks / segments {
                self.w.decode(kb, self.first, self.count, &mut tile);
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
    let p: MulParams = launch.params();
    let rows = p.rows as usize;
    let format = format_of(&launch.variant.imports["quant"]);
    let w = Streams { format, rows, quants: launch.read[0], scales: launch.read[1] };
    let x: &[f32] = bytemuck::cast_slice(launch.read[2]);
    let bias: &[f32] = bytemuck::cast_slice(launch.read[3]);
    let y: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let strip = |first, count| Strip { w, p, x, first, count };
    product(rows, strip, |token, column, sum| {
        let token = p.first as usize + token;
        let column = p.y_column as usize + column;
        let at = token * p.y_stride as usize + column;
        let biased = if p.has_bias == 1 { sum + bias[column] } else { sum };
        let scaled = biased * p.scale;
        y[at] = if p.accumulate == 1 { scaled + y[at] } else { scaled };
    });
}

/// Runs the strips of `rows` outputs side by side, then `store(token, output, sum)` for each.
pub(super) fn product<'a>(
    rows: usize,
    strip: impl Fn(usize, usize) -> Strip<'a> + Sync,
    mut store: impl FnMut(usize, usize, f32),
) {
    let strips: Vec<Vec<[f32; LANES]>> = (0..rows.div_ceil(LANES))
        .into_par_iter()
        .map(|n| strip(n * LANES, LANES.min(rows - n * LANES)).run())
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
    let meta = launch.read[2];
    let x: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let mut tile: Tile = [[0.0; LANES]; 32];
    for t in 0..p.tokens as usize {
        let row = meta[p.tokens_at as usize + t].wrapping_sub(p.first) as usize;
        if row >= rows {
            continue;
        }
        for kb in 0..p.k_blocks as usize {
            w.decode(kb, row, 1, &mut tile);
            let to = t * p.x_stride as usize + kb * 32;
            for (i, x) in x[to..to + 32].iter_mut().enumerate() {
                *x = tile[i][0] * p.scale;
            }
        }
    }
}
