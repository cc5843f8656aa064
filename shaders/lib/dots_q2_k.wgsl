// Q2_K as bytes for sums of products with bytes: d * sc * q - dmin * m.
#import two_bit_words

fn dots_words(v: vec4<u32>, half: u32, s: Scale) -> vec4<u32> {
    return two_bit_words(select(v.x, v.y, half == 1u));
}

fn dots_add(acc: f32, s: Scale, dots: vec2<f32>, x: Bytes) -> f32 {
    return add_affine_halves(acc, s.d, -s.m, dots, x);
}
