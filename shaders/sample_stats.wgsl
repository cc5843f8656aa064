// Per row of raw logits: whether all are finite, log sum exp in two parts (one f32 would round
// away what counts when logits are large), and the `top` most likely tokens with their logits
// (ties: lowest id first). One workgroup per row; runs before sample_edit.
//
// rows: [row][16] words, see sample     logits: [row][stride]
// out: [row][64] words, see sample: 1 = finite, 4 = the highest logit,
//   5 = log sum exp(logit - highest), 8.. = (token, logit) pairs

struct Params {
    rows: u32,
    vocab: u32,
    stride: u32,
    grid_x: u32,
    row_base: u32,  // the row whose logits lie first
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

var<workgroup> best: array<f32, WG>;
var<workgroup> best_id: array<u32, WG>;

// True where (l, id) comes after (l0, id0) in the order: higher logit first, then lower id.
fn after(l: f32, id: u32, l0: f32, id0: u32) -> bool {
    return l < l0 || (l == l0 && id > id0);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let local_row = group.y * p.grid_x + group.x;
    if (local_row >= p.rows) {
        return;
    }
    let row = p.row_base + local_row;
    let t = local.x;
    let base = local_row * p.stride;
    var broken = 0u;
    var high = -0x1.fffffep+127;
    for (var i = t; i < p.vocab; i += WG) {
        let l = logits[base + i];
        broken |= u32((bitcast<u32>(l) & 0x7f800000u) == 0x7f800000u);
        high = max(high, l);
    }
    best[t] = high;
    best_id[t] = broken;
    workgroupBarrier();
    broken = 0u;
    for (var i = 0u; i < WG; i++) {
        high = max(high, best[i]);
        broken |= best_id[i];
    }
    workgroupBarrier();
    let top = rows[row * 16u + 10u];
    if (top > 0u) {
        var sum = 0.0;
        for (var i = t; i < p.vocab; i += WG) {
            sum += exp(logits[base + i] - high);
        }
        best[t] = sum;
    }
    workgroupBarrier();
    if (t == 0u) {
        out[row * 64u + 1u] = 1u - broken;
        var sum = 0.0;
        for (var i = 0u; i < WG; i++) {
            sum += best[i];
        }
        out[row * 64u + 4u] = bitcast<u32>(high);
        out[row * 64u + 5u] = bitcast<u32>(log(sum));
    }
    // `top` counts one more than the alternatives asked for, so that 0 asks for nothing.
    var last = 3.4e38;
    var last_id = 0u;
    for (var n = 0u; n + 1u < top; n++) {
        workgroupBarrier();
        var l = -3.4e38;
        var id = 0xffffffffu;
        for (var i = t; i < p.vocab; i += WG) {
            let v = logits[base + i];
            if ((n == 0u || after(v, i, last, last_id)) && (id == 0xffffffffu || v > l)) {
                l = v;
                id = i;
            }
        }
        best[t] = l;
        best_id[t] = id;
        workgroupBarrier();
        last = best[0];
        last_id = best_id[0];
        for (var i = 1u; i < WG; i++) {
            let better = best_id[i] != 0xffffffffu && (last_id == 0xffffffffu || after(last, last_id, best[i], best_id[i]));
            last = select(last, best[i], better);
            last_id = select(last_id, best_id[i], better);
        }
        if (t == 0u) {
            out[row * 64u + 8u + n * 2u] = last_id;
            out[row * 64u + 9u + n * 2u] = bitcast<u32>(last);
        }
    }
}
