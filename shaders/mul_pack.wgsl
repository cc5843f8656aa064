// Rows of x as signed bytes, for the products that take them so (lib/mul_dots, lib/mul_dots_lanes).
//
// x: [rows][x_stride/4] vec4   y: [rows][y_stride/4] vec4, three per k-block of 32 values. A row's
// bits are a function of that row alone.
#import pack_block

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
    pack_block(
        row * (p.y_stride / 4u) + kb * 3u,
#for g in 0..8
        x[at + $g],
#end
    );
}
