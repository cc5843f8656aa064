// to[at + i] = from[first + i] for i < count: moves whole words between buffers inside a pass.
//
// from: u32[*]   to: u32[*]
// Grid: ceil(count / 64) workgroups, folded over x and y.

struct Params {
    first: u32,
    at: u32,
    count: u32,
    _pad: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> target_words: array<u32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (group.y * groups.x + group.x) * 64u + lane;
    if i < params.count {
        target_words[params.at + i] = source[params.first + i];
    }
}
