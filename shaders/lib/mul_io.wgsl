// Parameters, bindings and the store of the matmul kernels.
//
// quants, scales: the streams of w   x: [M][x_stride/4] vec4 from row `first` on   y: [M][y_stride]
// x is zero from K to the next multiple of 32.
// With `act`, outputs come in turns of eight gates and the eight that they are for, and y has the
// product of each pair: y[m][i] = act(gate) * up.
#import mul_streams
#import gates

struct Params {
    rows: u32,       // N, outputs of this part of the matrix
    k_blocks: u32,   // ceil(K / 32)
    segments: u32,
    first: u32,      // row of x that the launch begins with
    tokens: u32,     // M, or the row it ends before
    x_stride: u32,   // values
    y_stride: u32,   // values
    y_column: u32,   // first output column of this part
    accumulate: u32, // 1: add to y
    has_bias: u32,
    scale: f32,      // of the sum and its bias, before y is added
    act: u32,        // what gates do, 0 for no gates
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

fn tile_at(y: u32) -> Tile {
    return Tile(p.first + y * TM, p.tokens, 0u, 0u);
}

fn x_at(m: u32) -> u32 {
    return (m - p.first) * (p.x_stride / 4u);
}

fn biased(n: u32, value: f32) -> f32 {
    if (p.has_bias == 1u) {
        return value + bias[p.y_column + n];
    }
    return value;
}

// `other` is the output eight away.
fn store(m: u32, end: u32, n: u32, value: f32, other: f32) {
    if (m >= end || n >= p.rows) {
        return;
    }
    if (p.act != 0u) {
        if ((n & 8u) == 0u) {
            let gate = biased(n, value);
            y[m * p.y_stride + n / 16u * 8u + (n & 7u)] = act(p.act, gate) * biased(n + 8u, other);
        }
        return;
    }
    let column = p.y_column + n;
    let at = m * p.y_stride + column;
    var out = biased(n, value) * p.scale;
    if (p.accumulate == 1u) {
        out = out + y[at];
    }
    y[at] = out;
}
