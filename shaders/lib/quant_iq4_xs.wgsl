// IQ4_XS: value = d * sc * step[q], a scale for 32 values. One vector of nibbles per k-block; scale
// words per eight k-blocks: d as f16, then a signed byte sc per k-block.
#import iq4_steps
#import load_whole
#import nibbles

struct Scale { d: f32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    let at = (kb >> 3u) * 3u * rows + row;
    let w = bitcast<i32>(scale_at(at + (1u + ((kb & 7u) >> 2u)) * rows));
    let sc = (w << (24u - (kb & 3u) * 8u)) >> 24u;
    return Scale(unpack2x16float(scale_at(at)).x * f32(sc));
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    return iq4_steps(nibbles(v, g)) * s.d;
}
