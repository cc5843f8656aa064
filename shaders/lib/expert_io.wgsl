// Parameters, bindings and the store of the matmuls whose matrix is chosen row by row: a row is a
// (token, rank) pair, number token * used + rank, and `route` groups the pairs of one expert.
//
// quants: [expert][K/32][V][N] vec4   scales: [expert][K/32][S][N], experts `first_expert`..
// x: [..][x_stride/4] vec4, pair i reads row i / x_div   y: [pair][y_stride]
// route: number of tiles at `tiles_at`, then 3 words a tile (expert, first, end) of the pairs that
//   `list_at` holds grouped by expert
#import mul_streams

struct Params {
    rows: u32,     // N
    k_blocks: u32, // ceil(K / 32)
    segments: u32,
    x_stride: u32, // values
    y_stride: u32, // values
    x_div: u32,
    list_at: u32,
    tiles_at: u32,
    first_expert: u32,
    experts: u32,
    quant_stride: u32, // vectors of one expert
    scale_stride: u32, // words of one expert
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read> route: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

fn tile_at(y: u32) -> Tile {
    let at = p.tiles_at + 1u + y * 3u;
    let expert = route[at] - p.first_expert;
    if (y >= route[p.tiles_at] || expert >= p.experts) {
        return Tile(0u, 0u, 0u, 0u);
    }
    return Tile(route[at + 1u], route[at + 2u], expert * p.quant_stride, expert * p.scale_stride);
}

fn x_at(m: u32) -> u32 {
    return route[p.list_at + m] / p.x_div * (p.x_stride / 4u);
}

fn store(m: u32, end: u32, n: u32, value: f32, other: f32) {
    if (m < end && n < p.rows) {
        y[route[p.list_at + m] * p.y_stride + n] = value;
    }
}
