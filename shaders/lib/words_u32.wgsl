// Four words of a storage buffer as they are read.

alias Words = vec4<u32>;

fn words(v: Words) -> vec4<u32> {
    return v;
}

fn floats(v: Words) -> vec4<f32> {
    return bitcast<vec4<f32>>(v);
}

// Two words.
alias HalfWords = vec2<u32>;

fn half_words(v: HalfWords) -> vec2<u32> {
    return v;
}
