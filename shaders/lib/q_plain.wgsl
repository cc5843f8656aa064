// Attention's reads that are the same for several threads, each thread for itself.

fn q_load(at: u32, lane: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn q_take(part: vec4<f32>, at: u32, g: u32) -> vec4<f32> {
    return q[at + g];
}

fn weight_load(at: u32, lane: u32) -> f32 {
    return 0.0;
}

fn weight_take(part: f32, at: u32, g: u32) -> f32 {
    return score[at + g];
}
