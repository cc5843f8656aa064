// RMS norms of q and k in place: every group of `dim` values (a head, or a whole row) becomes
//   x[i] / sqrt(mean_i(x^2) + eps) * (w[i] + offset).
// One workgroup per (token, group); a token has the groups of q, then those of k.
//
// q: [T][q_stride/4] vec4   k: [T][k_stride/4] vec4   wq: [q_dim/4] vec4   wk: [k_dim/4] vec4
// Dimensions and strides are multiples of 4.

#import rms

struct Params {
    tokens: u32,
    q_groups: u32,
    q_dim: u32,
    q_stride: u32, // values
    k_groups: u32,
    k_dim: u32,
    k_stride: u32, // values
    eps: f32,
    offset: f32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> wq: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> wk: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> q: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> k: array<vec4<f32>>;

fn load(of_q: bool, at: u32) -> vec4<f32> {
    if (of_q) {
        return q[at];
    }
    return k[at];
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
    let base = t * (select(p.k_stride, p.q_stride, of_q) / 4u) + group * vectors;
    var sum = 0.0;
    for (var i = local.x; i < vectors; i += WG) {
        sum = add_squares(sum, load(of_q, base + i));
    }
    let scale = inverse_rms(sum, local.x, dim, p.eps);
    for (var i = local.x; i < vectors; i += WG) {
        let v = load(of_q, base + i) * scale;
        if (of_q) {
            q[base + i] = v * (wq[i] + p.offset);
        } else {
            k[base + i] = v * (wk[i] + p.offset);
        }
    }
}
