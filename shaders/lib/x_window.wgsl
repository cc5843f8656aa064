// Some rows of x as a uniform, which software devices read many times faster than a storage buffer,
// spread over the lanes (lib/spread).
#import spread

@group(0) @binding(3) var<uniform> x: array<vec4<f32>, 4096>;

fn x_load(at: u32, lane: u32) -> vec4<f32> {
    return x[at + (lane & 7u)];
}
