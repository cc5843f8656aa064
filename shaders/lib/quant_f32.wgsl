// f32 weights. A vector holds 4 values; no scales.
// Every quant_X gives: struct Scale; quant_scale(k-block, row, rows); and
// quant_unpack(vector, g, scale) -> values 4g..4g+3 of the k-block, g in 0..8.
#import load_whole

struct Scale { d: f32 }

fn quant_scale(kb: u32, row: u32, rows: u32) -> Scale {
    return Scale(1.0);
}

fn quant_unpack(v: vec4<u32>, g: u32, s: Scale) -> vec4<f32> {
    return bitcast<vec4<f32>>(v);
}
