// Four of the sixteen two-bit codes of a word: value i of a k-block is code i % 16 of word i / 16.
fn two_bits(w: u32, g: u32) -> vec4<u32> {
    return (vec4<u32>(w >> ((g & 3u) * 8u)) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u);
}
