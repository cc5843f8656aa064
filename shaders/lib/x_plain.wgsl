// Reads of x that are the same for all threads of a workgroup, each thread for itself.
// x_takeG(part, at) is vector G of the eight at `at`.

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;

fn x_load(at: u32, lane: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

#for g in 0..8
fn x_take$g(part: vec4<f32>, at: u32) -> vec4<f32> {
    return x[at + $g];
}
#end
