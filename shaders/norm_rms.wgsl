// y[r][i] (+)= x[source(r)][i] / sqrt(mean_i(x^2) + eps) * (w[i] + offset). One workgroup per row.
// source(r) = step[rows_at + r] when gathering (the rows whose logits are wanted), else r.
//
// x: [..][x_stride/4] vec4   w: [dim/4] vec4   y: [rows][y_stride/4] vec4   dim is a multiple of 4.
// How y is written is the variant's `end`.

#import rms
#import end

struct Params {
    rows: u32,
    dim: u32,
    x_stride: u32,
    y_stride: u32,
    gather: u32,   // 1: rows come from step
    rows_at: u32,  // word of step
    eps: f32,
    offset: f32,
    accumulate: u32, // 1: add to y
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> step: array<u32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let r = group.y * p.grid_x + group.x;
    if (r >= p.rows) {
        return;
    }
    var source = r;
    if (p.gather == 1u) {
        source = step[p.rows_at + r];
    }
    let base = source * (p.x_stride / 4u);
    let vectors = p.dim / 4u;
    var sum = 0.0;
    for (var i = local.x; i < vectors; i += WG) {
        sum = add_squares(sum, x[base + i]);
    }
    let scale = inverse_rms(sum, local.x, p.dim, p.eps);
    write_row(r * (p.y_stride / 4u), base, scale, local.x);
}
