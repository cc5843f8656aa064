// Scales of formats with 256 values a block: the scale words of eight k-blocks begin with d (and
// dmin) as f16, then two bytes a k-block, two k-blocks a word.

fn first_scale(kb: u32, row: u32, rows: u32, words_each: u32) -> u32 {
    return (kb >> 3u) * words_each * rows + row;
}

fn byte_pair(kb: u32, at: u32, rows: u32) -> u32 {
    return (scale_at(at + (1u + ((kb & 7u) >> 1u)) * rows) >> ((kb & 1u) * 16u)) & 0xffffu;
}

// The pair as signed bytes.
fn signed_pair(pair: u32) -> vec2<f32> {
    let w = bitcast<i32>(pair);
    return vec2<f32>(vec2<i32>(w << 24u, w << 16u) >> vec2<u32>(24u));
}
