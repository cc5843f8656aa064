// f16 weights. A vector holds 8 values, two to a word; no scales.
#import load_whole

struct Scale { d: f32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    return Scale(1.0);
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let w = select(v.xy, v.zw, (g & 1u) == 1u);
    return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y));
}
