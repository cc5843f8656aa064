// Q8_0 as bytes for sums of products with bytes: as it is.

fn dots_words(v: vec4<u32>, half: u32, s: Scale) -> vec4<u32> {
    return v;
}

fn dots_add(acc: f32, s: Scale, dots: vec2<f32>, x: Bytes) -> f32 {
    return add_shifted(acc, s.d, 0.0, dots, x);
}
