// Varlen paged attention: out[row] = softmax(cap(scale * q[row] . K)) V over the keys that the row sees:
// those j with position(row) - window < j <= position(row).
// One work item = up to ROWS (token, head) rows that share one kv head and one sequence, and a
// range of splits; decode rows and prefill chunks of any number of sequences are the same items.
//
// Keys are taken in tiles of 64 at absolute positions, tiles are gathered in splits of `split` keys,
// splits are folded in ascending order: a row's bits do not depend on the other rows of an item,
// on chunk borders, or on whether its splits ran in one item or in several (attn_merge).
// A masked key adds exactly 0; tiles that no row of the item sees are left out, which changes no
// bit, and entries of the block table before the first key seen are never used. How threads share
// the work of an item is told by the import `body`.
//
// q: [T][q_stride] as vec4   k_cache, v_cache: [block][kv_head][block_size][HD], see import `kv`
// step: work items of 8 words at `items_at`:
//   first token, tokens, position of the first token, word of its block table in step,
//   first split, end split, partial slot of the first row or 0xffffffff, unused
// out: [T][out_stride] as vec4   parts: [slot][HD + 4] f32 (o, m, l)
#import attn_fold
#import words
#import kv
#import body

struct Params {
    heads: u32,
    kv_heads: u32,
    block_size: u32,
    items_at: u32,
    q_stride: u32,     // values
    out_stride: u32,
    group: u32,        // q heads per kv head
    group_parts: u32,  // items per kv head when a group has more than ROWS heads
    scale: f32,
    window: u32,       // keys a row sees, itself included; 0xffffffff for all
    cap: f32,          // scores become cap * tanh(score / cap); 0 for none
    items: u32,
    grid_x: u32,
    split: u32,        // keys per split, whole tiles
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

// cap * tanh(score / cap), by an exponential that cannot overflow.
fn capped(score: f32) -> f32 {
    if (p.cap == 0.0) {
        return score;
    }
    let e = exp(-2.0 * abs(score) / p.cap);
    return sign(score) * p.cap * ((1.0 - e) / (1.0 + e));
}

// Where row r of the item lies in q or out, of such a stride, in vec4s.
fn row_at(stride: u32, first: u32, head0: u32, heads: u32, r: u32) -> u32 {
    return (first + r / heads) * (stride / 4u) + (head0 + r % heads) * DIMS;
}
