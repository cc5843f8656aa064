//! Twins of `attn_paged` and `attn_merge`.

use super::Launch;
use super::kv::Layout;
use crate::kernels::attn::{AttnMergeParams, AttnParams, ITEM_WORDS, MERGE_WORDS, partial_values};
use rayon::prelude::*;
use std::borrow::Cow;

const TILE: usize = 64;

/// Output, maximum and sum of some of the keys of one row; `None` before the first key.
struct Partial {
    o: Vec<f32>,
    m: f32,
    l: f32,
}

impl Partial {
    fn empty(head_dim: usize) -> Self {
        Self { o: vec![0.0; head_dim], m: f32::NEG_INFINITY, l: 0.0 }
    }

    /// Joins the keys that come after these.
    fn fold(&mut self, o: &[f32], m: f32, l: f32) {
        let high = self.m.max(m);
        let weight = |m: f32| if m == high { 1.0 } else { (m - high).exp() };
        let (a, b) = (weight(self.m), weight(m));
        self.l = self.l * a + l * b;
        for (mine, other) in self.o.iter_mut().zip(o) {
            *mine = *mine * a + other * b;
        }
        self.m = high;
    }
}

/// One sequence's cached keys and values for one kv head.
struct Keys<'a> {
    p: AttnParams,
    layout: Layout,
    k: &'a [u32],
    v: &'a [u32],
    table: &'a [u32],
    kv: usize,
}

impl Keys<'_> {
    fn row<'a>(&self, cache: &'a [u32], key: usize) -> Cow<'a, [f32]> {
        let size = self.p.block_size as usize;
        let block = self.table[key / size] as usize;
        self.layout.read(cache, block * self.p.kv_heads as usize + self.kv, key % size)
    }

    /// Attention of `q` over keys `begin..end` (within one split), by tiles at absolute positions.
    fn attend(&self, q: &[f32], begin: usize, end: usize) -> Partial {
        let mut all = Partial::empty(self.layout.head_dim);
        for tile in (begin / TILE * TILE..end).step_by(TILE) {
            let keys = begin.max(tile)..end.min(tile + TILE);
            let score = |key| capped(dot(q, &self.row(self.k, key)) * self.p.scale, self.p.cap);
            let mut weights: Vec<f32> = keys.clone().map(score).collect();
            let m = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut l = 0.0;
            let mut o = vec![0.0; self.layout.head_dim];
            for (key, weight) in keys.zip(&mut weights) {
                *weight = (*weight - m).exp();
                l += *weight;
                for (o, v) in o.iter_mut().zip(self.row(self.v, key).iter()) {
                    *o += *weight * v;
                }
            }
            all.fold(&o, m, l);
        }
        all
    }
}

/// cap * tanh(score / cap); 0 caps nothing.
fn capped(score: f32, cap: f32) -> f32 {
    if cap == 0.0 { score } else { cap * (score / cap).tanh() }
}

/// A dot product with a fixed order that still uses vector registers.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum()
}

pub fn attn_paged(launch: &mut Launch<'_>) {
    let p: AttnParams = launch.params();
    let head_dim = launch.variant.constant("HD") as usize;
    let (q, k, v, meta) = (launch.floats(0), launch.read[1], launch.read[2], launch.read[3]);
    let layout = Layout::of(launch.variant, p.block_size, head_dim);
    let item_of = |i: u32| &meta[(p.items_at + i * ITEM_WORDS) as usize..][..ITEM_WORDS as usize];
    let rows: Vec<(u32, u32, u32)> = (0..p.items)
        .flat_map(|i| (0..item_of(i)[1]).flat_map(move |t| (0..p.heads).map(move |h| (i, t, h))))
        .collect();
    let results: Vec<Partial> = rows
        .par_iter()
        .map(|&(i, t, head)| {
            let item = item_of(i);
            let kv = (head / p.group) as usize;
            let table = &meta[item[3] as usize..];
            let keys = Keys { p, layout, k, v, table, kv };
            let at = (item[0] + t) as usize * p.q_stride as usize + head as usize * head_dim;
            let seen = item[2] + t + 1;
            let mut total = Partial::empty(head_dim);
            let hidden = seen.saturating_sub(p.window);
            let splits = item[4].max(hidden / p.split)..item[5].min(seen.div_ceil(p.split));
            for split in splits {
                let begin = hidden.max(split * p.split);
                let end = seen.min((split + 1) * p.split);
                let part = keys.attend(&q[at..at + head_dim], begin as usize, end as usize);
                total.fold(&part.o, part.m, part.l);
            }
            total
        })
        .collect();
    let [out, partial] = &mut launch.write[..] else { unreachable!("two bindings") };
    let out: &mut [f32] = bytemuck::cast_slice_mut(out);
    let partial: &mut [f32] = bytemuck::cast_slice_mut(partial);
    for ((i, t, head), result) in rows.into_iter().zip(results) {
        let item = item_of(i);
        if item[6] == u32::MAX {
            let at = (item[0] + t) as usize * p.out_stride as usize + head as usize * head_dim;
            for (out, o) in out[at..at + head_dim].iter_mut().zip(&result.o) {
                *out = o / result.l;
            }
        } else {
            let slot = (item[6] + t * p.heads + head) * partial_values(head_dim as u32);
            let to = &mut partial[slot as usize..][..head_dim + 2];
            to[..head_dim].copy_from_slice(&result.o);
            to[head_dim..].copy_from_slice(&[result.m, result.l]);
        }
    }
}

pub fn attn_merge(launch: &mut Launch<'_>) {
    let p: AttnMergeParams = launch.params();
    let head_dim = launch.variant.constant("HD") as usize;
    let partial: &[f32] = bytemuck::cast_slice(launch.read[0]);
    let meta = launch.read[1];
    let out: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    for merge in 0..p.merges {
        let item = &meta[(p.merges_at + merge * MERGE_WORDS) as usize..][..MERGE_WORDS as usize];
        for head in 0..p.heads {
            let mut total = Partial::empty(head_dim);
            for split in 0..item[2] {
                let slot = (item[1] + split * p.heads + head) * partial_values(head_dim as u32);
                let part = &partial[slot as usize..][..head_dim + 2];
                total.fold(&part[..head_dim], part[head_dim], part[head_dim + 1]);
            }
            let at = (item[0] * p.out_stride) as usize + head as usize * head_dim;
            for (out, o) in out[at..at + head_dim].iter_mut().zip(&total.o) {
                *out = o / total.l;
            }
        }
    }
}
