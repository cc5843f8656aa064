// x[i] = cap * tanh(x[i] / cap), by an exponential that cannot overflow.
//
// x: [count] f32

struct Params {
    count: u32,
    cap: f32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let i = (group.y * p.grid_x + group.x) * WG + local.x;
    if (i < p.count) {
        let v = x[i];
        let e = exp(-2.0 * abs(v) / p.cap);
        x[i] = sign(v) * p.cap * ((1.0 - e) / (1.0 + e));
    }
}
