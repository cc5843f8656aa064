// Four of the eight nibbles of a word: value i of a k-block is nibble i % 8 of word i / 8.

fn nibbles(v: vec4<u32>, g: u32) -> vec4<u32> {
    let w = v[g >> 1u] >> ((g & 1u) * 16u);
    return (vec4<u32>(w) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
}
