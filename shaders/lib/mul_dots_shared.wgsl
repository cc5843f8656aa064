// The body of the matmul kernel for many tokens on devices with fast workgroup memory, x in signed
// bytes: a workgroup of 64 threads has a tile of 64 tokens x 64 outputs, a thread 8 x 8 of it. Of
// each k-block a thread brings one token and one output. Sums are those of lib/mul_dots, in its
// order, so its bits. Wants what mul_dots wants, but x by itself.
#import quant
#import dots

// [half of the k-block][token or output]
var<workgroup> x_tile: array<vec4<u32>, 128>;
var<workgroup> w_tile: array<vec4<u32>, 128>;
var<workgroup> x_bytes: array<Bytes, 64>;
var<workgroup> w_scale: array<Scale, 64>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let tile = tile_at(group.y);
    let first_n = group.x * 64u;
    let own = local.x;
    let n = min(first_n + own, p.rows - 1u);
    let scale_n = n + tile.scales;
    let quant_n = n + tile.quants;
    let own_x = x_at(min(tile.first + own, tile.end - 1u));
    // It sums every eighth output from `across`, every eighth token from `down`.
    let across = own % 8u;
    let down = own / 8u;
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
            let s = quant_scale(kb, scale_n, p.rows);
#for h in 0..2
            let q$h = quant_load(kb, ${h*V/2}u, quant_n, p.rows);
            w_tile[${h*64}u + own] = dots_words(q$h, ${h}u, s);
            x_tile[${h*64}u + own] = x[own_x + kb * 3u + ${h}u];
#end
            w_scale[own] = s;
            x_bytes[own] = bytes_of(x[own_x + kb * 3u + 2u]);
            workgroupBarrier();
            // Four outputs at a time: all eight would take more registers than there are.
#for f in 0..2
#for n in 0..4
            let low${f}_$n = w_tile[across + ${f*32+n*8}u];
            let high${f}_$n = w_tile[64u + across + ${f*32+n*8}u];
            let scale${f}_$n = w_scale[across + ${f*32+n*8}u];
#end
#for m in 0..8
            let x_low${f}_$m = x_tile[down + ${m*8}u];
            let x_high${f}_$m = x_tile[64u + down + ${m*8}u];
            let bytes${f}_$m = x_bytes[down + ${m*8}u];
#for n in 0..4
            acc${m}_${f*4+n} = dots_add(acc${m}_${f*4+n}, scale${f}_$n,
                vec2<f32>(dot_of(low${f}_$n, x_low${f}_$m), dot_of(high${f}_$n, x_high${f}_$m)),
                bytes${f}_$m);
#end
#end
#end
            workgroupBarrier();
        }
#for m in 0..8
#for n in 0..8
        total${m}_$n += acc${m}_$n;
#end
#end
    }
#for m in 0..8
#for n in 0..8
    store(tile.first + down + ${m*8}u, tile.end, first_n + across + ${n*8}u, total${m}_$n, 0.0);
#end
#end
}
