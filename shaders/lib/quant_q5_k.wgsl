// Q5_K: value = d * sc * q - dmin * m, a scale and a minimum for 32 values. One vector of nibbles
// per k-block; scale words per eight k-blocks: d and dmin, bytes sc and m, then a word of fifth bits
// per k-block, bit i for value i.
#import load_whole
#import nibbles
#import pair_scales

struct Scale { d: f32, m: f32, high: u32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    let at = first_scale(kb, row, rows, 13u);
    let dm = unpack2x16float(scale_at(at));
    let pair = byte_pair(kb, at, rows);
    let high = scale_at(at + (5u + (kb & 7u)) * rows);
    return Scale(dm.x * f32(pair & 255u), dm.y * f32(pair >> 8u), high);
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let high = (vec4<u32>(s.high >> (g * 4u)) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
    let q = nibbles(v, g) | (high << vec4<u32>(4u));
    return fma(vec4<f32>(q), vec4<f32>(s.d), vec4<f32>(-s.m));
}
