//! Twins of `moe_route`, `moe_group`, `mul_expert`, `moe_combine` and `mul_heads`.

use super::Launch;
use super::mul::{Strip, product, sums};
use super::quant::{Streams, format_of};
use crate::kernels::experts::{
    MoeCombineParams, MoeGroupParams, MoeRouteParams, MulExpertParams, MulHeadsParams,
};
use crate::kernels::layout::K_BLOCK;
use crate::kernels::mul::{MulParams, PACKED_WORDS};

pub fn moe_route(launch: &mut Launch<'_>) {
    let p: MoeRouteParams = launch.params();
    let [logits, bias] = [launch.read[0], launch.read[1]].map(bytemuck::cast_slice::<u32, f32>);
    let route = &mut launch.write[0];
    let (experts, used) = (p.experts as usize, p.used as usize);
    for token in 0..p.tokens as usize {
        let logits = &logits[token * p.stride as usize..][..experts];
        let scores = scores(logits, p.scoring == 0);
        let rank = |e: usize| if p.has_bias == 1 { scores[e] + bias[e] } else { scores[e] };
        let mut chosen: Vec<usize> = Vec::new();
        for _ in 0..used {
            let mut best = experts - 1;
            let mut high = -3.0e38;
            for e in (0..experts).filter(|e| !chosen.contains(e)) {
                if rank(e) > high {
                    (best, high) = (e, rank(e));
                }
            }
            chosen.push(best);
        }
        let sum: f32 = chosen.iter().map(|&e| scores[e]).sum();
        let factor = p.scale / if p.normalise == 1 { sum } else { 1.0 };
        for (r, &e) in chosen.iter().enumerate() {
            let pair = token * used + r;
            route[pair] = e as u32;
            route[p.weights_at as usize + pair] = (scores[e] * factor).to_bits();
        }
    }
}

fn scores(logits: &[f32], softmax: bool) -> Vec<f32> {
    if !softmax {
        return logits.iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect();
    }
    let high = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits.iter().map(|l| (l - high).exp()).collect();
    let total: f32 = powers.iter().sum();
    powers.iter().map(|power| power / total).collect()
}

pub fn moe_group(launch: &mut Launch<'_>) {
    let p: MoeGroupParams = launch.params();
    let route = &mut launch.write[0];
    let (mut list, mut tiles) = (Vec::new(), Vec::new());
    for e in 0..p.experts {
        let first = list.len() as u32;
        list.extend((0..p.pairs).filter(|&pair| route[pair as usize] == e));
        let end = list.len() as u32;
        for start in (first..end).step_by(p.tile.max(1) as usize) {
            tiles.extend([e, start, end.min(start + p.tile)]);
        }
    }
    route[p.list_at as usize..][..list.len()].copy_from_slice(&list);
    route[p.tiles_at as usize] = tiles.len() as u32 / 3;
    route[p.tiles_at as usize + 1..][..tiles.len()].copy_from_slice(&tiles);
}

pub fn mul_expert(launch: &mut Launch<'_>) {
    let p: MulExpertParams = launch.params();
    let format = format_of(&launch.variant.imports["quant"]);
    let (quants, scales, route) = (launch.read[0], launch.read[1], launch.read[3]);
    let packed = launch.variant.imports.contains_key("dots");
    let x = launch.read[2];
    let y: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let (rows, x_stride) = (p.rows as usize, p.x_stride as usize);
    let words = p.k_blocks * if packed { PACKED_WORDS } else { K_BLOCK };
    let tiles = &route[p.tiles_at as usize..];
    for tile in tiles[1..].chunks_exact(3).take(tiles[0] as usize) {
        let Some(expert) = tile[0].checked_sub(p.first_expert).filter(|e| *e < p.experts) else {
            continue;
        };
        let pairs = &route[p.list_at as usize..][tile[1] as usize..tile[2] as usize];
        let gathered: Vec<u32> = pairs
            .iter()
            .flat_map(|pair| &x[(pair / p.x_div) as usize * x_stride..][..words as usize])
            .copied()
            .collect();
        let w = Streams {
            format,
            rows,
            quants: &quants[(expert * p.quant_stride) as usize * 4..],
            scales: &scales[(expert * p.scale_stride) as usize..],
        };
        let plain = MulParams {
            rows: p.rows,
            k_blocks: p.k_blocks,
            segments: p.segments,
            tokens: pairs.len() as u32,
            x_stride: words,
            ..bytemuck::Zeroable::zeroed()
        };
        let strip = |first, count| sums(packed, w, plain, &gathered, first..first + count);
        product(rows, strip, |token, column, sum| {
            y[pairs[token] as usize * p.y_stride as usize + column] = sum;
        });
    }
}

pub fn moe_combine(launch: &mut Launch<'_>) {
    let p: MoeCombineParams = launch.params();
    let x: &[f32] = bytemuck::cast_slice(launch.read[0]);
    let route = launch.read[1];
    let y: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let (used, stride) = (p.used as usize, p.stride as usize);
    for t in 0..p.tokens as usize {
        for i in 0..p.dim as usize {
            let mut sum = 0.0;
            for pair in t * used..(t + 1) * used {
                sum += f32::from_bits(route[p.weights_at as usize + pair]) * x[pair * stride + i];
            }
            let out = &mut y[t * stride + i];
            *out = if p.accumulate == 1 { *out + sum * p.scale } else { sum * p.scale };
        }
    }
}

pub fn mul_heads(launch: &mut Launch<'_>) {
    let p: MulHeadsParams = launch.params();
    let format = format_of(&launch.variant.imports["quant"]);
    let (quants, scales) = (launch.read[0], launch.read[1]);
    let x: &[f32] = bytemuck::cast_slice(launch.read[2]);
    let y: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let rows = p.rows as usize;
    let heads = (quants.len() / 4).checked_div(p.quant_stride as usize).unwrap_or(0);
    for own in 0..heads {
        let head = p.first_head as usize + own;
        let w = Streams {
            format,
            rows,
            quants: &quants[own * p.quant_stride as usize * 4..],
            scales: &scales[own * p.scale_stride as usize..],
        };
        let plain = MulParams {
            rows: p.rows,
            k_blocks: p.k_blocks,
            segments: p.segments,
            tokens: p.tokens,
            x_stride: p.x_stride,
            ..bytemuck::Zeroable::zeroed()
        };
        let x = &x[head * p.x_head as usize..];
        let strip = |first, count| Strip { w, p: plain, x, first, count }.run();
        product(rows, strip, |token, column, sum| {
            y[token * p.y_stride as usize + head * p.y_head as usize + column] = sum;
        });
    }
}
