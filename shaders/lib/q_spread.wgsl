// Attention's reads that are the same for the lanes of a subgroup (8 lanes or more): each lane
// loads one of SPREAD vectors of q, or one of eight weights, and the others take it from there.
// q_takeG(part, at) is vector G of those at `at`, weight_takeG(part, at) weight G.

fn q_load(at: u32, lane: u32) -> vec4<f32> {
    return floats(q[at + (lane % SPREAD)]);
}

fn weight_load(at: u32, lane: u32) -> f32 {
    return score[at + (lane & 7u)];
}

#for g in 0..8
fn q_take$g(part: vec4<f32>, at: u32) -> vec4<f32> {
    return subgroupBroadcast(part, ${g}u);
}

fn weight_take$g(part: f32, at: u32) -> f32 {
    return subgroupBroadcast(part, ${g}u);
}
#end
