// The body of the matmul kernels for few tokens on wide devices: k is cut into SEGMENTS parts, one
// thread each, so that one token still fills the device. The parts are summed in ascending order,
// which gives the bits of mul_tile with `segments` = SEGMENTS. A workgroup is LANES outputs x
// SEGMENTS threads and carries TM tokens. Wants what mul_tile wants.
#import quant

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
#for g in 0..8/V
        let w${v}_$g = quant_unpack(q$v, ${v*(8/V)+g}u, s);
#for m in 0..TM
        let x${v}_${g}_$m = x_take${v*(8/V)+g}(vec4<f32>(), x$m + kb * 8u);
        acc$m = fma(x${v}_${g}_$m.x, w${v}_$g.x, acc$m);
        acc$m = fma(x${v}_${g}_$m.y, w${v}_$g.y, acc$m);
        acc$m = fma(x${v}_${g}_$m.z, w${v}_$g.z, acc$m);
        acc$m = fma(x${v}_${g}_$m.w, w${v}_$g.w, acc$m);
#end
#end
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
