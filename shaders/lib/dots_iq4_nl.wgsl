// IQ4_NL as bytes for sums of products with bytes: d * step[q].
#import iq4_words

fn dots_words(v: vec4<u32>, half: u32, s: Scale) -> vec4<u32> {
    return iq4_words(v, half);
}

fn dots_add(acc: f32, s: Scale, dots: vec2<f32>, x: Bytes) -> f32 {
    return add_shifted(acc, s.d, 0.0, dots, x);
}
