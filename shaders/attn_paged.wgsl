// Varlen paged attention: out[row] = softmax(cap(scale * q[row] . K)) V over the keys that the row sees:
// those j with position(row) - window < j <= position(row).
// One work item = up to ROWS (token, head) rows that share one kv head and one sequence, and a
// range of splits; decode rows and prefill chunks of any number of sequences are the same items.
//
// Keys are taken in tiles of 64 at absolute positions, tiles are gathered in splits of SPLIT keys,
// splits are folded in ascending order: a row's bits do not depend on the other rows of an item,
// on chunk borders, or on whether its splits ran in one item or in several (attn_merge).
// A masked key adds exactly 0; tiles that no row of the item sees are left out, which changes no
// bit, and entries of the block table before the first key seen are never used. WG threads: in the score phase a thread owns keys, in the value
// phase one vec4 of the head for PER of the ROWS rows (LANES rows side by side).
//
// q: [T][heads * HD] as vec4   k_cache, v_cache: [block][kv_head][block_size][HD], see import `kv`
// step: work items of 8 words at `items_at`:
//   first token, tokens, position of the first token, word of its block table in step,
//   first split, end split, partial slot of the first row or 0xffffffff, unused
// out: [T][heads * HD] as vec4   parts: [slot][HD + 4] f32 (o, m, l)
#import attn_fold
#import words
#import kv
#import q_reads

struct Params {
    heads: u32,
    kv_heads: u32,
    block_size: u32,
    items_at: u32,
    q_stride: u32,     // values
    group: u32,        // q heads per kv head
    group_parts: u32,  // items per kv head when a group has more than ROWS heads
    scale: f32,
    window: u32,       // keys a row sees, itself included; 0xffffffff for all
    cap: f32,          // scores become cap * tanh(score / cap); 0 for none
    items: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> q: array<Words>;
@group(0) @binding(2) var<storage, read> k_cache: array<KvWord>;
@group(0) @binding(3) var<storage, read> v_cache: array<KvWord>;
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> parts: array<f32>;

const TILE: u32 = 64u;
const DIMS: u32 = HD / 4u; // vec4s of a head
const NONE: u32 = 0xffffffffu;

// Scores, then weights, of the tile: [row][key].
var<workgroup> score: array<f32, ROWS * TILE>;
var<workgroup> part_max: array<f32, ROWS * 8>;
var<workgroup> row_max: array<f32, ROWS>;

// cap * tanh(score / cap), by an exponential that cannot overflow.
fn capped(score: f32) -> f32 {
    if (p.cap == 0.0) {
        return score;
    }
    let e = exp(-2.0 * abs(score) / p.cap);
    return sign(score) * p.cap * ((1.0 - e) / (1.0 + e));
}

// Where row r of the item lies in q and out, in vec4s.
fn row_at(first: u32, head0: u32, heads: u32, r: u32) -> u32 {
    return (first + r / heads) * (p.q_stride / 4u) + (head0 + r % heads) * DIMS;
}

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
    for (var split = max(step[at + 4u], begin / SPLIT); split < step[at + 5u]; split++) {
#for i in 0..PER
        var m$i = NEG;
        var l$i = 0.0;
        var o$i = vec4<f32>(0.0);
#end
        let tile_end = min((split + 1u) * SPLIT, keys);
        let tile_begin = max(split * SPLIT, begin / TILE * TILE);
        for (var tile = tile_begin; tile < tile_end; tile += TILE) {
            // Keys of the tile that exist, in eights; the rest has weight 0 and is left out.
            let span = min(TILE, (keys - tile + 7u) & 0xfffffff8u);
            // Uniform bounds, since q_take may ask other lanes: the last round can have threads
            // without a key, which keep nothing.
            for (var round = 0u; round < span; round += WG) {
                let kk = round + t;
                let key = tile + kk;
                let key_read = clamp(key, begin, keys - 1u);
                let block = step[table + key_read / p.block_size];
                let tile_k = block * p.kv_heads + kv;
                let offset = key_read % p.block_size;
                let k_at = kv_row(tile_k, offset, p.block_size, DIMS);
                let scale = p.scale * k_scale(tile_k, offset, p.block_size, DIMS);
                for (var r = 0u; r < rows; r += 4u) {
#for i in 0..4
                    let q$i = row_at(first, head0, heads, min(r + $i, rows - 1u));
                    var s$i = 0.0;
#end
                    for (var d = 0u; d < DIMS; d += SPREAD) {
#for i in 0..4
                        let qp$i = q_load(q$i + d, t);
#end
#for g in 0..SPREAD
                        let k$g = kv_floats(k_cache[k_at + d + $g]);
#for i in 0..4
                        let q${g}_$i = q_take$g(qp$i, q$i + d);
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
                    if (TILE % WG == 0u || kk < TILE) {
                        score[(r + $i) * TILE + kk] = select(NEG, capped(s$i * scale), seen$i);
                    }
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
#for i in 0..PER
                let wp$i = weight_load(r$i * TILE + j, t);
#end
#for k in 0..8
                let key$k = clamp(tile + j + $k, begin, keys - 1u);
                let block$k = step[table + key$k / p.block_size];
                let tile$k = block$k * p.kv_heads + kv;
                let offset$k = key$k % p.block_size;
                let v_at$k = kv_row(tile$k, offset$k, p.block_size, DIMS) + dim;
                let scale$k = v_scale(tile$k, offset$k, p.block_size, DIMS);
                let v$k = kv_floats(v_cache[v_at$k]) * scale$k;
#for i in 0..PER
                let w${k}_$i = weight_take$k(wp$i, r$i * TILE + j);
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
                out[row_at(first, head0, heads, r) + dim] = total_o$i / total_l$i;
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
