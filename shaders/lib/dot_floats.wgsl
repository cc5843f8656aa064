// Sixteen bytes of w times those of x for devices that have no instruction for bytes: the sums are
// whole numbers far below 2^24, which f32 holds exactly, so they are those of lib/dot_packed.

fn signed_bytes(word: u32) -> vec4<f32> {
    let v = bitcast<i32>(word);
    return vec4<f32>(vec4<i32>(v << 24u, v << 16u, v << 8u, v) >> vec4<u32>(24u));
}

fn dot_four(sum: f32, w: u32, x: u32) -> f32 {
    let a = signed_bytes(w);
    let b = signed_bytes(x);
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

fn dot_of(w: vec4<u32>, x: vec4<u32>) -> f32 {
    return dot_four(dot_four(dot_four(dot_four(0.0, w.x, x.x), w.y, x.y), w.z, x.z), w.w, x.w);
}
