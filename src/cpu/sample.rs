//! Twins of `sample_edit`, `sample_mask`, `sample_stats` and `sample`. The cuts are done by
//! sorting, which the shader's search is checked against.

use super::Launch;
use crate::kernels::sample::{
    EDIT_WORDS, Edit, OUT_WORDS, ROW_WORDS, SampleEditParams, SampleParams, SampleRow, mask_words,
};

fn row_of(rows: &[u32], row: usize) -> SampleRow {
    let words = &rows[row * ROW_WORDS as usize..][..ROW_WORDS as usize];
    bytemuck::pod_read_unaligned(bytemuck::cast_slice(words))
}

pub fn sample_edit(launch: &mut Launch<'_>) {
    let p: SampleEditParams = launch.params();
    let rows = launch.read[0];
    let [edits, logits] = &mut launch.write[..] else { unreachable!("two bindings") };
    let edits: &mut [Edit] = bytemuck::cast_slice_mut(edits);
    let logits: &mut [f32] = bytemuck::cast_slice_mut(logits);
    for edit in edits.iter_mut().skip(p.first as usize).take(p.count as usize) {
        let row = row_of(rows, edit.row as usize);
        let logit = &mut logits[((edit.row - p.row_base) * p.stride + edit.token) as usize];
        edit.raw = *logit;
        if edit.seen == 1 {
            let (l, r) = (*logit, row.repetition);
            *logit = if l > 0.0 { l / r } else { l * r };
        }
        if edit.times > 0 {
            *logit = (-row.frequency).mul_add(edit.times as f32, *logit - row.presence);
        }
        *logit += edit.bias;
    }
}

/// What a logit becomes whose id is not allowed.
const LOWEST: f32 = -1e30;

pub fn sample_mask(launch: &mut Launch<'_>) {
    let p: SampleParams = launch.params();
    let (rows, masks) = (launch.read[0], launch.read[1]);
    let logits: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let words = mask_words(p.vocab) as usize;
    for local in 0..p.rows as usize {
        let mask = row_of(rows, p.row_base as usize + local).mask as usize;
        let Some(mask) = mask.checked_sub(1) else { continue };
        let allowed = &masks[mask * words..][..words];
        let row = &mut logits[local * p.stride as usize..][..p.vocab as usize];
        for (id, logit) in row.iter_mut().enumerate() {
            if (allowed[id / 32] >> (id % 32)) & 1 == 0 {
                *logit = LOWEST;
            }
        }
    }
}

pub fn sample_stats(launch: &mut Launch<'_>) {
    let p: SampleParams = launch.params();
    let rows = launch.read[0];
    let logits: &[f32] = bytemuck::cast_slice(launch.read[1]);
    for local in 0..p.rows as usize {
        let row = p.row_base as usize + local;
        let l = &logits[local * p.stride as usize..][..p.vocab as usize];
        let out = &mut launch.write[0][row * OUT_WORDS as usize..][..OUT_WORDS as usize];
        let finite = l.iter().all(|v| v.is_finite());
        out[1] = u32::from(finite);
        let top = row_of(rows, row).top as usize;
        if top == 0 || !finite {
            continue;
        }
        let high = l.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = l.iter().map(|v| f64::from((v - high).exp())).sum();
        out[4] = high.to_bits();
        out[5] = (sum.ln() as f32).to_bits();
        let mut order: Vec<u32> = (0..p.vocab).collect();
        order.sort_by(|&a, &b| l[b as usize].total_cmp(&l[a as usize]).then(a.cmp(&b)));
        for (n, &id) in order.iter().take(top - 1).enumerate() {
            out[8 + 2 * n] = id;
            out[9 + 2 * n] = l[id as usize].to_bits();
        }
    }
}

pub fn sample(launch: &mut Launch<'_>) {
    let p: SampleParams = launch.params();
    let (rows, edits) = (launch.read[0], launch.read[1]);
    let logits: &[f32] = bytemuck::cast_slice(launch.read[2]);
    for local in 0..p.rows as usize {
        let row = p.row_base as usize + local;
        let l = &logits[local * p.stride as usize..][..p.vocab as usize];
        let asked = row_of(rows, row);
        let (token, kept) = pick(l, &asked);
        let mut raw = l[token as usize];
        for e in asked.first_edit..asked.first_edit + asked.edits {
            let words = &edits[(e * EDIT_WORDS) as usize..][..EDIT_WORDS as usize];
            let edit: Edit = bytemuck::pod_read_unaligned(bytemuck::cast_slice(words));
            if edit.token == token {
                raw = edit.raw;
            }
        }
        let out = &mut launch.write[1][row * OUT_WORDS as usize..][..OUT_WORDS as usize];
        out[0] = token;
        out[2] = raw.to_bits();
        out[3] = kept;
    }
}

/// The chosen token and how many were kept.
fn pick(logits: &[f32], asked: &SampleRow) -> (u32, u32) {
    if asked.given > 0 {
        return (asked.given - 1, 1);
    }
    let mut best = 0;
    for (id, l) in logits.iter().enumerate() {
        if *l > logits[best] {
            best = id;
        }
    }
    if asked.temperature == 0.0 || asked.top_k == 1 {
        return (best as u32, 1);
    }
    let high = logits[best];
    let weight = |l: &f32| ((l - high) / asked.temperature).exp();
    let weights: Vec<f32> = logits.iter().map(weight).collect();
    let mut order: Vec<usize> = (0..weights.len()).filter(|&i| weights[i] > 0.0).collect();
    if asked.top_k > 0 || asked.top_p < 1.0 {
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
    }
    if asked.top_k > 0 {
        order.truncate(asked.top_k as usize);
    }
    if asked.top_p < 1.0 {
        let mass: f64 = order.iter().map(|&i| f64::from(weights[i])).sum();
        let goal = f64::from(asked.top_p.max(1e-9)) * mass;
        let mut sum = 0.0;
        let reached = order.iter().position(|&i| {
            sum += f64::from(weights[i]);
            sum >= goal
        });
        order.truncate(reached.map_or(order.len(), |at| at + 1));
    }
    order.retain(|&i| weights[i] >= asked.min_p);
    order.sort_unstable();
    let mass: f64 = order.iter().map(|&i| f64::from(weights[i])).sum();
    let goal = f64::from(asked.unit) * mass;
    let mut sum = 0.0;
    let passed = order.iter().position(|&i| {
        sum += f64::from(weights[i]);
        sum > goal
    });
    let token = passed.map_or_else(|| order.last().copied().unwrap_or(best), |at| order[at]);
    (token as u32, order.len() as u32)
}
