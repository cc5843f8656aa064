//! `rope_kv` against f64, and how it stores keys and values of each type.

use super::kv::Form;
use super::lab::{Draws, Lab, Wanted, compare, same_bits, side_by_side};
use crate::support::On;
use tilewright::base::KvType;
use tilewright::kernels::attn::HEAD_DIMS;
use tilewright::kernels::block::{RopeKv, RopeKvParams};
use tilewright::record::Recording;

/// Allowed error of a rotated value below 2.
const ROPE_TOLERANCE: f64 = 2e-7;

const SEED: u64 = 0x726f_7065;
const TOKENS: [u32; 7] = [1, 2, 3, 7, 8, 9, 33];
const UNTOUCHED: f32 = 7.5;

fn exact(value: f32) -> Wanted {
    Wanted { value: f64::from(value), within: 0.0 }
}

/// q, k, v, their cos and sin, and where they go.
struct Rope {
    params: RopeKvParams,
    q_stride: usize,
    kv_stride: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    table: Vec<f32>,
    positions: Vec<u32>,
    slots: Vec<u32>,
    cache_rows: usize,
}

const POSITIONS: u32 = 50;

impl Rope {
    fn new(tokens: u32, head_dim: u32, rotary: u32, block_size: u32, draws: &mut Draws) -> Self {
        let (heads, kv_heads) = (3, 2);
        let (q_stride, kv_stride) = (heads * head_dim + 4, kv_heads * head_dim + 8);
        let values = |n: u32, draws: &mut Draws| draws.values((tokens * n) as usize);
        let slots = 4 * block_size;
        let angles = draws.values((POSITIONS * rotary / 2) as usize);
        let params = RopeKvParams {
            tokens,
            heads,
            kv_heads,
            head_dim,
            // The rotated part last, for every other count of tokens.
            first: if tokens.is_multiple_of(2) { (head_dim - rotary) / 8 * 8 } else { 0 },
            rotary,
            values: 1,
            x_stride: q_stride + 2 * kv_stride,
            q_at: kv_stride,
            k_at: kv_stride + q_stride,
            v_at: 0,
            block_size,
            positions_at: 2,
            slots_at: 2 + tokens,
            grid_x: 0,
        };
        Self {
            params,
            q_stride: q_stride as usize,
            kv_stride: kv_stride as usize,
            q: values(q_stride, draws),
            k: values(kv_stride, draws),
            v: values(kv_stride, draws),
            table: angles.iter().flat_map(|a| [(a * 9.0).cos(), (a * 9.0).sin()]).collect(),
            positions: (0..tokens).map(|_| draws.below(POSITIONS)).collect(),
            slots: draws.order(slots)[..tokens as usize].to_vec(),
            cache_rows: (slots * kv_heads) as usize,
        }
    }

    /// q and both caches afterwards. Cache rows that no token owns stay as they were.
    fn wanted(&self) -> [Vec<Wanted>; 3] {
        let p = self.params;
        let (dim, half) = (p.head_dim as usize, p.rotary as usize / 2);
        let rotated = |head: &[f32], token: usize| -> Vec<Wanted> {
            let mut out: Vec<_> = head.iter().map(|v| exact(*v)).collect();
            for i in 0..half {
                let at = (self.positions[token] as usize * half + i) * 2;
                let [cos, sin] = [0, 1].map(|n| f64::from(self.table[at + n]));
                let at = p.first as usize + i;
                let (a, b) = (f64::from(head[at]), f64::from(head[at + half]));
                out[at] = Wanted { value: a * cos - b * sin, within: ROPE_TOLERANCE };
                out[at + half] = Wanted { value: b * cos + a * sin, within: ROPE_TOLERANCE };
            }
            out
        };
        let mut q: Vec<_> = self.q.iter().map(|v| exact(*v)).collect();
        let untouched = vec![exact(UNTOUCHED); self.cache_rows * dim];
        let (mut k, mut v) = (untouched.clone(), untouched);
        for t in 0..p.tokens as usize {
            for head in 0..p.heads as usize {
                let at = t * self.q_stride + head * dim;
                q[at..at + dim].copy_from_slice(&rotated(&self.q[at..at + dim], t));
            }
            for kv in 0..p.kv_heads as usize {
                let from = t * self.kv_stride + kv * dim;
                let (block, offset) = (self.slots[t] / p.block_size, self.slots[t] % p.block_size);
                let row = (block * p.kv_heads + kv as u32) * p.block_size + offset;
                let to = row as usize * dim;
                k[to..to + dim].copy_from_slice(&rotated(&self.k[from..from + dim], t));
                for (v, value) in v[to..to + dim].iter_mut().zip(&self.v[from..]) {
                    *v = exact(*value);
                }
            }
        }
        [q, k, v]
    }

    /// q, then both caches as words, which were `UNTOUCHED` before.
    fn run(&self, kv: KvType, lab: &mut Lab) -> (Vec<f32>, [Vec<u32>; 2]) {
        let tiles = self.cache_rows as u32 / self.params.block_size;
        let cache = vec![UNTOUCHED.to_bits(); self.form(kv).words(tiles)];
        let meta = [&[u32::MAX; 2][..], &self.positions, &self.slots].concat();
        let (q, k, v) = (&self.q, &self.k, &self.v);
        let x = side_by_side([(v, self.kv_stride), (q, self.q_stride), (k, self.kv_stride)]);
        let rope = RopeKv {
            params: self.params,
            kv,
            x: lab.floats(&x),
            table: lab.floats(&self.table),
            meta: lab.words(&meta),
            k_cache: lab.words(&cache),
            v_cache: lab.words(&cache),
        };
        let mut recording = Recording::default();
        rope.record(&lab.facts, &mut recording);
        let mut out = lab.run(recording, &[rope.x, rope.k_cache, rope.v_cache]).into_iter();
        let rows = out.next().expect("x");
        let rows = rows.chunks(self.params.x_stride as usize);
        let q = rows.flat_map(|row| row[self.kv_stride..][..self.q_stride].to_vec()).collect();
        let caches = out.map(|c| c.into_iter().map(f32::to_bits).collect()).collect::<Vec<_>>();
        (q, caches.try_into().expect("two caches"))
    }

    fn form(&self, kv: KvType) -> Form {
        let RopeKvParams { block_size, head_dim, .. } = self.params;
        Form { kv, block_size, head_dim }
    }

    /// (tile, offset) of every row that is written.
    fn rows(&self) -> impl Iterator<Item = (u32, u32)> {
        let p = self.params;
        (0..p.tokens as usize).flat_map(move |t| {
            let (block, offset) = (self.slots[t] / p.block_size, self.slots[t] % p.block_size);
            (0..p.kv_heads).map(move |kv| (block * p.kv_heads + kv, offset))
        })
    }
}

fn shapes() -> Vec<(u32, u32)> {
    let mut shapes: Vec<(u32, u32)> = HEAD_DIMS.into_iter().map(|dim| (dim, dim)).collect();
    shapes.extend([(64, 32), (80, 16), (96, 8), (40, 24), (16, 0)]);
    shapes
}

pub fn rope_kv(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (index, (head_dim, rotary)) in shapes().into_iter().enumerate() {
        for (turn, tokens) in TOKENS.into_iter().enumerate() {
            let block_size = [16, 32][(index + turn) % 2];
            let rope = Rope::new(tokens, head_dim, rotary, block_size, &mut draws);
            let (q, [k, v]) = rope.run(KvType::F32, &mut lab);
            let got = [q, bytemuck::cast_vec(k), bytemuck::cast_vec(v)];
            for ((got, wanted), name) in got.iter().zip(rope.wanted()).zip(["q", "k", "v"]) {
                let what = format!(
                    "{name} of {tokens} tokens, head {head_dim}, rotary {rotary}, \
                     blocks of {block_size}, seed {SEED:#x}"
                );
                compare(got, &wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
                let mut bad = got.clone();
                bad[head_dim as usize - 1] += 1e-6;
                assert!(compare(&bad, &wanted).is_err(), "a planted fault in {what}");
            }
            lab.clear();
        }
    }
}

/// Where keys and values are one row, K is what it was and V is left alone.
pub fn keys_alone(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (kv, head_dim) in KvType::ALL.into_iter().flat_map(|kv| [(kv, 48), (kv, 576)]) {
        let mut rope = Rope::new(8, head_dim, 16, 16, &mut draws);
        let (q, [k, v]) = rope.run(kv, &mut lab);
        rope.params.values = 0;
        let (q_alone, [k_alone, v_alone]) = rope.run(kv, &mut lab);
        same_bits(&q, &q_alone).unwrap_or_else(|e| panic!("q: {e}"));
        assert!(k == k_alone && v != v_alone, "{kv} of {head_dim}");
        assert!(v_alone.iter().all(|word| *word == UNTOUCHED.to_bits()), "{kv} of {head_dim}");
        lab.clear();
    }
}

/// Every row of a packed cache against the row that f32 stores, by `check` (stored, exact);
/// words that no row owns stay.
fn packed(on: On, kv: KvType, change: fn(&mut Rope), check: impl Fn(&[f32], &[f32])) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (index, (head_dim, rotary)) in shapes().into_iter().enumerate() {
        let block_size = [16, 32][index % 2];
        let mut rope = Rope::new([1, 7, 9][index % 3], head_dim, rotary, block_size, &mut draws);
        change(&mut rope);
        let (plain_q, plain) = rope.run(KvType::F32, &mut lab);
        let (q, caches) = rope.run(kv, &mut lab);
        lab.clear();
        same_bits(&plain_q, &q).unwrap_or_else(|e| panic!("q: {e}"));
        let (form, exact) = (rope.form(kv), rope.form(KvType::F32));
        for (mut cache, plain) in caches.into_iter().zip(plain) {
            for (tile, offset) in rope.rows() {
                let row = exact.read(&plain, tile, offset);
                check(&form.read(&cache, tile, offset), &row);
                let (at, words, scale) = form.place(tile, offset);
                (at..at + words).chain(scale).for_each(|at| cache[at] = UNTOUCHED.to_bits());
            }
            assert!(cache.iter().all(|word| *word == UNTOUCHED.to_bits()), "another row changed");
        }
    }
}

/// Rounded to nearest even on every device; what f16 cannot hold is no number afterwards.
pub fn f16(on: On) {
    let specials = |rope: &mut Rope| {
        let tiny = 2f32.powi(-24);
        let values = [
            65504.0,
            65519.9,
            65520.0,
            -70000.0,
            f32::INFINITY,
            f32::NAN,
            -0.0,
            tiny,
            tiny / 2.0,
            tiny * 1.5,
            tiny * 2.5,
            -tiny * 3.5,
            2f32.powi(-14),
            6.1e-5,
            2049.0,
            2051.0,
            1.000_488_3,
        ];
        rope.v.iter_mut().zip(values).for_each(|(v, special)| *v = special);
    };
    packed(on, KvType::F16, specials, |stored, exact| {
        for (stored, exact) in stored.iter().zip(exact) {
            let fits = exact.abs() < 65520.0;
            let wanted = if fits { half::f16::from_f32(*exact).to_f32() } else { f32::NAN };
            let same = stored.to_bits() == wanted.to_bits() || stored.is_nan() && wanted.is_nan();
            assert!(same, "{exact} is stored as {stored}, not {wanted}");
        }
    });
}

/// Within half a step of the row's scale; a row with an infinity or a NaN is all NaN.
pub fn q8(on: On) {
    let specials = |rope: &mut Rope| {
        rope.v[1] = f32::NAN;
        rope.v[rope.params.head_dim as usize + 2] = f32::NEG_INFINITY;
        let second = rope.kv_stride;
        if rope.params.tokens > 1 {
            rope.v[second..second + rope.params.head_dim as usize].fill(0.0);
        }
    };
    packed(on, KvType::Q8, specials, |stored, exact| {
        let top = exact.iter().fold(0f32, |top, v| top.max(v.abs()));
        for (stored, value) in stored.iter().zip(exact) {
            if exact.iter().all(|v| v.is_finite()) {
                let step = top / 127.0;
                assert!(
                    (stored - value).abs() <= step * 0.5001,
                    "{value} is {stored}, step {step}"
                );
            } else {
                assert!(stored.is_nan(), "{stored}");
            }
        }
        let kept = stored.iter().fold(0f32, |top, v| top.max(v.abs()));
        assert!((kept - top).abs() <= top * 1e-6 || kept == 0.0, "{kept} of {top}");
    });
}
