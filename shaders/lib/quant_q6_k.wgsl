// Q6_K: value = d * sc * (q - 32), a scale for 16 values. One vector of nibbles per k-block; scale
// words per eight k-blocks: d, signed bytes sc, then two words of upper two bits per k-block.
#import load_whole
#import nibbles
#import pair_scales
#import two_bits

struct Scale { d: vec2<f32>, high: vec2<u32> }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    let at = first_scale(kb, row, rows, 21u);
    let d = unpack2x16float(scale_at(at)).x * signed_pair(byte_pair(kb, at, rows));
    let high = at + (5u + (kb & 7u) * 2u) * rows;
    return Scale(d, vec2<u32>(scale_at(high), scale_at(high + rows)));
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let q = nibbles(v, g) | (two_bits(s.high[g >> 2u], g) << vec4<u32>(4u));
    return (vec4<f32>(q) - 32.0) * s.d[g >> 2u];
}
