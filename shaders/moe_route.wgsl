// The experts of each token and their weights: scores of the router's logits, the `used` highest in
// rank order (equal ones by number), their scores as weights. One workgroup per token.
//   score = softmax over all experts (scoring 0) or sigmoid (scoring 1)
//   rank by score + bias[e]; weight = score, / (sum of the chosen) if `normalise`, * scale
//
// logits: [T][stride] f32   bias: [experts] f32
// route: expert of pair token * used + rank at word 0.., its weight as f32 at `weights_at`..

struct Params {
    tokens: u32,
    experts: u32, // at most EXPERTS
    used: u32,    // at most 32
    stride: u32,  // values
    scoring: u32,
    has_bias: u32,
    normalise: u32,
    scale: f32,
    weights_at: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> route: array<u32>;

const NEG: f32 = -3.0e38;

var<workgroup> score: array<f32, EXPERTS>;
// What ranks them; NEG once chosen.
var<workgroup> rank: array<f32, EXPERTS>;
var<workgroup> part: array<f32, WG>;
var<workgroup> part_id: array<u32, WG>;
var<workgroup> chosen: array<u32, 32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let t = local.x;
    let token = group.y * p.grid_x + group.x;
    if (token >= p.tokens) {
        return;
    }
    let base = token * p.stride;
    var high = NEG;
    for (var e = t; e < p.experts; e += WG) {
        high = max(high, logits[base + e]);
    }
    part[t] = high;
    workgroupBarrier();
    for (var i = 0u; i < WG; i++) {
        high = max(high, part[i]);
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var e = t; e < p.experts; e += WG) {
        let l = logits[base + e];
        let v = select(1.0 / (1.0 + exp(-l)), exp(l - high), p.scoring == 0u);
        score[e] = v;
        sum += v;
    }
    part[t] = sum;
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < WG; i++) {
        total += part[i];
    }
    let divisor = select(1.0, total, p.scoring == 0u);
    for (var e = t; e < p.experts; e += WG) {
        let v = score[e] / divisor;
        score[e] = v;
        rank[e] = select(v, v + bias[e], p.has_bias == 1u);
    }
    for (var r = 0u; r < p.used; r++) {
        workgroupBarrier();
        var best = NEG;
        var id = p.experts;
        for (var e = t; e < p.experts; e += WG) {
            if (rank[e] > best) {
                best = rank[e];
                id = e;
            }
        }
        part[t] = best;
        part_id[t] = id;
        workgroupBarrier();
        for (var i = 0u; i < WG; i++) {
            if (part[i] > best || (part[i] == best && part_id[i] < id)) {
                best = part[i];
                id = part_id[i];
            }
        }
        // No score is a number: some expert still has to be named.
        id = min(id, p.experts - 1u);
        if (t == 0u) {
            chosen[r] = id;
            rank[id] = NEG;
        }
    }
    workgroupBarrier();
    if (t == 0u) {
        var of_chosen = 0.0;
        for (var r = 0u; r < p.used; r++) {
            of_chosen += score[chosen[r]];
        }
        let factor = p.scale / select(1.0, of_chosen, p.normalise == 1u);
        for (var r = 0u; r < p.used; r++) {
            let pair = token * p.used + r;
            route[pair] = chosen[r];
            route[p.weights_at + pair] = bitcast<u32>(score[chosen[r]] * factor);
        }
    }
}
