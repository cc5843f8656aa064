// The streams of w (src/kernels/layout) as textures of 2048 texels a row, a vector or a word each.
// Software devices load from buffers lane by lane and from textures many lanes at once.

@group(0) @binding(1) var quants: texture_storage_2d<rgba32uint, read>;
@group(0) @binding(2) var scales: texture_storage_2d<r32uint, read>;

fn texel(i: u32) -> vec2<u32> {
    return vec2<u32>(i & 2047u, i >> 11u);
}

fn quant_at(i: u32) -> vec4<u32> {
    return textureLoad(quants, texel(i));
}

fn scale_at(i: u32) -> u32 {
    return textureLoad(scales, texel(i)).x;
}
