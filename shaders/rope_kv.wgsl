// Rotates q in place, rotates k and writes it with v into the paged cache. Pairs are half-split:
// (first + i, first + i + rotary/2); dimensions before and behind them pass through. Where keys and
// values are one row (a latent), v is not written.
//   a' = a cos - b sin    b' = b cos + a sin,   (cos, sin) = table[position][i]
//
// x: [T][x_stride], q of a row from value q_at, k from k_at, v from v_at
// table: [positions][rotary/2] (cos, sin), both as vec4
// step: positions at `positions_at`, cache slots (block * block_size + offset) at `slots_at`
// k_cache, v_cache: [block][kv_head][block_size][head_dim], stored as the import `put` does
// head_dim and rotary are multiples of 8, the others of 4.
#import kv
#import put

struct Params {
    tokens: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    first: u32,  // dimensions before the rotated ones, a multiple of 8
    rotary: u32,
    values: u32, // 1: v is written, too
    x_stride: u32,
    q_at: u32,
    k_at: u32,
    v_at: u32,
    block_size: u32,
    positions_at: u32,
    slots_at: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> table: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<KvWord>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<KvWord>;

// Where eight values of a row lie: elements `a` and `b` of the row `offset` of a tile.
struct Place {
    tile: u32,
    offset: u32,
    a: u32,
    b: u32,
    local: u32,
}

struct Turn {
    cos: vec4<f32>,
    sin: vec4<f32>,
}

fn rotate(x: mat2x4<f32>, t: Turn) -> mat2x4<f32> {
    return mat2x4<f32>(fma(x[0], t.cos, -(x[1] * t.sin)), fma(x[1], t.cos, x[0] * t.sin));
}

// One thread: one token, one head (q heads, then kv heads), four pairs or eight plain dimensions.
// A workgroup has whole heads only.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let width = p.head_dim / 8u;
    let heads = p.heads + p.kv_heads;
    let own = local.x / width;
    let eight = local.x % width;
    let unit = (group.y * p.grid_x + group.x) * (WG / width) + own;
    let live = own < WG / width && unit < p.tokens * heads;
    let t = min(unit / heads, p.tokens - 1u);
    let head = unit % heads;
    let turns = p.rotary / 8u;
    let before = p.first / 8u;
    let rotated = eight >= before && eight < before + turns;
    // Beside the rotary part, a thread has two adjacent elements.
    let a = select(eight * 2u, before + eight, rotated);
    let b = select(eight * 2u + 1u, before + eight + turns, rotated);
    var turn = Turn(vec4<f32>(1.0), vec4<f32>(0.0));
    if (rotated) {
        let at = (step[p.positions_at + t] * turns + eight - before) * 2u;
        let low = table[at];
        let high = table[at + 1u];
        turn = Turn(vec4<f32>(low.xz, high.xz), vec4<f32>(low.yw, high.yw));
    }
    if (live && rotated && head < p.heads) {
        let at = (t * p.x_stride + p.q_at + head * p.head_dim) / 4u;
        let out = rotate(mat2x4<f32>(x[at + a], x[at + b]), turn);
        x[at + a] = out[0];
        x[at + b] = out[1];
    }
    let stores = live && head >= p.heads;
    let kv = select(0u, head - p.heads, stores);
    let k = (t * p.x_stride + p.k_at + kv * p.head_dim) / 4u;
    let v = (t * p.x_stride + p.v_at + kv * p.head_dim) / 4u;
    var k_row = mat2x4<f32>(vec4<f32>(0.0), vec4<f32>(0.0));
    var v_row = k_row;
    if (stores) {
        k_row = mat2x4<f32>(x[k + a], x[k + b]);
        v_row = mat2x4<f32>(x[v + a], x[v + b]);
    }
    if (rotated) {
        k_row = rotate(k_row, turn);
    }
    let slot = step[p.slots_at + t];
    let tile = slot / p.block_size * p.kv_heads + kv;
    let place = Place(tile, slot % p.block_size, a, b, local.x);
    put(stores, own, place, k_row, v_row);
}
