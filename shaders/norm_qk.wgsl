// RMS norms of q and k in place: every group of `dim` values (a head, or a whole row) becomes
//   x[i] / sqrt(mean_i(x^2) + eps) * (w[i] + offset).
// One workgroup per (token, group); a token has the groups of q, then those of k.
//
// x: [T][x_stride/4] vec4, q from the beginning of a row, k from `k_at`
// wq: [q_dim/4] vec4   wk: [k_dim/4] vec4   Dimensions, strides and `k_at` are multiples of 4.

#import rms

struct Params {
    tokens: u32,
    x_stride: u32, // values
    q_groups: u32,
    q_dim: u32,
    k_at: u32,
    k_groups: u32,
    k_dim: u32,
    eps: f32,
    offset: f32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> wq: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> wk: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;

fn weight(of_q: bool, i: u32) -> vec4<f32> {
    if (of_q) {
        return wq[i];
    }
    return wk[i];
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let id = wg.y * p.grid_x + wg.x;
    let groups = p.q_groups + p.k_groups;
    let t = id / groups;
    if (t >= p.tokens) {
        return;
    }
    let of_q = id % groups < p.q_groups;
    let group = select(id % groups - p.q_groups, id % groups, of_q);
    let dim = select(p.k_dim, p.q_dim, of_q);
    let vectors = dim / 4u;
    let base = (t * p.x_stride + select(p.k_at, 0u, of_q)) / 4u + group * vectors;
    var sum = 0.0;
    for (var i = local.x; i < vectors; i += WG) {
        sum = add_squares(sum, x[base + i]);
    }
    let scale = inverse_rms(sum, local.x, dim, p.eps);
    for (var i = local.x; i < vectors; i += WG) {
        x[base + i] = x[base + i] * scale * (weight(of_q, i) + p.offset);
    }
}
