//! Twins of `norm_rms`, `norm_qk`, `rope_kv`, `act_glu` and `soft_cap`.

use super::Launch;
use super::dots::pack_row;
use super::kv::Layout;
use crate::kernels::block::{ActGluParams, NormParams, NormQkParams, RopeKvParams, SoftCapParams};

/// 1 / sqrt(mean(x^2) + eps).
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let sum: f64 = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    1.0 / ((sum / x.len() as f64) as f32 + eps).sqrt()
}

pub fn norm_rms(launch: &mut Launch<'_>) {
    let p: NormParams = launch.params();
    let (x, w, meta) = (launch.read[0], launch.read[1], launch.read[2]);
    let (x, w): (&[f32], &[f32]) = (bytemuck::cast_slice(x), bytemuck::cast_slice(w));
    let packed = launch.variant.imports["end"] == "norm_bytes";
    let dim = p.dim as usize;
    let mut normed = vec![0.0; dim.next_multiple_of(32)];
    for r in 0..p.rows as usize {
        let source = if p.gather == 1 { meta[p.rows_at as usize + r] as usize } else { r };
        let from = &x[source * p.x_stride as usize..][..dim];
        let scale = inverse_rms(from, p.eps);
        for ((value, from), w) in normed.iter_mut().zip(from).zip(w) {
            *value = (from * scale) * (w + p.offset);
        }
        let to = &mut launch.write[0][r * p.y_stride as usize..];
        if packed {
            pack_row(&normed, to);
            continue;
        }
        for (to, value) in bytemuck::cast_slice_mut(&mut to[..dim]).iter_mut().zip(&normed) {
            *to = if p.accumulate == 1 { *to + value } else { *value };
        }
    }
}

pub fn norm_qk(launch: &mut Launch<'_>) {
    let p: NormQkParams = launch.params();
    let weights = [launch.read[0], launch.read[1]].map(bytemuck::cast_slice::<u32, f32>);
    let x: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let shapes = [(0, p.q_groups, p.q_dim), (p.k_at, p.k_groups, p.k_dim)];
    for (w, (first, groups, dim)) in weights.into_iter().zip(shapes) {
        for t in 0..p.tokens {
            for group in 0..groups {
                let at = (t * p.x_stride + first + group * dim) as usize;
                let x = &mut x[at..at + dim as usize];
                let scale = inverse_rms(x, p.eps);
                for (x, w) in x.iter_mut().zip(w) {
                    *x = (*x * scale) * (w + p.offset);
                }
            }
        }
    }
}

pub fn rope_kv(launch: &mut Launch<'_>) {
    let p: RopeKvParams = launch.params();
    let table: &[f32] = bytemuck::cast_slice(launch.read[0]);
    let meta = launch.read[1];
    let (head_dim, half) = (p.head_dim as usize, p.rotary as usize / 2);
    let rotate = |head: &mut [f32], position: u32| {
        for i in 0..half {
            let at = (position as usize * half + i) * 2;
            let (cos, sin) = (table[at], table[at + 1]);
            let (at, to) = (p.first as usize + i, p.first as usize + i + half);
            let (a, b) = (head[at], head[to]);
            head[at] = a * cos - b * sin;
            head[to] = b * cos + a * sin;
        }
    };
    let [x, k_cache, v_cache] = &mut launch.write[..] else { unreachable!("three bindings") };
    let x: &mut [f32] = bytemuck::cast_slice_mut(x);
    let layout = Layout::of(launch.variant, p.block_size, head_dim);
    let mut rotated = vec![0.0; head_dim];
    for t in 0..p.tokens as usize {
        let position = meta[p.positions_at as usize + t];
        let (block, offset) = {
            let slot = meta[p.slots_at as usize + t];
            ((slot / p.block_size) as usize, (slot % p.block_size) as usize)
        };
        let row = &mut x[t * p.x_stride as usize..];
        for head in 0..p.heads as usize {
            let at = p.q_at as usize + head * head_dim;
            rotate(&mut row[at..at + head_dim], position);
        }
        for kv in 0..p.kv_heads as usize {
            let [k, v] = [p.k_at, p.v_at].map(|at| &row[at as usize + kv * head_dim..][..head_dim]);
            let tile = block * p.kv_heads as usize + kv;
            rotated.copy_from_slice(k);
            rotate(&mut rotated, position);
            layout.write(k_cache, tile, offset, &rotated);
            if p.values == 1 {
                layout.write(v_cache, tile, offset, v);
            }
        }
    }
}

/// As lib/gates.
pub(super) fn act(kind: u32, g: f32) -> f32 {
    let u = 0.797_884_6 * (g + 0.044_715 * g * g * g);
    g / (1.0 + if kind == 1 { -g } else { -2.0 * u }.exp())
}

pub fn act_glu(launch: &mut Launch<'_>) {
    let p: ActGluParams = launch.params();
    let x: &[f32] = bytemuck::cast_slice(launch.read[0]);
    let y: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let rows = x.chunks(p.x_stride.max(1) as usize).zip(y.chunks_mut(p.y_stride.max(1) as usize));
    for (x, y) in rows.take((p.count / p.y_stride.max(1)) as usize) {
        let (y, rest) = y.split_at_mut(p.dim as usize);
        for (y, (gate, up)) in y.iter_mut().zip(x.iter().zip(&x[p.up_at as usize..])) {
            *y = act(p.act, *gate) * up;
        }
        rest.fill(0.0);
    }
}

pub fn soft_cap(launch: &mut Launch<'_>) {
    let p: SoftCapParams = launch.params();
    let x: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    for v in x.iter_mut().take(p.count as usize) {
        *v = p.cap * (*v / p.cap).tanh();
    }
}
