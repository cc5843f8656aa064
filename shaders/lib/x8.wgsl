// A k-block of x that is signed bytes (mul_pack), and what a k-block of w adds with it: scale and
// offset are the weights'; sums of products and of x are whole numbers, which f32 holds exactly.
#import dot

struct Bytes {
    scale: f32,
    sums: vec2<f32>, // of the bytes of the first sixteen values and of the others
}

fn bytes_of(v: vec4<u32>) -> Bytes {
    return Bytes(bitcast<f32>(v.x), vec2<f32>(bitcast<vec2<i32>>(v.yz)));
}

// Of values d * (q - zero), q of which `dots` has the products.
fn add_shifted(acc: f32, d: f32, zero: f32, dots: vec2<f32>, x: Bytes) -> f32 {
    let dot = dots.x + dots.y - zero * (x.sums.x + x.sums.y);
    return fma(dot, d * x.scale, acc);
}

// Of values d * q + m.
fn add_affine(acc: f32, d: f32, m: f32, dots: vec2<f32>, x: Bytes) -> f32 {
    let least = fma((x.sums.x + x.sums.y) * x.scale, m, acc);
    return fma(dots.x + dots.y, d * x.scale, least);
}

// Of values d * (q - zero), a scale for 16 values.
fn add_halves(acc: f32, d: vec2<f32>, zero: f32, dots: vec2<f32>, x: Bytes) -> f32 {
    let dot = dots - zero * x.sums;
    let scale = d * x.scale;
    return fma(dot.y, scale.y, fma(dot.x, scale.x, acc));
}

// Of values d * q + m, both for 16 values.
fn add_affine_halves(acc: f32, d: vec2<f32>, m: vec2<f32>, dots: vec2<f32>, x: Bytes) -> f32 {
    let least = fma(x.sums.y, m.y, x.sums.x * m.x);
    return fma(fma(dots.y, d.y, fma(dots.x, d.x, least)), x.scale, acc);
}
