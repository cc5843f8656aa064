// Paged attention by a subgroup of eight lanes that share nothing through memory, for software
// devices, to which shared memory is as slow as any other. In the score phase a lane owns one of
// eight keys, in the value phase every eighth vec4 of the head, of which it keeps q, too.

// Scores, then weights, of this lane's keys of the tile: [row][eight].
var<private> weight: array<f32, ROWS * 8u>;
// Where the values of this lane's keys begin, and their factors.
var<private> value_at: array<u32, 8>;
var<private> value_scale: array<f32, 8>;

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

#for c in 0..(HD/4 + 7)/8
    let dim$c = min($c * 8u + t, DIMS - 1u);
#end
#for r in 0..ROWS
    let row$r = position + min($r, rows - 1u) / heads;
    let q_at$r = row_at(p.q_stride, first, head0, heads, min($r, rows - 1u));
#for c in 0..(HD/4 + 7)/8
    let q${r}_$c = floats(q[q_at$r + dim$c]);
    var total_o${r}_$c = vec4<f32>(0.0);
#end
    var total_m$r = NEG;
    var total_l$r = 0.0;
#end
    for (var split = max(step[at + 4u], begin / p.split); split < step[at + 5u]; split++) {
#for r in 0..ROWS
        var m$r = NEG;
        var l$r = 0.0;
#for c in 0..(HD/4 + 7)/8
        var o${r}_$c = vec4<f32>(0.0);
#end
#end
        let tile_end = min((split + 1u) * p.split, keys);
        let tile_begin = max(split * p.split, begin / TILE * TILE);
        for (var tile = tile_begin; tile < tile_end; tile += TILE) {
            // Eights of keys that exist; the rest has weight 0 and is left out.
            let eights = (min(TILE, keys - tile) + 7u) / 8u;
#for r in 0..ROWS
            var high$r = NEG;
#end
            for (var e = 0u; e < eights; e++) {
                let key = tile + e * 8u + t;
                // Keys that no row sees have weight 0; they are read where one that is seen lies.
                let key_read = clamp(key, begin, keys - 1u);
                let block = step[table + key_read / p.block_size] * p.kv_heads + kv;
                let offset = key_read % p.block_size;
                let k_at = kv_row(block, offset, p.block_size, DIMS);
                let scale = p.scale * k_scale(block, offset, p.block_size, DIMS);
                value_at[e] = k_at;
                value_scale[e] = v_scale(block, offset, p.block_size, DIMS);
#for r in 0..ROWS
                var s$r = 0.0;
#end
#for d in 0..HD/4
                let k$d = kv_floats(k_cache[k_at + $d]);
#for r in 0..ROWS
                let q${d}_of$r = subgroupBroadcast(q${r}_${d/8}, ${d%8}u);
                s$r = fma(q${d}_of$r.x, k$d.x, s$r);
                s$r = fma(q${d}_of$r.y, k$d.y, s$r);
                s$r = fma(q${d}_of$r.z, k$d.z, s$r);
                s$r = fma(q${d}_of$r.w, k$d.w, s$r);
#end
#end
#for r in 0..ROWS
                let seen$r = key <= row$r && row$r - key < p.window;
                let score$r = select(NEG, capped(s$r * scale), seen$r);
                weight[${r*8}u + e] = score$r;
                high$r = max(high$r, score$r);
#end
            }
#for r in 0..ROWS
            let top$r = subgroupMax(high$r);
            var tl$r = 0.0;
#for c in 0..(HD/4 + 7)/8
            var to${r}_$c = vec4<f32>(0.0);
#end
#end
            for (var e = 0u; e < eights; e++) {
                let own_at = value_at[e];
                let own_scale = value_scale[e];
#for r in 0..ROWS
                let score$r = weight[${r*8}u + e];
                let w$r = select(exp(score$r - top$r), 0.0, score$r == NEG);
#end
#for k in 0..8
                let v_at$k = subgroupBroadcast(own_at, ${k}u);
                let scale$k = subgroupBroadcast(own_scale, ${k}u);
#for c in 0..(HD/4 + 7)/8
                let v${k}_$c = kv_floats(v_cache[v_at$k + dim$c]) * scale$k;
#end
#for r in 0..ROWS
                let w${k}_$r = subgroupBroadcast(w$r, ${k}u);
                tl$r += w${k}_$r;
#for c in 0..(HD/4 + 7)/8
                to${r}_$c = fma(vec4<f32>(w${k}_$r), v${k}_$c, to${r}_$c);
#end
#end
#end
            }
#for r in 0..ROWS
            {
                let high = max(m$r, top$r);
                let a = fold_weight(m$r, high);
                let b = fold_weight(top$r, high);
                l$r = fma(l$r, a, tl$r * b);
#for c in 0..(HD/4 + 7)/8
                o${r}_$c = fma(o${r}_$c, vec4<f32>(a), to${r}_$c * b);
#end
                m$r = high;
            }
#end
        }
#for r in 0..ROWS
        {
            let high = max(total_m$r, m$r);
            let a = fold_weight(total_m$r, high);
            let b = fold_weight(m$r, high);
            total_l$r = fma(total_l$r, a, l$r * b);
#for c in 0..(HD/4 + 7)/8
            total_o${r}_$c = fma(total_o${r}_$c, vec4<f32>(a), o${r}_$c * b);
#end
            total_m$r = high;
        }
#end
    }
#for r in 0..ROWS
    if ($r < rows) {
        let to = (slot + ($r / heads) * p.heads + head0 + $r % heads) * (HD + 4u);
        let out_at = row_at(p.out_stride, first, head0, heads, $r);
#for c in 0..(HD/4 + 7)/8
        if ($c * 8u + t < DIMS) {
            if (slot == NONE) {
                out[out_at + dim$c] = total_o${r}_$c / total_l$r;
            } else {
                parts[to + dim$c * 4u] = total_o${r}_$c.x;
                parts[to + dim$c * 4u + 1u] = total_o${r}_$c.y;
                parts[to + dim$c * 4u + 2u] = total_o${r}_$c.z;
                parts[to + dim$c * 4u + 3u] = total_o${r}_$c.w;
            }
        }
#end
        if (slot != NONE && t == 0u) {
            parts[to + HD] = total_m$r;
            parts[to + HD + 1u] = total_l$r;
        }
    }
#end
}
