// Joins the partials of rows whose splits ran in several work items of attn_paged: folds them in
// ascending order and divides. One workgroup per (merge item, head).
//
// step: merge items of 4 words at `merges_at`: token, first partial slot, splits, unused
//   partial of split s and head h: slot first + s * heads + h
// parts: [slot][HD + 4] f32 (o, m, l)   out: [T][out_stride]
#import attn_fold

struct Params {
    heads: u32,
    merges_at: u32,
    out_stride: u32,
    merges: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let item = wg.y * p.grid_x + wg.x;
    if (item >= p.merges) {
        return;
    }
    let at = p.merges_at + item * 4u;
    let head = wg.z;
    for (var d = local.x; d < HD; d += WG) {
        var m = NEG;
        var l = 0.0;
        var o = 0.0;
        for (var s = 0u; s < step[at + 2u]; s++) {
            let base = (step[at + 1u] + s * p.heads + head) * (HD + 4u);
            let part_m = parts[base + HD];
            let high = max(m, part_m);
            let a = fold_weight(m, high);
            let b = fold_weight(part_m, high);
            l = fma(l, a, parts[base + HD + 1u] * b);
            o = fma(o, a, parts[base + d] * b);
            m = high;
        }
        out[step[at] * p.out_stride + head * HD + d] = o / l;
    }
}
