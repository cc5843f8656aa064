// y[m][i] = act(x[m][i]) * x[m][up_at + i] for i < dim, 0 up to the next row.
//
// x: [rows][x_stride] f32   y: [rows][y_stride] f32, `count` values
#import gates

struct Params {
    count: u32,
    dim: u32,
    x_stride: u32,
    up_at: u32,
    y_stride: u32,
    act: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let i = (group.y * p.grid_x + group.x) * WG + local.x;
    if (i >= p.count) {
        return;
    }
    let column = i % p.y_stride;
    let at = i / p.y_stride * p.x_stride + min(column, p.dim - 1u);
    y[i] = select(0.0, act(p.act, x[at]) * x[at + p.up_at], column < p.dim);
}
