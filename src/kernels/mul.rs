//! Matrix products: which variant serves which shape, and the launch.

use super::{Kernel, fold_grid, layout, named, texel_suffix, texels};
use crate::base::Format;
use crate::record::{Binding, Facts, Recording, VariantId};

/// A weight matrix `[rows, cols]` on a device, split by rows where it exceeds a binding.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub format: Format,
    pub rows: u32,
    pub cols: u32,
    pub parts: Vec<MatrixPart>,
}

/// Rows `first..first + rows` of a matrix.
#[derive(Clone, Debug)]
pub struct MatrixPart {
    pub first: u32,
    pub rows: u32,
    pub quants: Binding,
    pub scales: Binding,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct MulParams {
    pub rows: u32,
    pub k_blocks: u32,
    pub segments: u32,
    pub first: u32,
    pub tokens: u32,
    pub x_stride: u32,
    pub y_stride: u32,
    pub y_column: u32,
    pub accumulate: u32,
    pub has_bias: u32,
    pub scale: f32,
}

pub const MUL_MAT: Kernel = Kernel { stem: "mul_mat", bindings: 5, writes: &[4] };
pub const MUL_VEC: Kernel = Kernel { stem: "mul_vec", bindings: 5, writes: &[4] };

/// Bytes of x that a launch of a `texel` variant has before it: a uniform of the usual limit.
pub const WINDOW: u64 = 1 << 16;

/// Threads that fill a wide device; one token is cut along k until about this many work on it.
const THREADS_WANTED: u32 = 16_384;

/// Tokens per thread or workgroup that have a variant.
const TILES: [u32; 4] = [1, 2, 4, 8];

/// Operands of a product: `y[.., column..]` (+)= (`x` wᵀ + `bias`) · `scale`. Strides in values.
pub struct Mul<'a> {
    pub w: &'a Matrix,
    pub tokens: u32,
    pub x: Binding,
    pub x_stride: u32,
    pub y: Binding,
    pub y_stride: u32,
    pub bias: Option<Binding>,
    /// Adds to `y` (a residual) instead of overwriting it.
    pub accumulate: bool,
    pub scale: f32,
}

/// Parts that k is cut into: a constant of the shape and the device, never of the token count.
pub fn segments(w: &Matrix, facts: &Facts) -> u32 {
    segments_of(w.rows, w.cols, facts)
}

pub(super) fn segments_of(rows: u32, cols: u32, facts: &Facts) -> u32 {
    if facts.software() {
        return 1;
    }
    let k_blocks = cols.div_ceil(layout::K_BLOCK);
    let mut segments = 1;
    while segments < 8 && rows * segments < THREADS_WANTED && k_blocks >= segments * 8 {
        segments *= 2;
    }
    segments
}

/// The variant for `tokens` rows of `w`, and the tokens it carries per tile.
pub fn variant(w: &Matrix, tokens: u32, facts: &Facts) -> (VariantId, Kernel, u32) {
    let tile = TILES.into_iter().find(|&t| t >= tokens).unwrap_or(8);
    let cuts = segments(w, facts);
    let format = w.format.name();
    if cuts > 1 && tokens <= 8 {
        return (named(&format!("mul_vec.{format}.m{tile}.s{cuts}")), MUL_VEC, tile);
    }
    let suffix = texel_suffix(w.cols, facts);
    let tile = if suffix.is_empty() { tile } else { tile.min(window_tile(w.cols)) };
    (named(&format!("mul_mat.{format}.m{tile}{suffix}")), MUL_MAT, tile)
}

/// The largest tile whose rows of x fit the window.
fn window_tile(cols: u32) -> u32 {
    let row = u64::from(cols.next_multiple_of(layout::K_BLOCK)) * 4;
    TILES.into_iter().rev().find(|t| u64::from(*t) * row <= WINDOW).unwrap_or(1)
}

impl Mul<'_> {
    /// Rows of x per launch: whole tiles.
    fn rows_at_once(&self, tile: u32, facts: &Facts) -> u32 {
        if !texels(self.w.cols, facts) {
            return self.tokens;
        }
        let rows = WINDOW / (u64::from(self.x_stride) * 4);
        (rows as u32 / tile).max(1) * tile
    }

    /// Rows of x from `first` on, as a launch binds them; a device pads its buffers by a window.
    fn window(&self, first: u32, facts: &Facts) -> Binding {
        if !texels(self.w.cols, facts) {
            return self.x;
        }
        let offset = self.x.offset + u64::from(first) * u64::from(self.x_stride) * 4;
        Binding { offset, bytes: WINDOW, ..self.x }
    }

    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let (variant, kernel, tile) = variant(self.w, self.tokens, facts);
        let consts = super::get(variant);
        let columns = match kernel.stem {
            "mul_vec" => consts.constant("LANES"),
            _ => consts.constant("WG") * consts.constant("TN"),
        };
        let at_once = self.rows_at_once(tile, facts);
        let firsts = (0..self.tokens).step_by(at_once as usize);
        for (part, first) in self.w.parts.iter().flat_map(|p| firsts.clone().map(move |f| (p, f))) {
            let tokens = self.tokens.min(first + at_once);
            let x = self.window(first, facts);
            let params = MulParams {
                rows: part.rows,
                k_blocks: self.w.cols.div_ceil(layout::K_BLOCK),
                segments: segments(self.w, facts),
                first,
                tokens,
                x_stride: self.x_stride,
                y_stride: self.y_stride,
                y_column: part.first,
                accumulate: u32::from(self.accumulate),
                has_bias: u32::from(self.bias.is_some()),
                scale: self.scale,
            };
            let bindings = vec![part.quants, part.scales, x, self.bias.unwrap_or(self.x), self.y];
            let grid = [part.rows.div_ceil(columns), (tokens - first).div_ceil(tile), 1];
            recording.dispatch(variant, &params, bindings, grid);
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct EmbedParams {
    pub rows: u32,
    pub first: u32,
    pub k_blocks: u32,
    pub tokens: u32,
    pub tokens_at: u32,
    pub x_stride: u32,
    pub scale: f32,
    pub grid_x: u32,
}

pub const EMBED: Kernel = Kernel { stem: "embed", bindings: 4, writes: &[3] };

/// Writes the embedding rows of the tokens at word `tokens_at` of `meta` to `x`.
pub struct Embed<'a> {
    pub w: &'a Matrix,
    pub tokens: u32,
    pub meta: Binding,
    pub tokens_at: u32,
    pub x: Binding,
    pub x_stride: u32,
    pub scale: f32,
}

impl Embed<'_> {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let suffix = texel_suffix(self.w.cols, facts);
        let variant = named(&format!("embed.{}{suffix}", self.w.format.name()));
        let k_blocks = self.w.cols.div_ceil(layout::K_BLOCK);
        let vectors = k_blocks * layout::stream_shape(self.w.format).rounds();
        let grid = fold_grid((self.tokens * vectors).div_ceil(64), facts);
        for part in &self.w.parts {
            let params = EmbedParams {
                rows: part.rows,
                first: part.first,
                k_blocks,
                tokens: self.tokens,
                tokens_at: self.tokens_at,
                x_stride: self.x_stride,
                scale: self.scale,
                grid_x: grid[0],
            };
            let bindings = vec![part.quants, part.scales, self.meta, self.x];
            recording.dispatch(variant, &params, bindings, grid);
        }
    }
}
