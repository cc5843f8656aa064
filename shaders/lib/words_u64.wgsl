// Four words of a storage buffer, read as two 64-bit values: software devices load lane by lane
// and component by component, so this halves their loads.

alias Words = vec2<u64>;

fn words(v: Words) -> vec4<u32> {
    return vec4<u32>(u32(v.x & 0xfffffffflu), u32(v.x >> 32u), u32(v.y & 0xfffffffflu), u32(v.y >> 32u));
}

fn floats(v: Words) -> vec4<f32> {
    return bitcast<vec4<f32>>(words(v));
}

// Two words.
alias HalfWords = u64;

fn half_words(v: HalfWords) -> vec2<u32> {
    return vec2<u32>(u32(v & 0xfffffffflu), u32(v >> 32u));
}
