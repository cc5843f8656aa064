// Picks the next token of each row: greedy, or temperature -> top-k -> top-p -> min-p and a draw.
// Weights are w = exp((l - max) / temperature), so max w = 1. A cut keeps the heaviest tokens, ties
// by lowest id; its threshold is found two bits at a time (positive floats order as
// integers), so the cut is exact for any k and any vocabulary. The draw walks tokens by id.
// All sums have an order fixed by WG and SPAN. One workgroup per row.
//
// rows: [row][16] words: 0 temperature, 1 top_k, 2 top_p, 3 min_p, 4 draw in [0, 1), 5 first edit,
//   6 edits, 7 repetition, 8 presence, 9 frequency, 10 top (sample_stats), 11 the token + 1 where it
//   is given and not chosen, 12 (sample_mask); f32 where not a count
// edits: see sample_edit   logits: [row][stride] (edited)   weights: [row][stride] scratch
// out: [row][64] words: 0 token, 1 finite, 2 raw logit of the token, 3 kept tokens

struct Params {
    rows: u32,
    vocab: u32,
    stride: u32,
    grid_x: u32,
    row_base: u32,  // the row whose logits lie first
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> edits: array<u32>;
@group(0) @binding(3) var<storage, read> logits: array<f32>;
@group(0) @binding(4) var<storage, read_write> weights: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<u32>;

var<workgroup> part: array<f32, WG>;
var<workgroup> count: array<u32, WG>;
var<workgroup> parts: array<vec3<f32>, WG>;
var<workgroup> counts: array<vec3<u32>, WG>;
// Sums of SPAN neighbours of `parts` and `counts`.
var<workgroup> span_parts: array<vec3<f32>, WG / SPAN>;
var<workgroup> span_counts: array<vec3<u32>, WG / SPAN>;

// Per cutoff: sum of w over weights whose bits are at least that, and how many they are.
struct Kept {
    mass: vec3<f32>,
    number: vec3<u32>,
}

fn kept_from(base: u32, t: u32, cutoffs: vec3<u32>) -> Kept {
    var mass = vec3<f32>(0.0);
    var number = vec3<u32>(0u);
    // Four a round: lavapipe silently ends a thread's loops after 65535 rounds in all, and both
    // cuts together pass over the vocabulary about 35 times.
    for (var i = t; i < p.vocab; i += WG * 4u) {
#for k in 0..4
        let at$k = i + $k * WG;
        let w$k = weights[base + min(at$k, p.vocab - 1u)];
        let here$k = vec3<bool>(at$k < p.vocab);
        let keep$k = here$k & (vec3<u32>(bitcast<u32>(w$k)) >= cutoffs);
        mass += select(vec3<f32>(0.0), vec3<f32>(w$k), keep$k);
        number += vec3<u32>(keep$k);
#end
    }
    workgroupBarrier();
    parts[t] = mass;
    counts[t] = number;
    workgroupBarrier();
    if (t < WG / SPAN) {
        var span = Kept(vec3<f32>(0.0), vec3<u32>(0u));
        for (var i = t * SPAN; i < (t + 1u) * SPAN; i++) {
            span.mass += parts[i];
            span.number += counts[i];
        }
        span_parts[t] = span.mass;
        span_counts[t] = span.number;
    }
    workgroupBarrier();
    var all = Kept(vec3<f32>(0.0), vec3<u32>(0u));
    for (var i = 0u; i < WG / SPAN; i++) {
        all.mass += span_parts[i];
        all.number += span_counts[i];
    }
    return all;
}

// `cut`, which has no bits below `shift` + 2, with each digit of two bits but 0 behind it.
fn digits(cut: u32, shift: u32) -> vec3<u32> {
    return vec3<u32>(cut) | (vec3<u32>(1u, 2u, 3u) << vec3<u32>(shift));
}

// The digit: how many of the ascending cutoffs still do.
fn count_true(v: vec3<bool>) -> u32 {
    return u32(v.x) + u32(v.y) + u32(v.z);
}

fn finish(row: u32, token: u32, kept: u32) {
    var raw = logits[(row - p.row_base) * p.stride + token];
    let first = rows[row * 16u + 5u];
    for (var i = first; i < first + rows[row * 16u + 6u]; i++) {
        if (edits[i * 8u + 1u] == token) {
            raw = bitcast<f32>(edits[i * 8u + 5u]);
        }
    }
    out[row * 64u] = token;
    out[row * 64u + 2u] = bitcast<u32>(raw);
    out[row * 64u + 3u] = kept;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let local_row = group.y * p.grid_x + group.x;
    if (local_row >= p.rows) {
        return;
    }
    let row = p.row_base + local_row;
    let t = local.x;
    let given = rows[row * 16u + 11u];
    if (given > 0u) {
        if (t == 0u) {
            finish(row, given - 1u, 1u);
        }
        return;
    }
    let base = local_row * p.stride;
    var high = -0x1.fffffep+127;
    var id = 0u;
    for (var i = t; i < p.vocab; i += WG) {
        let l = logits[base + i];
        if (l > high) {
            high = l;
            id = i;
        }
    }
    part[t] = high;
    count[t] = id;
    workgroupBarrier();
    for (var i = 0u; i < WG; i++) {
        if (part[i] > high || (part[i] == high && count[i] < id)) {
            high = part[i];
            id = count[i];
        }
    }
    let temperature = bitcast<f32>(rows[row * 16u]);
    // One kept token is the greedy one: weights of different logits can round to the same bits.
    if (temperature == 0.0 || rows[row * 16u + 1u] == 1u) {
        if (t == 0u) {
            finish(row, id, 1u);
        }
        return;
    }
    for (var i = t; i < p.vocab; i += WG) {
        let l = logits[base + i];
        weights[base + i] = select(exp((l - high) / temperature), 1.0, l == high);
    }
    storageBarrier();

    // The cut: keep bits > floor, and the first `ties` tokens whose bits equal it.
    var cutoff = 1u;
    var ties = 0xffffffffu;
    let top_k = rows[row * 16u + 1u];
    if (top_k > 0u && top_k < p.vocab) {
        var cut = 0u;
        for (var left = 30u; left > 0u; left -= 2u) {
            let tried = kept_from(base, t, digits(cut, left - 2u));
            cut |= count_true(tried.number >= vec3<u32>(top_k)) << (left - 2u);
        }
        cutoff = max(cut, 1u);
        ties = top_k - kept_from(base, t, vec3<u32>(cutoff + 1u)).number.x;
    }
    let top_p = bitcast<f32>(rows[row * 16u + 2u]);
    if (top_p < 1.0) {
        let near = kept_from(base, t, vec3<u32>(cutoff, cutoff + 1u, cutoff + 1u));
        let tied = min(ties, near.number.x - near.number.y);
        let goal = max(top_p, 1e-9) * fma(f32(tied), bitcast<f32>(cutoff), near.mass.y);
        // The highest floor whose kept mass still reaches the goal.
        var cut = 0u;
        for (var left = 30u; left > 0u; left -= 2u) {
            let cutoffs = digits(cut, left - 2u);
            let reached = kept_from(base, t, cutoffs).mass >= vec3<f32>(goal);
            cut |= count_true(reached | (cutoffs <= vec3<u32>(cutoff))) << (left - 2u);
        }
        if (cut > cutoff) {
            cutoff = cut;
            ties = 0xffffffffu;
        }
        let heavier = kept_from(base, t, vec3<u32>(cutoff + 1u)).mass.x;
        let need = max(ceil((goal - heavier) / bitcast<f32>(cutoff)), 1.0);
        ties = min(ties, u32(min(need, 4e9)));
    }
    let min_p = bitcast<f32>(rows[row * 16u + 3u]);
    if (bitcast<u32>(min_p) > cutoff) {
        cutoff = bitcast<u32>(min_p);
        ties = 0xffffffffu;
    }

    // The draw, over ranges of consecutive ids: first how many ties lie before each range.
    let chunk = (p.vocab + WG - 1u) / WG;
    let begin = min(t * chunk, p.vocab);
    let end = min(begin + chunk, p.vocab);
    var equal = 0u;
    for (var i = begin; i < end; i++) {
        equal += u32(bitcast<u32>(weights[base + i]) == cutoff);
    }
    workgroupBarrier();
    count[t] = equal;
    workgroupBarrier();
    var rank = 0u;
    for (var i = 0u; i < t; i++) {
        rank += count[i];
    }
    workgroupBarrier();
    let ties_before = rank;
    var mass = 0.0;
    var number = 0u;
    for (var i = begin; i < end; i++) {
        let w = weights[base + i];
        let same = bitcast<u32>(w) == cutoff;
        let keep = bitcast<u32>(w) > cutoff || (same && rank < ties);
        rank += u32(same);
        mass += select(0.0, w, keep);
        number += u32(keep);
    }
    part[t] = mass;
    count[t] = number;
    workgroupBarrier();
    var all = 0.0;
    var kept = 0u;
    var last = 0u;
    for (var i = 0u; i < WG; i++) {
        all += part[i];
        kept += count[i];
        last = select(last, i, count[i] > 0u);
    }
    // The range in which the running sum passes the draw; the last kept token if rounding leaves none.
    let goal = bitcast<f32>(rows[row * 16u + 4u]) * all;
    var before = 0.0;
    var owner = 0u;
    while (owner < last && before + part[owner] <= goal) {
        before += part[owner];
        owner++;
    }
    if (t == owner) {
        var token = 0u;
        rank = ties_before;
        var sum = before;
        for (var i = begin; i < end; i++) {
            let w = weights[base + i];
            let same = bitcast<u32>(w) == cutoff;
            let keep = bitcast<u32>(w) > cutoff || (same && rank < ties);
            rank += u32(same);
            if (keep && (sum <= goal)) {
                token = i;
                sum += w;
            }
        }
        finish(row, token, kept);
    }
}
