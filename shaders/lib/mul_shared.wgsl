// The body of the matmul kernel for many tokens on devices with fast workgroup memory: a workgroup
// of 64 threads has a tile of 64 tokens x 64 outputs, a thread 8 x 8 of it, which it sums from a
// k-block of both that all threads have brought. Each output walks k in order with explicit fma, in
// `segments` parts: the bits of mul_tile. Wants what mul_tile wants, but x by itself.
#import quant

// [k of 32][token or output / 4]
var<workgroup> x_tile: array<vec4<f32>, 512>;
var<workgroup> w_tile: array<vec4<f32>, 512>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let tile = tile_at(group.y);
    let first_n = group.x * 64u;
    // A thread brings a quarter of the k-block for four tokens and four outputs.
    let four = local.x % 16u;
    let quarter = local.x / 16u;
#for i in 0..4
    let n$i = min(first_n + four * 4u + $i, p.rows - 1u);
    let scale_n$i = n$i + tile.scales;
    let quant_n$i = n$i + tile.quants;
    let x_at$i = x_at(min(tile.first + four * 4u + $i, tile.end - 1u));
#end
    // It sums outputs `across` and tokens `down`, four of each, and those 32 further.
    let across = local.x % 8u;
    let down = local.x / 8u;
#for m in 0..8
#for n in 0..8
    var total${m}_$n = 0.0;
#end
#end
    for (var segment = 0u; segment < p.segments; segment++) {
        let kb_end = (segment + 1u) * p.k_blocks / p.segments;
#for m in 0..8
#for n in 0..8
        var acc${m}_$n = 0.0;
#end
#end
        for (var kb = segment * p.k_blocks / p.segments; kb < kb_end; kb++) {
#for i in 0..4
            let s$i = quant_scale(kb, scale_n$i, p.rows);
#end
            for (var g = quarter * 2u; g < quarter * 2u + 2u; g++) {
#for i in 0..4
                let w$i = quant_unpack(quant_load(kb, g * V / 8u, quant_n$i, p.rows), g, s$i);
                let x$i = x[x_at$i + kb * 8u + g];
#end
#for c in 0..4
                let to$c = (g * 4u + $c) * 16u + four;
                w_tile[to$c] = vec4<f32>(w0[$c], w1[$c], w2[$c], w3[$c]);
                x_tile[to$c] = vec4<f32>(x0[$c], x1[$c], x2[$c], x3[$c]);
#end
            }
            workgroupBarrier();
            for (var k = 0u; k < 32u; k++) {
                let xs0 = x_tile[k * 16u + down];
                let xs1 = x_tile[k * 16u + 8u + down];
                let ws0 = w_tile[k * 16u + across];
                let ws1 = w_tile[k * 16u + 8u + across];
#for m in 0..8
#for n in 0..8
                acc${m}_$n = fma(xs${m/4}[${m%4}], ws${n/4}[${n%4}], acc${m}_$n);
#end
#end
            }
            workgroupBarrier();
        }
#for m in 0..8
#for n in 0..8
        total${m}_$n += acc${m}_$n;
#end
#end
    }
#for m in 0..8
    let row$m = tile.first + down * 4u + ${m/4*32+m%4}u;
#for n in 0..8
    store(row$m, tile.end, first_n + across * 4u + ${n/4*32+n%4}u, total${m}_$n, 0.0);
#end
#end
}
