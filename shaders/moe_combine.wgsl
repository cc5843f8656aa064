// y[t][i] (+)= scale * sum_r weight[t][r] * x[t * used + r][i], in rank order: what the experts of a
// token made, weighed.
//
// x: [pair][stride/4] vec4   route: weights as f32 at `weights_at`   y: [T][stride/4] vec4

struct Params {
    tokens: u32,
    used: u32,
    dim: u32,    // values, a multiple of 4
    stride: u32, // values
    weights_at: u32,
    accumulate: u32,
    scale: f32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> route: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let id = (group.y * p.grid_x + group.x) * WG + local.x;
    let vectors = p.dim / 4u;
    let t = id / vectors;
    if (t >= p.tokens) {
        return;
    }
    let i = id % vectors;
    var sum = vec4<f32>(0.0);
    for (var r = 0u; r < p.used; r++) {
        let pair = t * p.used + r;
        let weight = bitcast<f32>(route[p.weights_at + pair]);
        sum = fma(vec4<f32>(weight), x[pair * (p.stride / 4u) + i], sum);
    }
    let at = t * (p.stride / 4u) + i;
    var out = sum * p.scale;
    if (p.accumulate == 1u) {
        out += y[at];
    }
    y[at] = out;
}
