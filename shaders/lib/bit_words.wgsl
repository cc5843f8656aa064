// One bit of each of sixteen values (bit i for value i, the first half of the values in the lower
// half of the word), as bytes in the order of lib/nibble_words.

fn bit_words(bits: u32, half: u32) -> vec4<u32> {
    let own = bits >> (half * 16u);
    let four = (vec4<u32>(own) >> vec4<u32>(0u, 1u, 8u, 9u)) & vec4<u32>(0x55u);
    // Bits 0 2 4 6 go to bits 0 8 16 24; what else the product has is masked.
    return (four * 0x41041u) & vec4<u32>(0x01010101u);
}
