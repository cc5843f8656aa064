// Q3_K: value = d * sc * (q - 4), a scale for 16 values. Half a vector of the lower two bits per
// k-block; scale words per eight k-blocks: d, signed bytes sc, then a word of third bits per k-block,
// bit i for value i.
#import load_half
#import pair_scales
#import two_bits

struct Scale { d: vec2<f32>, high: u32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    let at = first_scale(kb, row, rows, 13u);
    let d = unpack2x16float(scale_at(at)).x * signed_pair(byte_pair(kb, at, rows));
    return Scale(d, scale_at(at + (5u + (kb & 7u)) * rows));
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let high = (vec4<u32>(s.high >> (g * 4u)) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
    let q = two_bits(v[g >> 2u], g) | (high << vec4<u32>(2u));
    return (vec4<f32>(q) - 4.0) * s.d[g >> 2u];
}
