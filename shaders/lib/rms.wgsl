// 1 / sqrt(mean(x^2) + eps) by a workgroup of WG threads. Each thread adds the squares of its own
// vectors; the threads' sums are added in their order, so that every thread has the same bits.

var<workgroup> part: array<f32, WG>;

fn add_squares(sum: f32, v: vec4<f32>) -> f32 {
    return fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, sum))));
}

fn inverse_rms(squares: f32, thread: u32, dim: u32, eps: f32) -> f32 {
    part[thread] = squares;
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < WG; i++) {
        total += part[i];
    }
    return 1.0 / sqrt(total / f32(dim) + eps);
}
