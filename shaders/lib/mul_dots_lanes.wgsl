// The body of the matmul kernels for few tokens on wide devices whose x is signed bytes: threads
// and parts of k as in lib/mul_lanes, sums of a k-block as in lib/mul_dots, so its bits.
#import quant
#import dots

var<workgroup> part: array<f32, LANES * SEGMENTS * TM>;

@compute @workgroup_size(LANES * SEGMENTS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let lane = local.x % LANES;
    let segment = local.x / LANES;
    let tile = tile_at(group.y);
    if (tile.first >= tile.end) {
        return;
    }
    let n = group.x * LANES + lane;
    let row = min(n, p.rows - 1u);
    let scale_row = row + tile.scales;
    let quant_row = row + tile.quants;
#for m in 0..TM
    let x$m = x_at(min(tile.first + $m, tile.end - 1u));
    var acc$m = 0.0;
#end
    let kb_end = (segment + 1u) * p.k_blocks / SEGMENTS;
    for (var kb = segment * p.k_blocks / SEGMENTS; kb < kb_end; kb++) {
        let s = quant_scale(kb, scale_row, p.rows);
#for v in 0..V
        let q$v = quant_load(kb, ${v}u, quant_row, p.rows);
#end
#for h in 0..2
        let w$h = dots_words(q${h*V/2}, ${h}u, s);
#end
#for m in 0..TM
        let low$m = x_take0(vec4<u32>(), x$m + kb * 3u);
        let high$m = x_take1(vec4<u32>(), x$m + kb * 3u);
        let bytes$m = bytes_of(x_take2(vec4<u32>(), x$m + kb * 3u));
        acc$m = dots_add(acc$m, s, vec2<f32>(dot_of(w0, low$m), dot_of(w1, high$m)), bytes$m);
#end
    }
#for m in 0..TM
    part[($m * SEGMENTS + segment) * LANES + lane] = acc$m;
#end
    workgroupBarrier();
    for (var m = segment; m < TM; m += SEGMENTS) {
        var total = 0.0;
        for (var s = 0u; s < SEGMENTS; s++) {
            total += part[(m * SEGMENTS + s) * LANES + lane];
        }
        store(tile.first + m, tile.end, n, total, 0.0);
    }
}
