// Reads of x that are the same for all threads of a workgroup: each lane of a subgroup (8 lanes or
// more) loads one of eight vectors and the others take it from there. Software devices turn a
// load into one load per lane, so this is eight times fewer.
// x_takeG(part, at) is vector G of the eight at `at`; a broadcast needs a constant lane.

fn x_load(at: u32, lane: u32) -> vec4<f32> {
    return floats(x[at + (lane & 7u)]);
}

#for g in 0..8
fn x_take$g(part: vec4<f32>, at: u32) -> vec4<f32> {
    return subgroupBroadcast(part, ${g}u);
}
#end
