// Keeps rows that are held to a grammar to the ids it allows: every other logit becomes LOWEST,
// finite so that no NaN arises, and far below what penalties and bias can reach. Runs after
// sample_edit, so that no edit lifts what is not allowed. One workgroup per row.
//
// rows: [row][16] words, see sample; word 12 is the row's mask + 1, or 0 for none
// masks: [mask][(vocab + 31) / 32] words; bit i % 32 of word i / 32: id i may come
// logits: [row - row_base][stride]

struct Params {
    rows: u32,
    vocab: u32,
    stride: u32,
    grid_x: u32,
    row_base: u32,  // the row whose logits lie first
}

const LOWEST = -1e30;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> masks: array<u32>;
@group(0) @binding(3) var<storage, read_write> logits: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let local_row = group.y * p.grid_x + group.x;
    if (local_row >= p.rows) {
        return;
    }
    let mask = rows[(p.row_base + local_row) * 16u + 12u];
    if (mask == 0u) {
        return;
    }
    let words = (mask - 1u) * ((p.vocab + 31u) / 32u);
    for (var i = local.x; i < p.vocab; i += WG) {
        if (((masks[words + i / 32u] >> (i % 32u)) & 1u) == 0u) {
            logits[local_row * p.stride + i] = LOWEST;
        }
    }
}
