// Q4_K: value = d * sc * q - dmin * m, a scale and a minimum for 32 values. One vector of nibbles
// per k-block; scale words per eight k-blocks: d and dmin, then bytes sc and m.
#import load_whole
#import nibbles
#import pair_scales

struct Scale { d: f32, m: f32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    let at = first_scale(kb, row, rows, 5u);
    let dm = unpack2x16float(scale_at(at));
    let pair = byte_pair(kb, at, rows);
    return Scale(dm.x * f32(pair & 255u), dm.y * f32(pair >> 8u));
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    return fma(vec4<f32>(nibbles(v, g)), vec4<f32>(s.d), vec4<f32>(-s.m));
}
