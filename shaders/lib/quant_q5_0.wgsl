// Q5_0: value = d * (q - 16). One vector of low nibbles per k-block; scale words: d as f16, then
// the fifth bits, bit i for value i.
#import load_whole
#import nibbles

struct Scale { d: f32, high: u32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    return Scale(unpack2x16float(scale_at(kb * 2u * rows + row)).x, scale_at((kb * 2u + 1u) * rows + row));
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    let high = (vec4<u32>(s.high >> (g * 4u)) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
    return (vec4<f32>(nibbles(v, g) | (high << vec4<u32>(4u))) - 16.0) * s.d;
}
