// Values as signed bytes with one scale:
//   scale = max |x| / 127, value = round(x / scale), halves to even

// Bits of the largest |x|: integers, so that infinities and NaN count, too.
fn top_bits(x: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// A value that is no number makes the scale NaN.
fn scale_bits(top: u32) -> u32 {
    return select(bitcast<u32>(bitcast<f32>(top) * (1.0 / 127.0)), 0x7fc00000u, top >= 0x7f800000u);
}

fn inverse(top: u32) -> f32 {
    let high = bitcast<f32>(select(top, 0u, top >= 0x7f800000u));
    return select(127.0 / max(high, 1e-30), 0.0, high < 1e-30);
}

fn rounded(x: vec4<f32>, per_scale: f32) -> vec4<i32> {
    return vec4<i32>(clamp(round(x * per_scale), vec4<f32>(-127.0), vec4<f32>(127.0)));
}
