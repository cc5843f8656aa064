// Reads of x that are the same for all threads of a workgroup, each thread for itself.

fn x_load(at: u32, lane: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

// Vector g of the eight at `at`.
fn x_take(part: vec4<f32>, at: u32, g: u32) -> vec4<f32> {
    return x[at + g];
}
