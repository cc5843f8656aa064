// Paged attention by WG threads with shared memory: in the score phase a thread owns keys, in the
// value phase one vec4 of the head for PER of the ROWS rows (LANES rows side by side).

// Scores, then weights, of the tile: [row][key].
var<workgroup> score: array<f32, ROWS * TILE>;
var<workgroup> part_max: array<f32, ROWS * 8>;
var<workgroup> row_max: array<f32, ROWS>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let t = local.x;
    let item = wg.y * p.grid_x + wg.x;
    if (item >= p.items) {
        return;
    }
    let at = p.items_at + item * 8u;
    let first = step[at];
    let position = step[at + 2u];
    let table = step[at + 3u];
    let slot = step[at + 6u];
    let kv = wg.z / p.group_parts;
    let head_in_group = (wg.z % p.group_parts) * ROWS;
    let heads = min(p.group - head_in_group, ROWS);
    let head0 = kv * p.group + head_in_group;
    let rows = step[at + 1u] * heads;
    let keys = position + step[at + 1u];
    // The first key that any row of the item sees.
    let begin = position - min(position, p.window - 1u);

    let dim = t % DIMS;
    let lane = min(t / DIMS, LANES - 1u);
#for i in 0..PER
    let r$i = min(lane + $i * LANES, ROWS - 1u);
    var total_m$i = NEG;
    var total_l$i = 0.0;
    var total_o$i = vec4<f32>(0.0);
#end
    for (var split = max(step[at + 4u], begin / p.split); split < step[at + 5u]; split++) {
#for i in 0..PER
        var m$i = NEG;
        var l$i = 0.0;
        var o$i = vec4<f32>(0.0);
#end
        let tile_end = min((split + 1u) * p.split, keys);
        let tile_begin = max(split * p.split, begin / TILE * TILE);
        for (var tile = tile_begin; tile < tile_end; tile += TILE) {
            // Keys of the tile that exist, in eights; the rest has weight 0 and is left out.
            let span = min(TILE, (keys - tile + 7u) & 0xfffffff8u);
            for (var kk = t; kk < span; kk += WG) {
                let key = tile + kk;
                let key_read = clamp(key, begin, keys - 1u);
                let block = step[table + key_read / p.block_size];
                let tile_k = block * p.kv_heads + kv;
                let offset = key_read % p.block_size;
                let k_at = kv_row(tile_k, offset, p.block_size, DIMS);
                let scale = p.scale * k_scale(tile_k, offset, p.block_size, DIMS);
                for (var r = 0u; r < rows; r += 4u) {
#for i in 0..4
                    let q$i = row_at(p.q_stride, first, head0, heads, min(r + $i, rows - 1u));
                    var s$i = 0.0;
#end
                    for (var d = 0u; d < DIMS; d += SPREAD) {
#for g in 0..SPREAD
                        let k$g = kv_floats(k_cache[k_at + d + $g]);
#for i in 0..4
                        let q${g}_$i = floats(q[q$i + d + $g]);
                        s$i = fma(q${g}_$i.x, k$g.x, s$i);
                        s$i = fma(q${g}_$i.y, k$g.y, s$i);
                        s$i = fma(q${g}_$i.z, k$g.z, s$i);
                        s$i = fma(q${g}_$i.w, k$g.w, s$i);
#end
#end
                    }
#for i in 0..4
                    let row$i = position + (r + $i) / heads;
                    let seen$i = key <= row$i && row$i - key < p.window;
                    score[(r + $i) * TILE + kk] = select(NEG, capped(s$i * scale), seen$i);
#end
                }
            }
            workgroupBarrier();
            // The tile's maximum per row: max is exact, so its order does not matter.
            for (var i = t; i < rows * 8u; i += WG) {
                var high = NEG;
                if ((i % 8u) * 8u < span) {
#for k in 0..8
                    high = max(high, score[i * 8u + $k]);
#end
                }
                part_max[i] = high;
            }
            workgroupBarrier();
            for (var r = t; r < rows; r += WG) {
                var high = NEG;
#for k in 0..8
                high = max(high, part_max[r * 8u + $k]);
#end
                row_max[r] = high;
            }
            workgroupBarrier();
            for (var i = t; i < rows * span; i += WG) {
                let at = i / span * TILE + i % span;
                let s = score[at];
                score[at] = select(exp(s - row_max[i / span]), 0.0, s == NEG);
            }
            workgroupBarrier();
#for i in 0..PER
            var tl$i = 0.0;
            var to$i = vec4<f32>(0.0);
#end
            // Keys that no row sees have weight 0; their value is read from one that is seen.
            for (var j = 0u; j < span; j += 8u) {
#for k in 0..8
                let key$k = clamp(tile + j + $k, begin, keys - 1u);
                let block$k = step[table + key$k / p.block_size];
                let tile$k = block$k * p.kv_heads + kv;
                let offset$k = key$k % p.block_size;
                let v_at$k = kv_row(tile$k, offset$k, p.block_size, DIMS) + dim;
                let scale$k = v_scale(tile$k, offset$k, p.block_size, DIMS);
                let v$k = kv_floats(v_cache[v_at$k]) * scale$k;
#for i in 0..PER
                let w${k}_$i = score[r$i * TILE + j + $k];
                tl$i += w${k}_$i;
                to$i = fma(vec4<f32>(w${k}_$i), v$k, to$i);
#end
#end
            }
#for i in 0..PER
            {
                let tile_max = row_max[r$i];
                let high = max(m$i, tile_max);
                let a = fold_weight(m$i, high);
                let b = fold_weight(tile_max, high);
                l$i = fma(l$i, a, tl$i * b);
                o$i = fma(o$i, vec4<f32>(a), to$i * b);
                m$i = high;
            }
#end
            workgroupBarrier();
        }
#for i in 0..PER
        {
            let high = max(total_m$i, m$i);
            let a = fold_weight(total_m$i, high);
            let b = fold_weight(m$i, high);
            total_l$i = fma(total_l$i, a, l$i * b);
            total_o$i = fma(total_o$i, vec4<f32>(a), o$i * b);
            total_m$i = high;
        }
#end
    }
#for i in 0..PER
    {
        let r = t / DIMS + $i * LANES;
        if (t < LANES * DIMS && r < rows) {
            if (slot == NONE) {
                out[row_at(p.out_stride, first, head0, heads, r) + dim] = total_o$i / total_l$i;
            } else {
                let to = (slot + (r / heads) * p.heads + head0 + r % heads) * (HD + 4u);
                parts[to + dim * 4u] = total_o$i.x;
                parts[to + dim * 4u + 1u] = total_o$i.y;
                parts[to + dim * 4u + 2u] = total_o$i.z;
                parts[to + dim * 4u + 3u] = total_o$i.w;
                if (dim == 0u) {
                    parts[to + HD] = total_m$i;
                    parts[to + HD + 1u] = total_l$i;
                }
            }
        }
    }
#end
}
