// Q8_0: value = d * q, q a signed byte. A vector holds 16 values, of each eight the even ones in
// one word and the odd ones in the next; scale word: d as f16.
#import load_whole

struct Scale { d: f32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    return Scale(unpack2x16float(scale_at(kb * rows + row)).x);
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let pair = bitcast<vec2<i32>>(select(v.xy, v.zw, (g & 2u) == 2u));
    let w = pair << vec2<u32>(16u - (g & 1u) * 16u);
    let q = vec4<i32>(w.x << 8u, w.y << 8u, w.x, w.y) >> vec4<u32>(24u);
    return vec4<f32>(q) * s.d;
}
