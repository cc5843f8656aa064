//! Mixture of experts: the router's choice, the pairs of a step grouped by expert, the products
//! with chosen matrices, and their weighed sum in rank order. All on the device; a pair's bits are
//! a function of its own token.

use super::mul::{Matrix, MatrixPart, packed_stride, read_packed, segments_of, variant_name};
use super::{Kernel, fold_grid, layout, named};
use crate::base::{Activations, Format};
use crate::record::{Binding, Facts, Recording};

/// Experts a router may have, and those a token may use.
pub const EXPERTS_MAX: u32 = 512;
pub const USED_MAX: u32 = 32;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct MoeRouteParams {
    pub tokens: u32,
    pub experts: u32,
    pub used: u32,
    pub stride: u32,
    pub scoring: u32,
    pub has_bias: u32,
    pub normalise: u32,
    pub scale: f32,
    pub weights_at: u32,
    pub grid_x: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct MoeGroupParams {
    pub pairs: u32,
    pub experts: u32,
    pub tile: u32,
    pub list_at: u32,
    pub tiles_at: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct MulExpertParams {
    pub rows: u32,
    pub k_blocks: u32,
    pub segments: u32,
    pub x_stride: u32,
    pub y_stride: u32,
    pub x_div: u32,
    pub list_at: u32,
    pub tiles_at: u32,
    pub first_expert: u32,
    pub experts: u32,
    pub quant_stride: u32,
    pub scale_stride: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct MoeCombineParams {
    pub tokens: u32,
    pub used: u32,
    pub dim: u32,
    pub stride: u32,
    pub weights_at: u32,
    pub accumulate: u32,
    pub scale: f32,
    pub grid_x: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct MulHeadsParams {
    pub rows: u32,
    pub k_blocks: u32,
    pub segments: u32,
    pub tokens: u32,
    pub x_stride: u32,
    pub x_head: u32,
    pub y_stride: u32,
    pub y_head: u32,
    pub first_head: u32,
    pub first_tile: u32,
    pub quant_stride: u32,
    pub scale_stride: u32,
}

pub const MUL_HEADS: Kernel = Kernel { stem: "mul_heads", bindings: 4, writes: &[3] };
pub const MOE_ROUTE: Kernel = Kernel { stem: "moe_route", bindings: 3, writes: &[2] };
pub const MOE_GROUP: Kernel = Kernel { stem: "moe_group", bindings: 1, writes: &[0] };
pub const MUL_EXPERT: Kernel = Kernel { stem: "mul_expert", bindings: 5, writes: &[4] };
pub const MUL_EXPERT_VEC: Kernel = Kernel { stem: "mul_expert_vec", bindings: 5, writes: &[4] };
pub const MOE_COMBINE: Kernel = Kernel { stem: "moe_combine", bindings: 3, writes: &[2] };

/// Pairs per tile that have a variant.
const TILES: [u32; 3] = [1, 4, 8];

/// How a router's logits become scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scoring {
    Softmax,
    Sigmoid,
}

/// A step's pairs of (token, rank), and where their lists lie in the routing's buffer, in words:
/// experts, weights, grouped pairs, number of tiles, tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub tokens: u32,
    pub experts: u32,
    pub used: u32,
}

impl Route {
    pub fn pairs(self) -> u32 {
        self.tokens * self.used
    }

    pub fn weights_at(self) -> u32 {
        self.pairs()
    }

    pub fn list_at(self) -> u32 {
        2 * self.pairs()
    }

    pub fn tiles_at(self) -> u32 {
        3 * self.pairs()
    }

    /// Words of the buffer.
    pub fn words(self) -> u64 {
        u64::from(self.pairs()) * 6 + 1
    }

    /// Pairs per tile: about what an expert gets.
    pub fn tile(self) -> u32 {
        let each = self.pairs().div_ceil(self.experts);
        TILES.into_iter().find(|&tile| tile >= each).unwrap_or(8)
    }

    /// The most tiles there can be: each expert leaves one of its tiles unfilled.
    fn tiles_max(self) -> u32 {
        let pairs = self.pairs();
        pairs.min(pairs / self.tile() + self.experts)
    }
}

/// Chooses the experts of every token and groups the pairs.
pub struct MoeRoute {
    pub route: Route,
    /// `[tokens][stride]`.
    pub logits: Binding,
    pub stride: u32,
    pub scoring: Scoring,
    /// Added to the scores for the choice alone, `[experts]`.
    pub bias: Option<Binding>,
    /// The weights of a token's experts add up to `scale`.
    pub normalise: bool,
    pub scale: f32,
    /// [`Route::words`] long.
    pub out: Binding,
}

impl MoeRoute {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let Route { tokens, experts, used } = self.route;
        let variant = named(if facts.software() { "moe_route.w8" } else { "moe_route.w64" });
        let grid = fold_grid(tokens, facts);
        let params = MoeRouteParams {
            tokens,
            experts,
            used,
            stride: self.stride,
            scoring: u32::from(self.scoring == Scoring::Sigmoid),
            has_bias: u32::from(self.bias.is_some()),
            normalise: u32::from(self.normalise),
            scale: self.scale,
            weights_at: self.route.weights_at(),
            grid_x: grid[0],
        };
        let bindings = vec![self.logits, self.bias.unwrap_or(self.logits), self.out];
        recording.dispatch(variant, &params, bindings, grid);
        let params = MoeGroupParams {
            pairs: self.route.pairs(),
            experts,
            tile: self.route.tile(),
            list_at: self.route.list_at(),
            tiles_at: self.route.tiles_at(),
        };
        recording.dispatch(named("moe_group"), &params, vec![self.out], [1; 3]);
    }
}

/// The matrices `[rows, cols]` of a layer's experts on a device, split between experts where they
/// exceed a binding.
#[derive(Clone, Debug)]
pub struct Experts {
    pub format: Format,
    pub rows: u32,
    pub cols: u32,
    pub parts: Vec<ExpertPart>,
}

impl Experts {
    /// Vectors of quants and words of scales from one expert of a part to the next; they were
    /// loaded, so they are within 32 bits.
    fn strides(&self) -> (u32, u32) {
        let (rows, cols) = (u64::from(self.rows), u64::from(self.cols));
        let one = layout::stream_bytes(self.format, rows, cols);
        one.map_or((0, 0), |one| ((one.quants / 16) as u32, (one.scales / 4) as u32))
    }

    /// The first expert by itself, if any is on the device.
    pub fn first(&self) -> Option<Matrix> {
        let part = self.parts.first()?;
        let (rows, quants, scales) = (self.rows, part.quants, part.scales);
        let parts = vec![MatrixPart { first: 0, rows, quants, scales }];
        Some(Matrix { format: self.format, rows, cols: self.cols, parts })
    }
}

/// The streams of experts `first..first + experts`, one expert after the other in both.
#[derive(Clone, Debug)]
pub struct ExpertPart {
    pub first: u32,
    pub experts: u32,
    pub quants: Binding,
    pub scales: Binding,
}

/// `y[pair]` = `x[pair / x_div]` wᵀ with the matrix of the pair's expert. Strides in values.
pub struct MulExpert<'a> {
    pub w: &'a Experts,
    pub route: Route,
    pub routing: Binding,
    pub x: Binding,
    pub x_stride: u32,
    /// The same rows as [`Pack`](super::mul::Pack) leaves them, for formats that can take bytes.
    pub packed: Option<Binding>,
    /// `used` where x has a row per token, 1 where it has one per pair.
    pub x_div: u32,
    pub y: Binding,
    pub y_stride: u32,
}

impl MulExpert<'_> {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let (rows, cols) = (self.w.rows, self.w.cols);
        let (x, x_stride, taken) = match read_packed(self.w.format, self.packed) {
            Some(packed) => (packed, packed_stride(cols), Activations::Int8),
            None => (self.x, self.x_stride, Activations::F32),
        };
        let (tile, format) = (self.route.tile(), variant_name(self.w.format, taken));
        let segments = segments_of(rows, cols, facts);
        let variant = match (segments, tile) {
            (2.., 1) => named(&format!("mul_expert_vec.{format}.s{segments}")),
            _ => {
                let suffix = super::texel_suffix(cols, facts);
                named(&format!("mul_expert.{format}.m{tile}{suffix}"))
            }
        };
        let consts = super::get(variant);
        let columns = match consts.constant("LANES") {
            0 => consts.constant("WG") * consts.constant("TN"),
            lanes => lanes,
        };
        let k_blocks = cols.div_ceil(layout::K_BLOCK);
        let (quant_stride, scale_stride) = self.w.strides();
        for part in &self.w.parts {
            let params = MulExpertParams {
                rows,
                k_blocks,
                segments,
                x_stride,
                y_stride: self.y_stride,
                x_div: self.x_div,
                list_at: self.route.list_at(),
                tiles_at: self.route.tiles_at(),
                first_expert: part.first,
                experts: part.experts,
                quant_stride,
                scale_stride,
            };
            let bindings = vec![part.quants, part.scales, x, self.routing, self.y];
            let grid = [rows.div_ceil(columns), self.route.tiles_max(), 1];
            recording.dispatch(variant, &params, bindings, grid);
        }
    }
}

/// `y` (+)= `scale` · Σ weight · `x`, over the ranks of each token in order.
pub struct MoeCombine {
    pub route: Route,
    pub routing: Binding,
    /// `[pair][stride]`.
    pub x: Binding,
    /// `[token][stride]`.
    pub y: Binding,
    pub dim: u32,
    pub stride: u32,
    pub accumulate: bool,
    pub scale: f32,
}

impl MoeCombine {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let Route { tokens, used, .. } = self.route;
        let grid = fold_grid((tokens * (self.dim / 4)).div_ceil(64), facts);
        let params = MoeCombineParams {
            tokens,
            used,
            dim: self.dim,
            stride: self.stride,
            weights_at: self.route.weights_at(),
            accumulate: u32::from(self.accumulate),
            scale: self.scale,
            grid_x: grid[0],
        };
        let bindings = vec![self.x, self.routing, self.y];
        recording.dispatch(named("moe_combine"), &params, bindings, grid);
    }
}

/// `y[t][h]` = `x[t][h]` wᵀ with the matrix of head h, an expert that every token uses. Strides in
/// values, from token to token and from head to head.
pub struct MulHeads<'a> {
    pub w: &'a Experts,
    pub tokens: u32,
    pub x: Binding,
    pub x_stride: u32,
    pub x_head: u32,
    pub y: Binding,
    pub y_stride: u32,
    pub y_head: u32,
}

impl MulHeads<'_> {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let (rows, format) = (self.w.rows, self.w.format.name());
        let tile = if self.tokens == 1 { 1 } else { 8 };
        let suffix = super::texel_suffix(self.w.cols, facts);
        let variant = named(&format!("mul_heads.{format}.m{tile}{suffix}"));
        let consts = super::get(variant);
        let columns = consts.constant("WG") * consts.constant("TN");
        let (quant_stride, scale_stride) = self.w.strides();
        let tiles = |part: &ExpertPart| part.experts * self.tokens.div_ceil(tile);
        let width = facts.workgroups_max.max(1) as usize;
        let starts = self.w.parts.iter().flat_map(|part| {
            (0..tiles(part)).step_by(width).map(move |first_tile| (part, first_tile))
        });
        for (part, first_tile) in starts {
            let params = MulHeadsParams {
                rows,
                k_blocks: self.w.cols.div_ceil(layout::K_BLOCK),
                // Heads keep a wide device busy.
                segments: 1,
                tokens: self.tokens,
                x_stride: self.x_stride,
                x_head: self.x_head,
                y_stride: self.y_stride,
                y_head: self.y_head,
                first_head: part.first,
                first_tile,
                quant_stride,
                scale_stride,
            };
            let bindings = vec![part.quants, part.scales, self.x, self.y];
            let tiles = (tiles(part) - first_tile).min(facts.workgroups_max);
            recording.dispatch(variant, &params, bindings, [rows.div_ceil(columns), tiles, 1]);
        }
    }
}
