// The eight nibbles of two words, as bytes in the order of mul_pack: even values, then odd ones.

fn nibble_words(v: vec4<u32>, half: u32) -> vec4<u32> {
    let w = select(v.xy, v.zw, half == 1u);
    return (w.xxyy >> vec4<u32>(0u, 4u, 0u, 4u)) & vec4<u32>(0x0f0f0f0fu);
}
