// Q5_1: value = d * q + m. One vector of low nibbles per k-block; scale words: (d, m) as f16
// pair, then the fifth bits, bit i for value i.
#import load_whole
#import nibbles

struct Scale { d: f32, m: f32, high: u32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    let dm = unpack2x16float(scale_at(kb * 2u * rows + row));
    return Scale(dm.x, dm.y, scale_at((kb * 2u + 1u) * rows + row));
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let high = (vec4<u32>(s.high >> (g * 4u)) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
    let q = nibbles(v, g) | (high << vec4<u32>(4u));
    return fma(vec4<f32>(q), vec4<f32>(s.d), vec4<f32>(s.m));
}
