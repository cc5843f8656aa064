// Attention's reads that are the same for the lanes of a subgroup (8 lanes or more): each lane
// loads one of SPREAD vectors of q, or one of eight weights, and the others take it from there.

fn q_load(at: u32, lane: u32) -> vec4<f32> {
    return q[at + (lane % SPREAD)];
}

fn q_take(part: vec4<f32>, at: u32, g: u32) -> vec4<f32> {
    return subgroupShuffle(part, g);
}

fn weight_load(at: u32, lane: u32) -> f32 {
    return score[at + (lane & 7u)];
}

fn weight_take(part: f32, at: u32, g: u32) -> f32 {
    return subgroupShuffle(part, g);
}
