// Rotates q in place, rotates k and writes it with v into the paged cache. Pairs are half-split:
// (i, i + rotary/2); dimensions from `rotary` on pass through.
//   a' = a cos - b sin    b' = b cos + a sin,   (cos, sin) = table[position][i]
//
// q: [T][q_stride]   k, v: [T][kv_stride]   table: [positions][rotary/2] vec2
// step: positions at `positions_at`, cache slots (block * block_size + offset) at `slots_at`
// k_cache, v_cache: [block][kv_head][block_size][head_dim]

struct Params {
    tokens: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    rotary: u32,
    q_stride: u32,
    kv_stride: u32,
    block_size: u32,
    positions_at: u32,
    slots_at: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read_write> q: array<f32>;
@group(0) @binding(6) var<storage, read_write> k_cache: array<f32>;
@group(0) @binding(7) var<storage, read_write> v_cache: array<f32>;

fn rotate(a: f32, b: f32, turn: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(fma(a, turn.x, -(b * turn.y)), fma(b, turn.x, a * turn.y));
}

// One thread: one token, one head (q heads, then kv heads), one pair or two plain dimensions.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let id = (group.y * p.grid_x + group.x) * WG + local.x;
    let pairs = p.head_dim / 2u;
    let pair = id % pairs;
    let head = (id / pairs) % (p.heads + p.kv_heads);
    let t = id / (pairs * (p.heads + p.kv_heads));
    if (t >= p.tokens) {
        return;
    }
    let turns = p.rotary / 2u;
    let rotated = pair < turns;
    // Beyond the rotary part, pair numbers count two adjacent plain dimensions.
    let a = select(pair * 2u, pair, rotated);
    let b = select(pair * 2u + 1u, pair + turns, rotated);
    var turn = vec2<f32>(1.0, 0.0);
    if (rotated) {
        turn = table[step[p.positions_at + t] * turns + pair];
    }
    if (head < p.heads) {
        let at = t * p.q_stride + head * p.head_dim;
        if (rotated) {
            let out = rotate(q[at + a], q[at + b], turn);
            q[at + a] = out.x;
            q[at + b] = out.y;
        }
        return;
    }
    let kv = head - p.heads;
    let base = t * p.kv_stride + kv * p.head_dim;
    let slot = step[p.slots_at + t];
    let block = slot / p.block_size;
    let row = (block * p.kv_heads + kv) * p.block_size + slot % p.block_size;
    let to = row * p.head_dim;
    var out = vec2<f32>(k[base + a], k[base + b]);
    if (rotated) {
        out = rotate(out.x, out.y, turn);
    }
    k_cache[to + a] = out.x;
    k_cache[to + b] = out.y;
    v_cache[to + a] = v[base + a];
    v_cache[to + b] = v[base + b];
}
