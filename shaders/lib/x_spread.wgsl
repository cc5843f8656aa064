// Reads of x that are the same for all threads of a workgroup, spread over its lanes (lib/spread).
#import words
#import spread

@group(0) @binding(3) var<storage, read> x: array<Words>;

fn x_load(at: u32, lane: u32) -> vec4<f32> {
    return floats(x[at + (lane & 7u)]);
}
