// Q3_K as bytes for sums of products with bytes: d * sc * (q - 4).
#import bit_words
#import two_bit_words

fn dots_words(v: vec4<u32>, half: u32, s: Scale) -> vec4<u32> {
    let third = bit_words(s.high, half) << vec4<u32>(2u);
    return two_bit_words(select(v.x, v.y, half == 1u)) | third;
}

fn dots_add(acc: f32, s: Scale, dots: vec2<f32>, x: Bytes) -> f32 {
    return add_halves(acc, s.d, 4.0, dots, x);
}
