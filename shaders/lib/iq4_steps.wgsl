// The sixteen steps of the IQ4 formats, four signed bytes to a word: -127 -104 -83 -65, -49 -35 -22
// -10, 1 13 25 38, 53 69 89 113.

// The steps of four codes, each in the upper byte of its word; what is below is of others.
fn iq4_upper(q: vec4<u32>) -> vec4<u32> {
    let odd = (q & vec4<u32>(4u)) != vec4<u32>(0u);
    let low = select(vec4<u32>(0xbfad9881u), vec4<u32>(0xf6eaddcfu), odd);
    let high = select(vec4<u32>(0x26190d01u), vec4<u32>(0x71594535u), odd);
    let w = select(low, high, q >= vec4<u32>(8u));
    return w << (vec4<u32>(24u) - (q & vec4<u32>(3u)) * 8u);
}

fn iq4_steps(q: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(iq4_upper(q)) >> vec4<u32>(24u));
}
