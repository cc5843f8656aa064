// Q2_K: value = d * sc * q - dmin * m, a scale and a minimum for 16 values. Half a vector of two-bit
// codes per k-block; scale words per eight k-blocks: d and dmin, then bytes sc | m << 4.
#import load_half
#import pair_scales
#import two_bits

struct Scale { d: vec2<f32>, m: vec2<f32> }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    let at = first_scale(kb, row, rows, 5u);
    let dm = unpack2x16float(scale_at(at));
    let codes = (vec4<u32>(byte_pair(kb, at, rows)) >> vec4<u32>(0u, 8u, 4u, 12u)) & vec4<u32>(15u);
    let s = vec4<f32>(codes) * vec4<f32>(dm.xx, dm.yy);
    return Scale(s.xy, s.zw);
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let q = vec4<f32>(two_bits(v[g >> 2u], g));
    return fma(q, vec4<f32>(s.d[g >> 2u]), vec4<f32>(-s.m[g >> 2u]));
}
