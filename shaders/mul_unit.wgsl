// y[m][n] (+)= (sum_k x[m][k] * w[n][k] + bias[n]) * scale on matrix units: operands as f16, sums as
// f32. Bindings: lib/mul_io, but x as to_halves leaves it, with rows for whole tiles.
//
// A workgroup has a tile of TM tokens x TN outputs, each of its SM x SN subgroups FM x FN squares of
// SIDE. Weights pass through workgroup memory, one k-block in use while the next is brought. Every
// output walks k in the same order, whatever the tile.
#import mul_io
#import quant
#import unit

// [k-block of two][output][k of 32 / 4], rows ten long: of equal k in other banks
var<workgroup> w_tile: array<vec4<f16>, TN * 20u>;
// A square per subgroup.
var<workgroup> out_tile: array<f32, SM * SN * SIDE * SIDE>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let tile = tile_at(group.y);
    let first_n = group.x * TN;
    let x_row = p.k_blocks * 8u + 2u;
    let down = subgroup / SN * (FM * SIDE);
    let across = subgroup % SN * (FN * SIDE);
#for m in 0..FM
    let x_from$m = (tile.first - p.first + down + $m * SIDE) * x_row;
#for n in 0..FN
    var sum${m}_$n: Sum;
#end
#end
    for (var kb = 0u; kb < p.k_blocks; kb++) {
        let turn = (kb % 2u) * (TN * 10u);
        for (var piece = local.x; piece < TN * 2u; piece += WG) {
            let n = min(first_n + piece % TN, p.rows - 1u);
            let s = quant_scale(kb, n + tile.scales, p.rows);
            let g = piece / TN * 4u;
            let to = turn + piece % TN * 10u + g;
#for i in 0..4
            let v$i = quant_load(kb, (g + $i) * V / 8u, n + tile.quants, p.rows);
            w_tile[to + $i] = vec4<f16>(quant_unpack(v$i, g + $i, s));
#end
        }
        workgroupBarrier();
#for k in 0..32/SIDE
#for n in 0..FN
        let w${k}_$n = coopLoad<Weights>(&w_tile[turn + (across + $n * SIDE) * 10u + $k * SIDE / 4], 10u);
#end
#for m in 0..FM
        let x${k}_$m = coopLoadT<Inputs>(&x[x_from$m + kb * 8u + $k * SIDE / 4], x_row);
#for n in 0..FN
        sum${m}_$n = coopMultiplyAdd(x${k}_$m, w${k}_$n, sum${m}_$n);
#end
#end
#end
    }
    let square = subgroup * (SIDE * SIDE);
#for m in 0..FM
#for n in 0..FN
    coopStoreT(sum${m}_$n, &out_tile[square], SIDE);
    workgroupBarrier();
    for (var i = lane; i < SIDE * SIDE; i += LANES) {
        let m = tile.first + down + $m * SIDE + i / SIDE;
        let n = first_n + across + $n * SIDE + i % SIDE;
        let scale = f32(x[(m - p.first) * x_row + p.k_blocks * 8u].x);
        store(m, tile.end, n, out_tile[square + i] * scale, 0.0);
    }
    workgroupBarrier();
#end
#end
}
