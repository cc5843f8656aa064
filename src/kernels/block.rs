//! The kernels around the products of a transformer block: norm, RoPE with KV write, gate.

use super::{Kernel, fold_grid, named};
use crate::record::{Binding, Facts, Recording};

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct NormParams {
    pub rows: u32,
    pub dim: u32,
    pub x_stride: u32,
    pub y_stride: u32,
    pub gather: u32,
    pub rows_at: u32,
    pub eps: f32,
    pub offset: f32,
    pub grid_x: u32,
}

pub const NORM_RMS: Kernel = Kernel { stem: "norm_rms", bindings: 4, writes: &[3] };

/// RMS norm of `rows` rows, each `dim` long; strides in values.
pub struct NormRms {
    pub rows: u32,
    pub dim: u32,
    pub x: Binding,
    pub x_stride: u32,
    pub w: Binding,
    pub meta: Binding,
    /// Word of `meta` with the source row of each row; `None` for rows as they lie.
    pub rows_at: Option<u32>,
    pub y: Binding,
    pub y_stride: u32,
    pub eps: f32,
    /// Added to every weight (1 for families that store `w - 1`).
    pub offset: f32,
}

impl NormRms {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let variant = named(if facts.software() { "norm_rms.w8" } else { "norm_rms.w64" });
        let grid = fold_grid(self.rows, facts);
        let params = NormParams {
            rows: self.rows,
            dim: self.dim,
            x_stride: self.x_stride,
            y_stride: self.y_stride,
            gather: u32::from(self.rows_at.is_some()),
            rows_at: self.rows_at.unwrap_or(0),
            eps: self.eps,
            offset: self.offset,
            grid_x: grid[0],
        };
        recording.dispatch(variant, &params, vec![self.x, self.w, self.meta, self.y], grid);
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct RopeKvParams {
    pub tokens: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub rotary: u32,
    pub q_stride: u32,
    pub kv_stride: u32,
    pub block_size: u32,
    pub positions_at: u32,
    pub slots_at: u32,
    pub grid_x: u32,
}

pub const ROPE_KV: Kernel = Kernel { stem: "rope_kv", bindings: 7, writes: &[4, 5, 6] };

/// Rotates q in place; rotates k and writes it with v into the cache.
pub struct RopeKv {
    /// `grid_x` is filled in by `record`.
    pub params: RopeKvParams,
    pub q: Binding,
    pub k: Binding,
    pub v: Binding,
    /// `[position][rotary / 2]` of (cos, sin).
    pub table: Binding,
    pub meta: Binding,
    pub k_cache: Binding,
    pub v_cache: Binding,
}

impl RopeKv {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let mut params = self.params;
        let heads = params.heads + params.kv_heads;
        let threads = params.tokens * heads * (params.head_dim / 2);
        let grid = fold_grid(threads.div_ceil(64), facts);
        params.grid_x = grid[0];
        let (cache, table, meta) = ([self.k_cache, self.v_cache], self.table, self.meta);
        let bindings = vec![self.k, self.v, table, meta, self.q, cache[0], cache[1]];
        recording.dispatch(named("rope_kv"), &params, bindings, grid);
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct ActGluParams {
    pub count: u32,
    pub grid_x: u32,
}

pub const ACT_GLU: Kernel = Kernel { stem: "act_glu", bindings: 2, writes: &[1] };

/// `gate` = silu(`gate`) * `up`, `count` values.
pub fn act_glu(count: u32, gate: Binding, up: Binding, facts: &Facts, recording: &mut Recording) {
    let grid = fold_grid(count.div_ceil(64), facts);
    let params = ActGluParams { count, grid_x: grid[0] };
    recording.dispatch(named("act_glu"), &params, vec![up, gate], grid);
}
