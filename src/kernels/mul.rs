//! Matrix products: which variant serves which shape, and the launch.

use super::block::Gate;
use super::{KERNELS, Kernel, fold_grid, layout, named, texel_suffix, texels};
use crate::base::{Activations, Format, Invariance};
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
    pub act: u32,
}

pub const MUL_MAT: Kernel = Kernel { stem: "mul_mat", bindings: 5, writes: &[4] };
pub const MUL_VEC: Kernel = Kernel { stem: "mul_vec", bindings: 5, writes: &[4] };
pub const MUL_GEMM: Kernel = Kernel { stem: "mul_gemm", bindings: 5, writes: &[4] };
pub const MUL_UNIT: Kernel = Kernel { stem: "mul_unit", bindings: 5, writes: &[4] };
pub const TO_HALVES: Kernel = Kernel { stem: "to_halves", bindings: 2, writes: &[1] };

/// Tokens from which on a tile of `mul_gemm` is taken to be worth its empty rows (no GPU was at
/// hand to measure it), those of a tile, and the workgroup memory that its two tiles take.
const GEMM_TOKENS: u32 = 48;
const GEMM_TILE: u32 = 64;
const GEMM_SHARED_BYTES: u32 = 16_384;

/// Bytes of x that a launch of a `texel` variant has before it: a uniform of the usual limit.
pub const WINDOW: u64 = 1 << 16;

/// Threads that fill a wide device; one token is cut along k until about this many work on it.
const THREADS_WANTED: u32 = 16_384;

/// Tokens per thread or workgroup that have a variant.
const TILES: [u32; 4] = [1, 2, 4, 8];

/// Workgroup memory of `mul_unit` with the wider squares.
const UNIT_SHARED_BYTES: u32 = 24_576;

/// Tokens per workgroup of `mul_unit`, in squares of matrix units.
const UNIT_TILES: [u32; 3] = [1, 4, 8];

/// Tokens up to which other kernels serve where units need not serve all: they too read weights
/// once for so many, cut k for more threads, and compute no rows of a square that are not there.
const UNITLESS_TOKENS: u32 = 8;

/// Rows of gates, then rows of what they are for, in the turns of a matrix with gates: the threads
/// of a workgroup of the `texel` variants, so that a thread has both.
pub const TURN: u32 = 8;

/// What products of `format` take where `wanted` is asked for: formats of blocks can take bytes.
/// Where they do they always do, whatever the number of rows, so that a row's bits do not depend on
/// its company.
pub fn activations(format: Format, wanted: Activations) -> Activations {
    if format.block_len() > 1 { wanted } else { Activations::F32 }
}

/// Operands of a product: `y[.., column..]` (+)= (`x` wᵀ + `bias`) · `scale`. Strides in values.
pub struct Mul<'a> {
    pub w: &'a Matrix,
    pub tokens: u32,
    pub x: Binding,
    pub x_stride: u32,
    /// The same rows as [`Pack`] leaves them, which formats that can take bytes then read.
    pub packed: Option<Binding>,
    pub y: Binding,
    pub y_stride: u32,
    pub bias: Option<Binding>,
    /// Adds to `y` (a residual) instead of overwriting it.
    pub accumulate: bool,
    pub scale: f32,
    /// The rows of `w` are in turns of [`TURN`], and y = act(gate) · up, half as many. For devices
    /// with [`texels`]; nothing is accumulated or scaled.
    pub gate: Option<Gate>,
    /// Room of [`halves_bytes`] for x as f16, which only matrix units read.
    pub halves: Binding,
}

/// Bytes of `tokens` rows of `cols` values as `mul_unit` reads them: in whole tiles of any side.
pub fn halves_bytes(tokens: u32, cols: u32) -> u64 {
    u64::from(tokens.next_multiple_of(128)) * u64::from(halves_row(cols)) * 8
}

/// Vectors of four halves in a row: those of x, and its factor.
fn halves_row(cols: u32) -> u32 {
    cols.div_ceil(layout::K_BLOCK) * 8 + 2
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct HalvesParams {
    pub rows: u32,
    pub k_blocks: u32,
    pub x_stride: u32,
    pub grid_x: u32,
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

/// A kernel for products, and the tokens of its tiles. Whichever serves a shape, the bits are the
/// same: the order of a sum is a matter of the shape alone (matrix units aside).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    pub kernel: Kernel,
    pub tile: u32,
}

impl Way {
    /// The way for `tokens` rows of `w`: what was measured on the device, else by rule.
    fn of(w: &Matrix, tokens: u32, facts: &Facts, taken: Activations) -> Way {
        if on_units(w, tokens, facts, taken) {
            return Way::on_units(tokens, facts);
        }
        let tuned = facts.tuned((w.format, taken), [w.rows, w.cols], tokens);
        let tuned = tuned.and_then(|choice| {
            let kernel = KERNELS.into_iter().find(|k| k.stem == choice.kernel)?;
            Some(Way { kernel, tile: choice.tile }).filter(|way| way.serves(w, facts, taken))
        });
        tuned.unwrap_or_else(|| Way::by_rule(w, tokens, facts, taken))
    }

    fn on_units(tokens: u32, facts: &Facts) -> Way {
        let squares = UNIT_TILES.into_iter().find(|s| s * facts.matrix_side >= tokens);
        Way { kernel: MUL_UNIT, tile: squares.unwrap_or(8) * facts.matrix_side }
    }

    fn by_rule(w: &Matrix, tokens: u32, facts: &Facts, taken: Activations) -> Way {
        let tile = TILES.into_iter().find(|&t| t >= tokens).unwrap_or(8);
        let gemm = Way { kernel: MUL_GEMM, tile: GEMM_TILE };
        if segments(w, facts) > 1 && tokens <= 8 {
            Way { kernel: MUL_VEC, tile }
        } else if tokens >= GEMM_TOKENS && gemm.serves(w, facts, taken) {
            gemm
        } else {
            Way { kernel: MUL_MAT, tile: tile.min(widest(w.cols, facts, taken)) }
        }
    }

    /// Whether there is a variant of it for `w` on a device with `facts`.
    fn serves(self, w: &Matrix, facts: &Facts, taken: Activations) -> bool {
        match self.kernel.stem {
            "mul_vec" => segments(w, facts) > 1 && TILES.contains(&self.tile),
            "mul_gemm" => {
                let shared = facts.shared_bytes_max >= GEMM_SHARED_BYTES;
                shared && !facts.software() && self.tile == GEMM_TILE
            }
            "mul_mat" => TILES.contains(&self.tile) && self.tile <= widest(w.cols, facts, taken),
            _ => false,
        }
    }

    fn variant(self, w: &Matrix, facts: &Facts, taken: Activations) -> VariantId {
        let (format, tile) = (variant_name(w.format, taken), self.tile);
        named(&match self.kernel.stem {
            "mul_vec" => format!("mul_vec.{format}.m{tile}.s{}", segments(w, facts)),
            "mul_gemm" => format!("mul_gemm.{format}"),
            "mul_unit" => format!("mul_unit.{format}.m{tile}.side{}", facts.matrix_side),
            _ => format!("mul_mat.{format}.m{tile}{}", texel_suffix(w.cols, facts)),
        })
    }
}

/// The ways worth a try for `tokens` rows of `w`: the rule's first.
pub fn ways(w: &Matrix, tokens: u32, facts: &Facts, taken: Activations) -> Vec<Way> {
    if on_units(w, tokens, facts, taken) {
        return vec![Way::on_units(tokens, facts)];
    }
    let tiles = TILES.into_iter().filter(|tile| tile * 4 >= tokens.min(8) && tile / 2 < tokens);
    let mut all: Vec<_> = tiles
        .flat_map(|tile| [MUL_VEC, MUL_MAT].map(|kernel| Way { kernel, tile }))
        .chain((tokens > 8).then_some(Way { kernel: MUL_GEMM, tile: GEMM_TILE }))
        .filter(|way| way.serves(w, facts, taken))
        .collect();
    let rule = Way::by_rule(w, tokens, facts, taken);
    all.retain(|way| *way != rule);
    all.insert(0, rule);
    all
}

/// The part of a variant's name that tells what it multiplies.
pub(super) fn variant_name(format: Format, taken: Activations) -> String {
    match taken {
        Activations::F32 => format.to_string(),
        Activations::Int8 => format!("{format}.{taken}"),
    }
}

/// `packed`, if products of `format` read it.
pub(super) fn read_packed(format: Format, packed: Option<Binding>) -> Option<Binding> {
    packed.filter(|_| activations(format, Activations::Int8) == Activations::Int8)
}

/// The variant for `tokens` rows of `w` where `wanted` activations are asked for, and the tokens it
/// carries per tile.
pub fn variant(
    w: &Matrix,
    tokens: u32,
    facts: &Facts,
    wanted: Activations,
) -> (VariantId, Kernel, u32) {
    let taken = activations(w.format, wanted);
    let way = Way::of(w, tokens, facts, taken);
    (way.variant(w, facts, taken), way.kernel, way.tile)
}

/// The largest tile of `mul_mat`.
fn widest(cols: u32, facts: &Facts, taken: Activations) -> u32 {
    if texels(cols, facts) { window_tile(cols, taken) } else { 8 }
}

/// 32-bit words from one row of x to the next, where rows have no others beside them.
fn row_words(cols: u32, taken: Activations) -> u32 {
    match taken {
        Activations::F32 => cols.next_multiple_of(layout::K_BLOCK),
        Activations::Int8 => packed_stride(cols),
    }
}

/// Whether matrix units serve products of so many tokens with `w`: their bits are not those of
/// other kernels, so of any number, unless numbers may depend on it. Plain f32 weights would lose
/// too much, and bytes have kernels of their own.
fn on_units(w: &Matrix, tokens: u32, facts: &Facts, taken: Activations) -> bool {
    let all = facts.invariance == Invariance::On || tokens > UNITLESS_TOKENS;
    let room = facts.shared_bytes_max >= UNIT_SHARED_BYTES;
    let f32 = taken == Activations::F32;
    facts.matrix_side > 0 && room && all && f32 && w.format != Format::F32
}

/// The largest tile whose rows of x fit the window.
fn window_tile(cols: u32, taken: Activations) -> u32 {
    let row = u64::from(row_words(cols, taken)) * 4;
    TILES.into_iter().rev().find(|t| u64::from(*t) * row <= WINDOW).unwrap_or(1)
}

impl Mul<'_> {
    /// What is read of x: where it lies, and words between its rows.
    fn operand(&self) -> (Binding, u32, Activations) {
        match read_packed(self.w.format, self.packed) {
            Some(packed) => (packed, packed_stride(self.w.cols), Activations::Int8),
            None => (self.x, self.x_stride, Activations::F32),
        }
    }

    /// Rows of x per launch: whole tiles, and as many as end where a binding may begin.
    fn rows_at_once(&self, stride: u32, tile: u32, facts: &Facts) -> u32 {
        if !texels(self.w.cols, facts) {
            return self.tokens;
        }
        let rows = (WINDOW / (u64::from(stride) * 4)) as u32;
        let whole = |unit: u32| rows / unit * unit;
        let even = if tile == 1 && rows > 1 { whole(2) } else { whole(tile) };
        even.max(tile)
    }

    /// Rows of x from `first` on, as a launch binds them; a device pads its buffers by a window.
    fn window(&self, (x, stride): (Binding, u32), first: u32, facts: &Facts) -> Binding {
        if !texels(self.w.cols, facts) {
            return x;
        }
        let offset = x.offset + u64::from(first) * u64::from(stride) * 4;
        Binding { offset, bytes: WINDOW, ..x }
    }

    fn record_halves(&self, facts: &Facts, recording: &mut Recording) {
        let grid = fold_grid(self.tokens, facts);
        let params = HalvesParams {
            rows: self.tokens,
            k_blocks: self.w.cols.div_ceil(layout::K_BLOCK),
            x_stride: self.x_stride,
            grid_x: grid[0],
        };
        recording.dispatch(named("to_halves"), &params, vec![self.x, self.halves], grid);
    }

    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let (x, x_stride, taken) = self.operand();
        let units = on_units(self.w, self.tokens, facts, taken);
        if units {
            self.record_halves(facts, recording);
        }
        let (variant, kernel, tile) = variant(self.w, self.tokens, facts, taken);
        let consts = super::get(variant);
        let columns = match kernel.stem {
            "mul_vec" => consts.constant("LANES"),
            "mul_unit" => consts.constant("TN"),
            _ => consts.constant("WG") * consts.constant("TN"),
        };
        let at_once = self.rows_at_once(x_stride, tile, facts);
        let firsts = (0..self.tokens).step_by(at_once as usize);
        for (part, first) in self.w.parts.iter().flat_map(|p| firsts.clone().map(move |f| (p, f))) {
            let tokens = self.tokens.min(first + at_once);
            let x = match units {
                true => self.halves,
                false => self.window((x, x_stride), first, facts),
            };
            let params = MulParams {
                rows: part.rows,
                k_blocks: self.w.cols.div_ceil(layout::K_BLOCK),
                segments: segments(self.w, facts),
                first,
                tokens,
                x_stride,
                y_stride: self.y_stride,
                y_column: part.first,
                accumulate: u32::from(self.accumulate),
                has_bias: u32::from(self.bias.is_some()),
                scale: self.scale,
                act: self.gate.map_or(0, |gate| gate as u32),
            };
            let bindings = vec![part.quants, part.scales, x, self.bias.unwrap_or(self.x), self.y];
            let grid = [part.rows.div_ceil(columns), (tokens - first).div_ceil(tile), 1];
            recording.dispatch(variant, &params, bindings, grid);
        }
    }
}

/// Words of a k-block of packed x: its bytes, its scale, two sums and nothing.
pub const PACKED_WORDS: u32 = 12;

/// Words from one row of packed x to the next: rows begin where a binding may.
pub fn packed_stride(cols: u32) -> u32 {
    let words = cols.div_ceil(layout::K_BLOCK) * PACKED_WORDS;
    words.next_multiple_of(layout::BINDING_ALIGN as u32 / 4)
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct PackParams {
    pub rows: u32,
    pub k_blocks: u32,
    pub x_stride: u32,
    pub y_stride: u32,
    pub grid_x: u32,
}

pub const MUL_PACK: Kernel = Kernel { stem: "mul_pack", bindings: 2, writes: &[1] };

/// Packs rows of `x`, `cols` values each, for the products that take bytes. Rows of `y` are
/// [`packed_stride`] words apart.
pub struct Pack {
    pub rows: u32,
    pub cols: u32,
    pub x: Binding,
    pub x_stride: u32,
    pub y: Binding,
}

impl Pack {
    pub fn record(&self, facts: &Facts, recording: &mut Recording) {
        let k_blocks = self.cols.div_ceil(layout::K_BLOCK);
        let grid = fold_grid((self.rows * k_blocks).div_ceil(64), facts);
        let params = PackParams {
            rows: self.rows,
            k_blocks,
            x_stride: self.x_stride,
            y_stride: packed_stride(self.cols),
            grid_x: grid[0],
        };
        recording.dispatch(named("mul_pack"), &params, vec![self.x, self.y], grid);
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

/// A token word with this bit is no id: the rest of it is the row of the sampler's last results
/// that holds the id.
pub const SAMPLED: u32 = 1 << 31;

pub const EMBED: Kernel = Kernel { stem: "embed", bindings: 5, writes: &[3] };

/// Writes the embedding rows of the tokens at word `tokens_at` of `meta` to `x`. Those that have
/// [`SAMPLED`] are read from `sampled`, where [`super::sample::Sample`] wrote them.
pub struct Embed<'a> {
    pub w: &'a Matrix,
    pub tokens: u32,
    pub meta: Binding,
    pub tokens_at: u32,
    pub sampled: Binding,
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
            let bindings = vec![part.quants, part.scales, self.meta, self.x, self.sampled];
            recording.dispatch(variant, &params, bindings, grid);
        }
    }
}
