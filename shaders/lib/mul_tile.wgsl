// The body of the matmul kernels, a register tile of TM tokens x TN outputs per thread. No shared
// memory, no barrier: neighbouring threads own neighbouring outputs and each output walks k in
// order with explicit fma, so that its bits do not depend on TM or on how many rows the launch
// has. k is cut into `segments` parts that are summed in ascending order, as in mul_lanes.
//
// Wants, of mul_io, expert_io or head_io: tile_at(y) -> rows first..end and where its weights lie in
// the streams; x_at(m) -> where its x begins, in vectors; store(m, end, n, value, other), where
// other is the output WG further, or before. quant_scale and quant_load read at places linear in
// the row of w, so an offset is added to it.
#import quant

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let tile = tile_at(group.y);
    if (tile.first >= tile.end) {
        return;
    }
    let first_n = group.x * WG * TN + local.x;
    let last_row = p.rows - 1u;
#for j in 0..TN
    let n$j = min(first_n + $j * WG, last_row);
    let scale_n$j = n$j + tile.scales;
    let quant_n$j = n$j + tile.quants;
#end
#for m in 0..TM
    let x$m = x_at(min(tile.first + $m, tile.end - 1u));
#for j in 0..TN
    var total${m}_$j = 0.0;
#end
#end
    for (var segment = 0u; segment < p.segments; segment++) {
        let kb_end = (segment + 1u) * p.k_blocks / p.segments;
#for m in 0..TM
#for j in 0..TN
        var acc${m}_$j = 0.0;
#end
#end
        for (var kb = segment * p.k_blocks / p.segments; kb < kb_end; kb++) {
#for m in 0..TM
            let part$m = x_load(x$m + kb * 8u, local.x);
#end
#for j in 0..TN
            let s$j = quant_scale(kb, scale_n$j, p.rows);
#end
#for v in 0..V
#for j in 0..TN
            let q${v}_$j = quant_load(kb, ${v}u, quant_n$j, p.rows);
#end
#for g in 0..8/V
#for j in 0..TN
            let w${v}_${g}_$j = quant_unpack(q${v}_$j, ${v*(8/V)+g}u, s$j);
#end
#for m in 0..TM
            let x${v}_${g}_$m = x_take${v*(8/V)+g}(part$m, x$m + kb * 8u);
#for j in 0..TN
            acc${m}_$j = fma(x${v}_${g}_$m.x, w${v}_${g}_$j.x, acc${m}_$j);
            acc${m}_$j = fma(x${v}_${g}_$m.y, w${v}_${g}_$j.y, acc${m}_$j);
            acc${m}_$j = fma(x${v}_${g}_$m.z, w${v}_${g}_$j.z, acc${m}_$j);
            acc${m}_$j = fma(x${v}_${g}_$m.w, w${v}_${g}_$j.w, acc${m}_$j);
#end
#end
#end
#end
        }
#for m in 0..TM
#for j in 0..TN
        total${m}_$j += acc${m}_$j;
#end
#end
    }
#for m in 0..TM
#for j in 0..TN
    store(tile.first + $m, tile.end, first_n + $j * WG, total${m}_$j, total${m}_${j+1-2*(j%2)});
#end
#end
}
