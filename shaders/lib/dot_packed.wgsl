// Sixteen bytes of w times those of x, four to an instruction.

fn dot_of(w: vec4<u32>, x: vec4<u32>) -> f32 {
    return f32(dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z)
        + dot4I8Packed(w.w, x.w));
}
