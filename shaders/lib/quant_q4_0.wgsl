// Q4_0: value = d * (q - 8). One vector per k-block; scale word: d as f16.
#import load_whole
#import nibbles

struct Scale { d: f32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    return Scale(unpack2x16float(scale_at(kb * rows + row)).x);
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    return (vec4<f32>(nibbles(v, g)) - 8.0) * s.d;
}
