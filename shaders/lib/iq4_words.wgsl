// The steps of sixteen codes of the IQ4 formats as bytes, in the order of lib/nibble_words.
#import iq4_steps
#import nibble_words

fn iq4_word(codes: u32) -> u32 {
    let q = (vec4<u32>(codes) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u);
    let b = (iq4_upper(q) & vec4<u32>(0xff000000u)) >> vec4<u32>(24u, 16u, 8u, 0u);
    return b.x | b.y | b.z | b.w;
}

fn iq4_words(v: vec4<u32>, half: u32) -> vec4<u32> {
    let q = nibble_words(v, half);
    return vec4<u32>(iq4_word(q.x), iq4_word(q.y), iq4_word(q.z), iq4_word(q.w));
}
