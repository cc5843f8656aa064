// Reads of x as mul_pack leaves it, each thread for itself. x_takeG(part, at) is vector G of the
// three at `at`.
#import x8

@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;

fn x_load(at: u32, lane: u32) -> vec4<u32> {
    return vec4<u32>(0u);
}

#for g in 0..3
fn x_take$g(part: vec4<u32>, at: u32) -> vec4<u32> {
    return x[at + $g];
}
#end
