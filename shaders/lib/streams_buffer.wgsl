// The streams of w (src/kernels/layout) as storage buffers.

@group(0) @binding(1) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;

fn quant_at(i: u32) -> vec4<u32> {
    return quants[i];
}

fn scale_at(i: u32) -> u32 {
    return scales[i];
}
