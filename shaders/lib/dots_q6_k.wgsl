// Q6_K as bytes for sums of products with bytes: d * sc * (q - 32).
#import nibble_words
#import two_bit_words

fn dots_words(v: vec4<u32>, half: u32, s: Scale) -> vec4<u32> {
    let upper = two_bit_words(select(s.high.x, s.high.y, half == 1u));
    return nibble_words(v, half) | (upper << vec4<u32>(4u));
}

fn dots_add(acc: f32, s: Scale, dots: vec2<f32>, x: Bytes) -> f32 {
    return add_halves(acc, s.d, 32.0, dots, x);
}
