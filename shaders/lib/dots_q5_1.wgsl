// Q5_1 as bytes for sums of products with bytes: d * q + m.
#import nibble_words
#import bit_words

fn dots_words(v: vec4<u32>, half: u32, s: Scale) -> vec4<u32> {
    return nibble_words(v, half) | (bit_words(s.high, half) << vec4<u32>(4u));
}

fn dots_add(acc: f32, s: Scale, dots: vec2<f32>, x: Bytes) -> f32 {
    return add_affine(acc, s.d, s.m, dots, x);
}
