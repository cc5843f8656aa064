//! `attn_paged` and `attn_merge`: decode rows and chunks of many sequences in one launch, against
//! f64, for every head size and several group sizes. Every cache slot that no sequence wrote
//! holds NaN, and entries of block tables that a window has left behind name a block of NaN, or
//! none at all. However the rows are cut into work items, the bits stay.

use super::kv::Form;
use super::lab::{Draws, Lab, Wanted, compare, same_bits};
use crate::support::On;
use std::cell::RefCell;
use std::collections::BTreeSet;
use tilewright::base::{Invariance, KvType};
use tilewright::kernels::attn::{Attn, AttnRow, AttnWork, Heads, first_key, partial_values};
use tilewright::record::{DeviceKind, Facts, Recording};

/// Allowed error of an output whose values lie in [-1, 1].
const ATTN_TOLERANCE: f64 = 5e-6;

const SEED: u64 = 0x6174_746e;
const UNTOUCHED: f32 = 7.5;
/// (position of the first token, tokens): decode rows, then chunks.
const ROWS: [(u32, u32); 14] = [
    (0, 1),
    (62, 1),
    (63, 1),
    (64, 1),
    (254, 1),
    (255, 1),
    (256, 1),
    (599, 1),
    (0, 2),
    (62, 3),
    (0, 7),
    (250, 8),
    (60, 9),
    (240, 33),
];
/// (query heads, kv heads): groups of 1, 3, 4, 8 and of more heads than an item carries.
const HEADS: [(u32, u32); 5] = [(2, 2), (6, 2), (4, 1), (8, 1), (16, 1)];

/// Keys and values of one sequence, `[position][kv_head][head_dim]`.
struct Sequence {
    k: Vec<f32>,
    v: Vec<f32>,
}

struct World {
    heads: Heads,
    scale: f32,
    window: Option<u32>,
    cap: Option<f32>,
    kv: KvType,
    sequences: Vec<Sequence>,
    q: Vec<f32>,
    wanted: Vec<Wanted>,
}

/// How the tokens are cut into rows of the work list, and whether splits get items of their own.
#[derive(Clone, Copy)]
struct Cut {
    len: u32,
    partials_max: u32,
    block_size: u32,
}

const WHOLE: Cut = Cut { len: u32::MAX, partials_max: 0, block_size: 16 };
const CUTS: [(&str, Cut); 5] = [
    ("whole chunks, splits in one item", WHOLE),
    (
        "whole chunks, splits apart, blocks of 32",
        Cut { partials_max: 1 << 20, block_size: 32, ..WHOLE },
    ),
    ("single tokens, splits apart", Cut { len: 1, partials_max: 1 << 20, ..WHOLE }),
    ("chunks of 5, splits in one item, blocks of 32", Cut { len: 5, block_size: 32, ..WHOLE }),
    ("few partial slots", Cut { partials_max: 40, ..WHOLE }),
];

impl World {
    fn new(head_dim: u32, heads: (u32, u32), draws: &mut Draws) -> Self {
        Self::with(head_dim, heads, None, KvType::F32, draws)
    }

    fn with(
        head_dim: u32,
        (heads, kv_heads): (u32, u32),
        window: Option<u32>,
        kv: KvType,
        draws: &mut Draws,
    ) -> Self {
        let tokens: u32 = ROWS.iter().map(|r| r.1).sum();
        let mut sequences = Vec::new();
        for (start, len) in ROWS {
            let count = ((start + len) * kv_heads * head_dim) as usize;
            let form = Form { kv, block_size: 1, head_dim };
            let mut values = || {
                let values = draws.values(count);
                values.chunks(head_dim as usize).flat_map(|row| form.stored(row)).collect()
            };
            sequences.push(Sequence { k: values(), v: values() });
        }
        let mut q = draws.values((tokens * (heads * head_dim + 4)) as usize);
        for q in q.chunks_mut((heads * head_dim + 4) as usize) {
            q[(heads * head_dim) as usize..].fill(f32::NAN);
        }
        let heads = Heads { heads, kv_heads, head_dim };
        // Scores of some units each way: neither flat nor one key only.
        let scale = 6.0 / (head_dim as f32).sqrt();
        let cap = (window == Some(300)).then_some(3.0);
        let mut world = Self { heads, scale, window, cap, kv, sequences, q, wanted: Vec::new() };
        world.wanted = world.reference();
        world
    }

    fn stride(&self) -> usize {
        (self.heads.heads * self.heads.head_dim + 4) as usize
    }

    fn reference(&self) -> Vec<Wanted> {
        let dim = self.heads.head_dim as usize;
        let group = self.heads.heads / self.heads.kv_heads;
        let untouched = Wanted { value: f64::from(UNTOUCHED), within: 0.0 };
        let mut out = Vec::new();
        for ((start, len), sequence) in ROWS.into_iter().zip(&self.sequences) {
            for position in start..start + len {
                let q = &self.q[out.len()..];
                for head in 0..self.heads.heads {
                    let q = &q[head as usize * dim..][..dim];
                    let values = self.attend(q, sequence, head / group, position);
                    let wanted = |value: f64| Wanted { value, within: ATTN_TOLERANCE };
                    out.extend(values.into_iter().map(wanted));
                }
                out.extend([untouched; 4]);
            }
        }
        out
    }

    fn attend(&self, q: &[f32], sequence: &Sequence, kv: u32, position: u32) -> Vec<f64> {
        let dim = self.heads.head_dim as usize;
        let row = |of: &[f32], key: u32| -> Vec<f64> {
            let at = (key * self.heads.kv_heads + kv) as usize * dim;
            of[at..at + dim].iter().map(|v| f64::from(*v)).collect()
        };
        let score = |key| {
            let dot: f64 =
                q.iter().zip(row(&sequence.k, key)).map(|(q, k)| f64::from(*q) * k).sum();
            let score = dot * f64::from(self.scale);
            self.cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
        };
        let first = (0..=position).find(|key| self.window.is_none_or(|w| position - key < w));
        let first = first.expect("a query sees itself");
        let scores: Vec<f64> = (first..=position).map(score).collect();
        let high = scores.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - high).exp()).sum();
        let mut out = vec![0.0; dim];
        for (key, score) in (first..).zip(scores) {
            let weight = (score - high).exp() / sum;
            out.iter_mut().zip(row(&sequence.v, key)).for_each(|(o, v)| *o += weight * v);
        }
        out
    }

    /// The cache with blocks in random order, and each sequence's table with a block of NaN behind.
    fn cache(&self, block_size: u32) -> ([Vec<u32>; 2], Vec<Vec<u32>>) {
        let Heads { kv_heads, head_dim, .. } = self.heads;
        let count = |(start, len): (u32, u32)| (start + len).div_ceil(block_size);
        let blocks: u32 = ROWS.into_iter().map(count).sum::<u32>() + 3;
        let mut free = Draws::new(SEED ^ u64::from(block_size)).order(blocks);
        let poison = free.pop().expect("a block");
        let form = Form { kv: self.kv, block_size, head_dim };
        let empty = vec![form.poison(); form.words(blocks * kv_heads)];
        let mut caches = [empty.clone(), empty];
        let mut tables = Vec::new();
        for ((start, len), sequence) in ROWS.into_iter().zip(&self.sequences) {
            let mut table = free.split_off(free.len() - count((start, len)) as usize);
            for key in 0..start + len {
                for kv in 0..kv_heads {
                    let block = table[(key / block_size) as usize];
                    let from = ((key * kv_heads + kv) * head_dim) as usize;
                    for (cache, of) in caches.iter_mut().zip([&sequence.k, &sequence.v]) {
                        let row = &of[from..from + head_dim as usize];
                        form.write(cache, block * kv_heads + kv, key % block_size, row);
                    }
                }
            }
            table.push(poison);
            tables.push(table);
        }
        (caches, tables)
    }

    /// Runs the batch; `change` may spoil the work list.
    fn run(
        &self,
        cut: Cut,
        facts: &Facts,
        change: impl Fn(&mut AttnWork),
        lab: &mut Lab,
    ) -> Vec<f32> {
        let ([k, v], tables) = self.cache(cut.block_size);
        let (mut meta, mut rows, mut first) = (vec![u32::MAX; 7], Vec::new(), 0);
        let poison = *tables[0].last().expect("the block of NaN");
        let expired = if lab.on == On::Cpu { u32::MAX } else { poison };
        for ((start, len), mut table) in ROWS.into_iter().zip(tables) {
            for at in (0..len).step_by(cut.len.min(len) as usize) {
                let len = cut.len.min(len - at);
                let past = first_key(start + at, self.window) / cut.block_size;
                table[..past as usize].fill(expired);
                let table_at = meta.len() as u32;
                meta.extend(&table);
                rows.push(AttnRow { first: first + at, len, start: start + at, table_at });
            }
            first += len;
        }
        let mut work = AttnWork::default();
        work.fill(&rows, self.heads, self.window, cut.partials_max, facts);
        change(&mut work);
        let items_at = meta.len() as u32;
        meta.extend(work.items.iter().flatten());
        let merges_at = meta.len() as u32;
        meta.extend(work.merges.iter().flatten());
        let mut out = vec![f32::NAN; self.q.len()];
        let heads = self.heads.heads * self.heads.head_dim;
        out.chunks_mut(self.stride()).for_each(|row| row[heads as usize..].fill(UNTOUCHED));
        let partials = work.partials.max(1) * partial_values(self.heads.head_dim);
        let wide: Vec<_> =
            self.q.chunks(self.stride()).flat_map(|row| [row, &[f32::NAN; 8]].concat()).collect();
        let attn = Attn {
            work: &work,
            items_at,
            merges_at,
            heads: self.heads,
            kv: self.kv,
            block_size: cut.block_size,
            scale: self.scale,
            window: self.window,
            cap: self.cap,
            q: lab.floats(&wide),
            q_stride: self.stride() as u32 + 8,
            k_cache: lab.words(&k),
            v_cache: lab.words(&v),
            meta: lab.words(&meta),
            partial: lab.floats(&vec![f32::NAN; partials as usize]),
            out: lab.floats(&out),
            out_stride: self.stride() as u32,
        };
        let mut recording = Recording::default();
        attn.record(facts, &mut recording);
        let out = lab.run(recording, &[attn.out]).remove(0);
        lab.clear();
        out
    }
}

/// Facts under which `record` takes each variant of attn_paged that the device can run.
fn widths(lab: &Lab) -> Vec<(&'static str, Facts)> {
    let facts = |kind| Facts { kind, lanes: 8, ..lab.facts.clone() };
    let mut out = vec![("plain", facts(DeviceKind::Discrete))];
    // The twin is the same for both.
    if lab.on == On::Gpu && lab.facts.lanes >= 8 {
        out.push(("sub", facts(DeviceKind::Software)));
    }
    out
}

pub fn check(on: On, head_dim: u32) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for heads in HEADS {
        let world = World::new(head_dim, heads, &mut draws);
        for (width, facts) in widths(&lab) {
            let mut first: Option<Vec<f32>> = None;
            // Every cut for one group, which fills no item; the others are slow on software.
            let cuts = if heads == HEADS[1] { &CUTS[..] } else { &CUTS[..2] };
            for (name, cut) in cuts {
                let what = format!("{width}, heads {heads:?}, {name}, seed {SEED:#x}");
                let out = world.run(*cut, &facts, |_| {}, &mut lab);
                compare(&out, &world.wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
                let first = first.get_or_insert_with(|| out.clone());
                same_bits(first, &out).unwrap_or_else(|e| panic!("{what} changes bits: {e}"));
            }
        }
    }
}

/// Windows narrower than a tile, and wider than a split.
pub fn windows(on: On, head_dim: u32) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for window in [17, 300] {
        let world = World::with(head_dim, HEADS[1], Some(window), KvType::F32, &mut draws);
        for (width, facts) in widths(&lab) {
            let mut first: Option<Vec<f32>> = None;
            for (name, cut) in &CUTS[2..4] {
                let what = format!("{width}, window {window}, {name}, seed {SEED:#x}");
                let out = world.run(*cut, &facts, |_| {}, &mut lab);
                compare(&out, &world.wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
                let first = first.get_or_insert_with(|| out.clone());
                same_bits(first, &out).unwrap_or_else(|e| panic!("{what} changes bits: {e}"));
            }
        }
        // Splits that no row sees may as well be computed.
        let list_all = |work: &mut AttnWork| {
            work.items.iter_mut().filter(|i| i[6] == u32::MAX).for_each(|i| i[4] = 0);
        };
        let facts = lab.facts.clone();
        let all = world.run(WHOLE, &facts, list_all, &mut lab);
        let clipped = world.run(WHOLE, &facts, |_| {}, &mut lab);
        same_bits(&all, &clipped).unwrap_or_else(|e| panic!("window {window}, {e}"));
    }
}

/// The packed types, through a window and without.
pub fn packed(on: On, head_dim: u32) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (kv, window, cuts) in [(KvType::F16, None, 1..3), (KvType::Q8, Some(70), 1..4)] {
        let world = World::with(head_dim, HEADS[1], window, kv, &mut draws);
        for (width, facts) in widths(&lab) {
            let mut first: Option<Vec<f32>> = None;
            for (name, cut) in &CUTS[cuts.clone()] {
                let what = format!("{kv}, {width}, {name}, seed {SEED:#x}");
                let out = world.run(*cut, &facts, |_| {}, &mut lab);
                compare(&out, &world.wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
                let first = first.get_or_insert_with(|| out.clone());
                same_bits(first, &out).unwrap_or_else(|e| panic!("{what} changes bits: {e}"));
            }
        }
    }
}

/// Where numbers may depend on company, splits are of other lengths, and as right.
pub fn splits(on: On, head_dim: u32) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let lengths = RefCell::new(BTreeSet::new());
    for window in [None, Some(300)] {
        let world = World::with(head_dim, HEADS[1], window, KvType::F32, &mut draws);
        for (width, facts) in widths(&lab) {
            let facts = Facts { invariance: Invariance::Off, ..facts };
            for (name, cut) in CUTS {
                let seen = |work: &mut AttnWork| {
                    lengths.borrow_mut().insert(work.split);
                };
                let out = world.run(cut, &facts, seen, &mut lab);
                let what = format!("{width}, window {window:?}, {name}, seed {SEED:#x}");
                compare(&out, &world.wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
    let lengths = lengths.into_inner();
    assert!(lengths.contains(&64) && lengths.last() > Some(&256), "{lengths:?}");
}

/// Work lists and scales with a planted fault do not pass for right.
pub fn faults_are_seen() {
    let mut lab = Lab::open(On::Cpu);
    let mut draws = Draws::new(SEED);
    let mut world = World::new(16, (6, 2), &mut draws);
    let facts = lab.facts.clone();
    let good = world.run(WHOLE, &facts, |_| {}, &mut lab);
    assert_eq!(compare(&good, &world.wanted), Ok(()));
    type Spoiler = fn(&mut AttnWork);
    let spoilers: [(&str, Spoiler); 5] = [
        ("a key too few", |work| work.items[7][2] -= 1),
        ("the first split is left out", |work| work.items[7][4] = 1),
        ("the last split is left out", |work| work.items[7][5] -= 1),
        ("another sequence's table", |work| work.items[3][3] = work.items[2][3]),
        ("an item is missing", |work| work.items.truncate(20)),
    ];
    for (name, spoil) in spoilers {
        let bad = world.run(WHOLE, &facts, spoil, &mut lab);
        assert!(compare(&bad, &world.wanted).is_err(), "{name}");
    }
    let (_, apart) = CUTS[1];
    let bad = world.run(apart, &facts, |work| work.merges[0][2] -= 1, &mut lab);
    assert!(compare(&bad, &world.wanted).is_err(), "a split is not merged");
    // One key more is a slot that nobody wrote: NaN must come through.
    let bad = world.run(WHOLE, &facts, |work| work.items[0][2] += 1, &mut lab);
    assert!(bad[..16].iter().all(|v| v.is_nan()), "a foreign slot was read unnoticed");
    let narrow = World::with(16, (6, 2), Some(17), KvType::F32, &mut draws);
    let mut wider = World { window: Some(18), ..narrow };
    let bad = wider.run(WHOLE, &facts, |_| {}, &mut lab);
    assert!(compare(&bad, &wider.wanted).is_err(), "a key too many in the window");
    wider.window = Some(16);
    let bad = wider.run(WHOLE, &facts, |_| {}, &mut lab);
    assert!(compare(&bad, &wider.wanted).is_err(), "a key too few in the window");
    wider.window = Some(17);
    wider.cap = Some(20.0);
    let bad = wider.run(WHOLE, &facts, |_| {}, &mut lab);
    assert!(compare(&bad, &wider.wanted).is_err(), "a cap that is not there");
    world.scale *= 1.001;
    let bad = world.run(WHOLE, &facts, |work| work.merges.clear(), &mut lab);
    assert!(compare(&bad, &world.wanted).is_err(), "another scale");
}
