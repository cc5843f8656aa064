// A k-block of 32 values as signed bytes, for the products that take them so (lib/mul_dots,
// lib/mul_dots_lanes): three vectors of y, bytes of values 0 2 4 6, then 1 3 5 7 of each eight; then
// the scale, and the sums of the bytes of the first sixteen values and of the others.
#import bytes

fn sum_of(bytes: u32) -> i32 {
    return dot4I8Packed(bytes, 0x01010101u);
}

fn pack_block(
    to: u32,
#for g in 0..8
    x$g: vec4<f32>,
#end
) {
    var top = 0u;
#for g in 0..8
    top = max(top, top_bits(x$g));
#end
    let per = inverse(top);
#for e in 0..4
    let low$e = rounded(x${2*e}, per);
    let high$e = rounded(x${2*e+1}, per);
    let even$e = pack4xI8(vec4<i32>(low$e.xz, high$e.xz));
    let odd$e = pack4xI8(vec4<i32>(low$e.yw, high$e.yw));
    let sum$e = sum_of(even$e) + sum_of(odd$e);
#end
    y[to] = vec4<u32>(even0, odd0, even1, odd1);
    y[to + 1u] = vec4<u32>(even2, odd2, even3, odd3);
    let sums = bitcast<vec2<u32>>(vec2<i32>(sum0 + sum1, sum2 + sum3));
    y[to + 2u] = vec4<u32>(scale_bits(top), sums, 0u);
}
