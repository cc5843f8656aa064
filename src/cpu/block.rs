//! Twins of `norm_rms`, `rope_kv` and `act_glu`.

use super::Launch;
use crate::kernels::block::{ActGluParams, NormParams, RopeKvParams};

pub fn norm_rms(launch: &mut Launch<'_>) {
    let p: NormParams = launch.params();
    let (x, w, meta) = (launch.read[0], launch.read[1], launch.read[2]);
    let (x, w): (&[f32], &[f32]) = (bytemuck::cast_slice(x), bytemuck::cast_slice(w));
    let y: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    let dim = p.dim as usize;
    for r in 0..p.rows as usize {
        let source = if p.gather == 1 { meta[p.rows_at as usize + r] as usize } else { r };
        let from = &x[source * p.x_stride as usize..][..dim];
        let sum: f64 = from.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        let scale = 1.0 / ((sum / dim as f64) as f32 + p.eps).sqrt();
        let to = &mut y[r * p.y_stride as usize..][..dim];
        for ((to, from), w) in to.iter_mut().zip(from).zip(w) {
            *to = (from * scale) * (w + p.offset);
        }
    }
}

pub fn rope_kv(launch: &mut Launch<'_>) {
    let p: RopeKvParams = launch.params();
    let [k, v, table] = [0, 1, 2].map(|i| bytemuck::cast_slice::<u32, f32>(launch.read[i]));
    let meta = launch.read[3];
    let (head_dim, half) = (p.head_dim as usize, p.rotary as usize / 2);
    let rotate = |head: &mut [f32], position: u32| {
        for i in 0..half {
            let at = (position as usize * half + i) * 2;
            let (cos, sin) = (table[at], table[at + 1]);
            let (a, b) = (head[i], head[i + half]);
            head[i] = a * cos - b * sin;
            head[i + half] = b * cos + a * sin;
        }
    };
    let [q, k_cache, v_cache] = &mut launch.write[..] else { unreachable!("three bindings") };
    let q: &mut [f32] = bytemuck::cast_slice_mut(q);
    let k_cache: &mut [f32] = bytemuck::cast_slice_mut(k_cache);
    let v_cache: &mut [f32] = bytemuck::cast_slice_mut(v_cache);
    for t in 0..p.tokens as usize {
        let position = meta[p.positions_at as usize + t];
        let (block, offset) = {
            let slot = meta[p.slots_at as usize + t];
            ((slot / p.block_size) as usize, (slot % p.block_size) as usize)
        };
        for head in 0..p.heads as usize {
            let at = t * p.q_stride as usize + head * head_dim;
            rotate(&mut q[at..at + head_dim], position);
        }
        for kv in 0..p.kv_heads as usize {
            let from = t * p.kv_stride as usize + kv * head_dim;
            let row = (block * p.kv_heads as usize + kv) * p.block_size as usize + offset;
            let to = row * head_dim..(row + 1) * head_dim;
            k_cache[to.clone()].copy_from_slice(&k[from..from + head_dim]);
            rotate(&mut k_cache[to.clone()], position);
            v_cache[to].copy_from_slice(&v[from..from + head_dim]);
        }
    }
}

pub fn act_glu(launch: &mut Launch<'_>) {
    let p: ActGluParams = launch.params();
    let up: &[f32] = bytemuck::cast_slice(launch.read[0]);
    let gate: &mut [f32] = bytemuck::cast_slice_mut(launch.write[0]);
    for (gate, up) in gate.iter_mut().zip(up).take(p.count as usize) {
        *gate = *gate / (1.0 + (-*gate).exp()) * up;
    }
}
