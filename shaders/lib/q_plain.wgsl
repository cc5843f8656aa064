// Attention's reads that are the same for several threads, each thread for itself.
// q_takeG(part, at) is vector G of those at `at`, weight_takeG(part, at) weight G.

fn q_load(at: u32, lane: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn weight_load(at: u32, lane: u32) -> f32 {
    return 0.0;
}

#for g in 0..8
fn q_take$g(part: vec4<f32>, at: u32) -> vec4<f32> {
    return floats(q[at + $g]);
}

fn weight_take$g(part: f32, at: u32) -> f32 {
    return score[at + $g];
}
#end
