// Q8_0: value = d * q, q a signed byte. A vector holds 16 values; scale word: d as f16.
#import load_whole

struct Scale { d: f32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    return Scale(unpack2x16float(scale_at(kb * rows + row)).x);
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let w = bitcast<i32>(v[g & 3u]);
    let q = vec4<i32>(w << 24u, w << 16u, w << 8u, w) >> vec4<u32>(24u);
    return vec4<f32>(q) * s.d;
}
