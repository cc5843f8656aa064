// The sixteen two-bit codes of a word (lib/two_bits) as bytes in the order of lib/nibble_words.

fn two_bit_words(w: u32) -> vec4<u32> {
    let four = (vec4<u32>(w) >> vec4<u32>(0u, 2u, 16u, 18u)) & vec4<u32>(0x3333u);
    let two = (four | (four << vec4<u32>(8u))) & vec4<u32>(0x00ff00ffu);
    return (two | (two << vec4<u32>(4u))) & vec4<u32>(0x03030303u);
}
