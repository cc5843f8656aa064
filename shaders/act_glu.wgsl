// gate[i] = act(gate[i]) * up[i].
//
// gate, up: [count] f32
#import act

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
    gate[i] = act(gate[i]) * up[i];
}
