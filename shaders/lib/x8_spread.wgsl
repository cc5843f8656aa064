// Reads of x as mul_pack leaves it that are the same for all threads of a workgroup, spread over
// its lanes (lib/spread8).
#import x8
#import spread8

@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;

fn x_load(at: u32, lane: u32) -> vec4<u32> {
    return x[at + min(lane & 7u, 2u)];
}
