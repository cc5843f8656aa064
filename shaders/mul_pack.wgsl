// Rows of x as signed bytes, for the products that take them so (lib/mul_dots, lib/mul_dots_lanes).
//
// x: [rows][x_stride/4] vec4   y: [rows][y_stride/4] vec4, three per k-block of 32 values: bytes of
// values 0 2 4 6, then 1 3 5 7 of each eight; then the scale, and the sums of the bytes of the
// first sixteen values and of the others. A row's bits are a function of that row alone.
#import bytes

struct Params {
    rows: u32,
    k_blocks: u32, // of a row
    x_stride: u32, // values
    y_stride: u32, // words
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

fn sum_of(bytes: u32) -> i32 {
    return dot4I8Packed(bytes, 0x01010101u);
}

// A thread packs a k-block.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let id = (group.y * p.grid_x + group.x) * WG + local.x;
    let row = id / p.k_blocks;
    if (row >= p.rows) {
        return;
    }
    let kb = id % p.k_blocks;
    let at = row * (p.x_stride / 4u) + kb * 8u;
    var top = 0u;
#for g in 0..8
    let x$g = x[at + $g];
    top = max(top, top_bits(x$g));
#end
    let per = inverse(top);
#for e in 0..4
    let low$e = rounded(x${2*e}, per);
    let high$e = rounded(x${2*e+1}, per);
    let even$e = pack4xI8(vec4<i32>(low$e.xz, high$e.xz));
    let odd$e = pack4xI8(vec4<i32>(low$e.yw, high$e.yw));
    let sum$e = sum_of(even$e) + sum_of(odd$e);
#end
    let to = row * (p.y_stride / 4u) + kb * 3u;
    y[to] = vec4<u32>(even0, odd0, even1, odd1);
    y[to + 1] = vec4<u32>(even2, odd2, even3, odd3);
    let sums = bitcast<vec2<u32>>(vec2<i32>(sum0 + sum1, sum2 + sum3));
    y[to + 2] = vec4<u32>(scale_bits(top), sums, 0u);
}
