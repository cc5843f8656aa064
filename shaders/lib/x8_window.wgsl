// Some rows of x as mul_pack leaves it, as a uniform (see lib/x_window), spread over the lanes of a
// subgroup (lib/spread8).
#import x8
#import spread8

@group(0) @binding(3) var<uniform> x: array<vec4<u32>, 4096>;

fn x_load(at: u32, lane: u32) -> vec4<u32> {
    return x[at + min(lane & 7u, 2u)];
}
