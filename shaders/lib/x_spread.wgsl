// Reads of x that are the same for all threads of a workgroup: each lane of a subgroup (8 lanes or
// more) loads one of eight vectors and the others take it from there. Software devices turn a
// load into one load per lane, so this is eight times fewer.

fn x_load(at: u32, lane: u32) -> vec4<f32> {
    return x[at + (lane & 7u)];
}

fn x_take(part: vec4<f32>, at: u32, g: u32) -> vec4<f32> {
    return subgroupShuffle(part, g);
}
