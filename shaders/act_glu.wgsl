// gate[i] = silu(gate[i]) * up[i], silu(g) = g / (1 + exp(-g)).
//
// gate, up: [count] f32

struct Params {
    count: u32,
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
    let g = gate[i];
    gate[i] = g / (1.0 + exp(-g)) * up[i];
}
