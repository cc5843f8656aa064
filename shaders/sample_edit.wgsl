// Applies penalties and bias to single logits, before sampling. An edit keeps the raw logit, so
// that logprobs stay those of the raw logits.
//   l > 0: l / repetition, else l * repetition; then l - presence - frequency * count; then + bias
//
// edits: [count][8] words: row, token, times the token was produced, 1 if the token was seen,
//   bias (f32), raw logit (written), 0, 0     rows: [row][16] words, see sample
// logits: [row - row_base][stride]

struct Params {
    count: u32,
    stride: u32,
    first: u32,     // first edit of this launch
    row_base: u32,  // the row whose logits lie first
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read_write> edits: array<u32>;
@group(0) @binding(3) var<storage, read_write> logits: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let i = (group.y * p.grid_x + group.x) * WG + local.x;
    if (i >= p.count) {
        return;
    }
    let edit = (p.first + i) * 8u;
    let row = edits[edit] * 16u;
    let at = (edits[edit] - p.row_base) * p.stride + edits[edit + 1u];
    let raw = logits[at];
    let times = f32(edits[edit + 2u]);
    var l = raw;
    if (edits[edit + 3u] == 1u) {
        let repetition = bitcast<f32>(rows[row + 7u]);
        l = select(l * repetition, l / repetition, l > 0.0);
    }
    if (times > 0.0) {
        l = l - bitcast<f32>(rows[row + 8u]);
        l = fma(-bitcast<f32>(rows[row + 9u]), times, l);
    }
    logits[at] = l + bitcast<f32>(edits[edit + 4u]);
    edits[edit + 5u] = bitcast<u32>(raw);
}
