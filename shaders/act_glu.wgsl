// gate[m][i] = act(gate[m][i]) * up[m][i] for i < dim, 0 up to the next row.
//
// gate, up: [count / stride][stride] f32
#import act

struct Params {
    count: u32,
    dim: u32,
    stride: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> gate: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let i = (group.y * p.grid_x + group.x) * WG + local.x;
    if (i >= p.count) {
        return;
    }
    gate[i] = select(0.0, act(gate[i]) * up[i], i % p.stride < p.dim);
}
