// y[r][i] = f16(x[r][i] / 2^e), 2^e behind it, e for each row so that its largest value is just below
// 2^14: no activation is too large for f16, and powers of two change no other bit. One workgroup
// per row.
//
// x: [rows][x_stride/4] vec4, zero from K to the next multiple of 32
// y: [rows][k_blocks * 8 + 2] vec4 of halves

struct Params {
    rows: u32,
    k_blocks: u32, // ceil(K / 32)
    x_stride: u32, // values
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f16>>;

var<workgroup> most: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let r = group.y * p.grid_x + group.x;
    if (r >= p.rows) {
        return;
    }
    let base = r * (p.x_stride / 4u);
    let vectors = p.k_blocks * 8u;
    var largest = 0.0;
    for (var i = local.x; i < vectors; i += WG) {
        let v = abs(x[base + i]);
        largest = max(largest, max(max(v.x, v.y), max(v.z, v.w)));
    }
    most[local.x] = largest;
    workgroupBarrier();
    for (var i = 0u; i < WG; i++) {
        largest = max(largest, most[i]);
    }
    // 2^e is a half itself, and the values are left where they would be too small for it.
    let e = clamp(i32((bitcast<u32>(largest) >> 23u) & 255u) - 127 - 13, -14, 15);
    let scale = bitcast<f32>(u32(127 + e) << 23u);
    let inverse = bitcast<f32>(u32(127 - e) << 23u);
    let to = r * (vectors + 2u);
    for (var i = local.x; i < vectors; i += WG) {
        y[to + i] = vec4<f16>(x[base + i] * inverse);
    }
    if (local.x == 0u) {
        y[to + vectors] = vec4<f16>(f16(scale));
    }
}
