// Q4_1: value = d * q + m. One vector per k-block; scale word: (d, m) as f16 pair.
#import load_whole
#import nibbles

struct Scale { d: f32, m: f32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    let dm = unpack2x16float(scale_at(kb * rows + row));
    return Scale(dm.x, dm.y);
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    return fma(vec4<f32>(nibbles(v, g)), vec4<f32>(s.d), vec4<f32>(s.m));
}
