// Parameters, bindings and the store of the matmuls that have a matrix per head.
//
// quants: [head][K/32][V][N] vec4   scales: [head][K/32][S][N], heads `first_head`..
// x: [T][x_stride/4] vec4, head h from value h * x_head on   y: [T][y_stride], h * y_head likewise
// x is finite up to the next multiple of 32 behind K, where w is zero.
#import mul_streams

struct Params {
    rows: u32,     // N
    k_blocks: u32, // ceil(K / 32)
    segments: u32,
    tokens: u32,   // T
    x_stride: u32, // values
    x_head: u32,
    y_stride: u32,
    y_head: u32,
    first_head: u32,
    first_tile: u32,
    quant_stride: u32, // vectors of one head
    scale_stride: u32, // words of one head
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

// Rows of a tile are numbered head * tokens + token; all are of one head.
fn tile_at(y: u32) -> Tile {
    let per_head = (p.tokens + TM - 1u) / TM;
    let head = (p.first_tile + y) / per_head;
    let token = ((p.first_tile + y) % per_head) * TM;
    let row = (p.first_head + head) * p.tokens;
    let end = row + min(token + TM, p.tokens);
    return Tile(row + token, end, head * p.quant_stride, head * p.scale_stride);
}

fn x_at(m: u32) -> u32 {
    return (m % p.tokens * p.x_stride + m / p.tokens * p.x_head) / 4u;
}

fn store(m: u32, end: u32, n: u32, value: f32, other: f32) {
    if (m < end && n < p.rows) {
        y[m % p.tokens * p.y_stride + m / p.tokens * p.y_head + n] = value;
    }
}
