// x[t][k] = scale * w[token[t]][k]: rows of the embedding matrix, decoded. A part of the matrix
// holds tokens first .. first + rows; other tokens are left to the other parts. A token whose top bit
// is set is what the sampler chose last for the row that its other bits name: the host may not know
// it yet.
//
// quants, scales: the streams of w   step: token ids at `tokens_at`   x: [T][x_stride/4] vec4
// sampled: the sampler's results, 64 words a row, the chosen token first
#import streams
#import quant

struct Params {
    rows: u32,
    first: u32,
    k_blocks: u32,
    tokens: u32,     // T
    tokens_at: u32,  // word of step
    x_stride: u32,   // values
    scale: f32,
    grid_x: u32,     // workgroups along x, for folding
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> sampled: array<u32>;

// One thread decodes one vector of one token.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let id = (group.y * p.grid_x + group.x) * WG + local.x;
    let vectors = p.k_blocks * V;
    let t = id / vectors;
    if (t >= p.tokens) {
        return;
    }
    var token = step[p.tokens_at + t];
    if (token >= 0x80000000u) {
        token = sampled[(token & 0x7fffffffu) * 64u];
    }
    let row = token - p.first;
    if (row >= p.rows) {
        return;
    }
    let kb = (id % vectors) / V;
    let v = id % V;
    let s = quant_scale(kb, row, p.rows);
    let q = quant_load(kb, v, row, p.rows);
    let at = t * (p.x_stride / 4u) + kb * 8u + v * (8u / V);
#for g in 0..8/V
    x[at + $g] = quant_unpack(q, v * (8u / V) + $g, s) * p.scale;
#end
}
