// The body of the matmul kernels whose x is signed bytes: the tile of lib/mul_tile, with the sum
// of a k-block in whole numbers. Those are exact, so an output is a function of its row in the order
// of its k-blocks, as there.
//
// Wants what mul_tile wants, and of dots_X: dots_words(v, half, s), the bytes of the first or last
// sixteen values in the order of x; dots_add(acc, s, dots, x), acc with the k-block added.
#import quant
#import dots

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
            let part$m = x_load(x$m + kb * 3u, local.x);
#end
#for j in 0..TN
            let s$j = quant_scale(kb, scale_n$j, p.rows);
#for v in 0..V
            let q${v}_$j = quant_load(kb, ${v}u, quant_n$j, p.rows);
#end
#for h in 0..2
            let w${h}_$j = dots_words(q${h*V/2}_$j, ${h}u, s$j);
#end
#end
#for m in 0..TM
            let low$m = x_take0(part$m, x$m + kb * 3u);
            let high$m = x_take1(part$m, x$m + kb * 3u);
            let bytes$m = bytes_of(x_take2(part$m, x$m + kb * 3u));
#for j in 0..TN
            let dots${m}_$j = vec2<f32>(dot_of(w0_$j, low$m), dot_of(w1_$j, high$m));
            acc${m}_$j = dots_add(acc${m}_$j, s$j, dots${m}_$j, bytes$m);
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
