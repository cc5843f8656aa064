//! The kernels around the products of a transformer block: norms, RoPE with KV write, gate.

use super::{Kernel, fold_grid, named};
use crate::base::{Activations, KvType};
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
    pub accumulate: u32,
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
    /// How rows of `y` are written: as they are, or as [`super::mul::Pack`] packs them, which
    /// nothing can be added to. Their stride is in words then.
    pub taken: Activations,
    pub eps: f32,
    /// Added to every weight (1 for families that store `w - 1`).
    pub offset: f32,
    /// Adds to `y` instead of overwriting it.
    pub accumulate: bool,
}

impl NormRms {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        assert!(!self.accumulate || self.taken == Activations::F32, "bytes do not add up");
        let variant = named(match (self.taken, facts.software()) {
            (Activations::F32, true) => "norm_rms.w8",
            (Activations::F32, false) => "norm_rms.w64",
            (Activations::Int8, true) => "norm_rms.int8.w8",
            (Activations::Int8, false) => "norm_rms.int8.w64",
        });
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
            accumulate: u32::from(self.accumulate),
            grid_x: grid[0],
        };
        recording.dispatch(variant, &params, vec![self.x, self.w, self.meta, self.y], grid);
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct NormQkParams {
    pub tokens: u32,
    pub x_stride: u32,
    pub q_groups: u32,
    pub q_dim: u32,
    pub k_at: u32,
    pub k_groups: u32,
    pub k_dim: u32,
    pub eps: f32,
    pub offset: f32,
    pub grid_x: u32,
}

pub const NORM_QK: Kernel = Kernel { stem: "norm_qk", bindings: 3, writes: &[2] };

/// RMS norms in place: each of the groups of `dim` values that q and k of a token consist of (its
/// heads, or all of them), q from the beginning of its row, k from value `k_at` on.
pub struct NormQk {
    pub tokens: u32,
    pub x: Binding,
    pub x_stride: u32,
    pub q_groups: u32,
    pub q_dim: u32,
    pub q_weight: Binding,
    pub k_at: u32,
    pub k_groups: u32,
    pub k_dim: u32,
    pub k_weight: Binding,
    pub eps: f32,
    /// Added to every weight.
    pub offset: f32,
}

impl NormQk {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let variant = named(if facts.software() { "norm_qk.w8" } else { "norm_qk.w64" });
        let grid = fold_grid(self.tokens * (self.q_groups + self.k_groups), facts);
        let params = NormQkParams {
            tokens: self.tokens,
            x_stride: self.x_stride,
            q_groups: self.q_groups,
            q_dim: self.q_dim,
            k_at: self.k_at,
            k_groups: self.k_groups,
            k_dim: self.k_dim,
            eps: self.eps,
            offset: self.offset,
            grid_x: grid[0],
        };
        let bindings = vec![self.q_weight, self.k_weight, self.x];
        recording.dispatch(variant, &params, bindings, grid);
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct RopeKvParams {
    pub tokens: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub first: u32,
    pub rotary: u32,
    pub values: u32,
    pub x_stride: u32,
    pub q_at: u32,
    pub k_at: u32,
    pub v_at: u32,
    pub block_size: u32,
    pub positions_at: u32,
    pub slots_at: u32,
    pub grid_x: u32,
}

/// Threads of a workgroup of `rope_kv`.
const ROPE_WIDTH: u32 = 64;

pub const ROPE_KV: Kernel = Kernel { stem: "rope_kv", bindings: 5, writes: &[2, 3, 4] };

/// Rotates q in place; rotates k and writes it with v into the cache. All three lie in one row per
/// token. `head_dim` and `rotary` are multiples of 8, where they begin multiples of 4.
pub struct RopeKv {
    /// `grid_x` is filled in by `record`.
    pub params: RopeKvParams,
    pub kv: KvType,
    pub x: Binding,
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
        // Eight values a thread, whole heads a workgroup.
        let wide = params.head_dim / 8 > ROPE_WIDTH;
        let width = if wide { 2 * ROPE_WIDTH } else { ROPE_WIDTH };
        let heads_of_group = width / (params.head_dim / 8);
        let grid = fold_grid((params.tokens * heads).div_ceil(heads_of_group), facts);
        params.grid_x = grid[0];
        let bindings = vec![self.table, self.meta, self.x, self.k_cache, self.v_cache];
        let variant = named(&format!("rope_kv.{}{}", self.kv, if wide { ".wide" } else { "" }));
        recording.dispatch(variant, &params, bindings, grid);
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct ActGluParams {
    pub count: u32,
    pub dim: u32,
    pub x_stride: u32,
    pub up_at: u32,
    pub y_stride: u32,
    pub act: u32,
    pub grid_x: u32,
}

pub const ACT_GLU: Kernel = Kernel { stem: "act_glu", bindings: 2, writes: &[1] };

/// What a gate does before it is multiplied, and its number for kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    Silu = 1,
    GeluTanh = 2,
}

/// `y` = act(gate) * up, `rows` rows of `dim` values; the rest of each row of `y` becomes 0. A row
/// of x begins with gate, and has up from value `up_at` on.
pub struct ActGlu {
    pub act: Gate,
    pub rows: u32,
    pub dim: u32,
    pub x: Binding,
    pub x_stride: u32,
    pub up_at: u32,
    pub y: Binding,
    pub y_stride: u32,
}

impl ActGlu {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let count = self.rows * self.y_stride;
        let grid = fold_grid(count.div_ceil(64), facts);
        let params = ActGluParams {
            count,
            dim: self.dim,
            x_stride: self.x_stride,
            up_at: self.up_at,
            y_stride: self.y_stride,
            act: self.act as u32,
            grid_x: grid[0],
        };
        recording.dispatch(named("act_glu"), &params, vec![self.x, self.y], grid);
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SoftCapParams {
    pub count: u32,
    pub cap: f32,
    pub grid_x: u32,
}

pub const SOFT_CAP: Kernel = Kernel { stem: "soft_cap", bindings: 1, writes: &[0] };

/// `x` = cap * tanh(`x` / cap), `count` values.
pub struct SoftCap {
    pub cap: f32,
    pub count: u32,
    pub x: Binding,
}

impl SoftCap {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let grid = fold_grid(self.count.div_ceil(64), facts);
        let params = SoftCapParams { count: self.count, cap: self.cap, grid_x: grid[0] };
        recording.dispatch(named("soft_cap"), &params, vec![self.x], grid);
    }
}
