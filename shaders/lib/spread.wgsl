// Each lane of a subgroup (8 lanes or more) has loaded one of eight vectors, and the others take it
// from there: software devices turn a load into one load per lane, so this is eight times fewer.
// x_takeG(part, at) is vector G of the eight at `at`; a broadcast needs a constant lane.

#for g in 0..8
fn x_take$g(part: vec4<f32>, at: u32) -> vec4<f32> {
    return subgroupBroadcast(part, ${g}u);
}
#end
