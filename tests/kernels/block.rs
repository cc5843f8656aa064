//! `norm_rms`, `norm_qk` and `act_glu` against f64.

use super::lab::{Draws, Lab, Wanted, compare, same_bits, side_by_side};
use super::packed;
use crate::support::On;
use tilewright::kernels::block::{ActGlu, Gate, NormParams, NormQkParams, SoftCap};
use tilewright::kernels::mul::packed_stride;
use tilewright::kernels::variants::{self, Variant};
use tilewright::record::Recording;

/// Allowed relative error of a normed value: its sum, a root, two products.
const NORM_TOLERANCE: f64 = 2e-6;
/// Allowed error of a capped value, as a part of the cap.
const CAP_TOLERANCE: f64 = 1e-6;
/// Allowed relative error of silu: WGSL allows exp a few units in the last place per unit of |x|.
const GLU_TOLERANCE: f64 = 1e-5;

const SEED: u64 = 0x626c_6f63;
const TOKENS: [u32; 7] = [1, 2, 3, 7, 8, 9, 33];
const UNTOUCHED: f32 = 7.5;

fn exact(value: f32) -> Wanted {
    Wanted { value: f64::from(value), within: 0.0 }
}

struct Norm {
    params: NormParams,
    /// Row of x that each row of y takes.
    sources: Vec<u32>,
    x: Vec<f32>,
    w: Vec<f32>,
}

impl Norm {
    fn new(dim: u32, rows: u32, gather: bool, draws: &mut Draws) -> Self {
        let (x_stride, y_stride) = (dim + 8, dim + 4);
        let mut x = draws.values((x_stride * 33) as usize);
        // Rows of very different size.
        for (row, x) in x.chunks_mut(x_stride as usize).enumerate() {
            x.iter_mut().for_each(|x| *x *= 10f32.powi(row as i32 % 9 - 3));
            x[dim as usize..].fill(f32::NAN);
        }
        let sources = match gather {
            true => (0..rows).map(|_| draws.below(33)).collect(),
            false => (0..rows).collect(),
        };
        let w = draws.values(dim as usize);
        let (eps, offset) = (1e-5, if gather { 1.0 } else { 0.0 });
        let (gather, rows_at, grid_x) = (u32::from(gather), 3, rows);
        let accumulate = u32::from(rows.is_multiple_of(3));
        let params = NormParams {
            rows,
            dim,
            x_stride,
            y_stride,
            gather,
            rows_at,
            eps,
            offset,
            accumulate,
            grid_x,
        };
        Self { params, sources, x, w }
    }

    fn wanted(&self) -> Vec<Wanted> {
        let (p, dim) = (self.params, self.params.dim as usize);
        let mut out = Vec::new();
        for source in &self.sources {
            let x = &self.x[(source * p.x_stride) as usize..][..dim];
            let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / dim as f64;
            let scale = 1.0 / (mean + f64::from(p.eps)).sqrt();
            out.extend(x.iter().zip(&self.w).map(|(x, w)| {
                let value = f64::from(*x) * scale * (f64::from(*w) + f64::from(p.offset));
                let within = f64::from(*x).abs() * scale * NORM_TOLERANCE;
                // Adding to UNTOUCHED rounds once more, by a part of the larger of the two.
                let (there, rounding) = match p.accumulate {
                    1 => (f64::from(UNTOUCHED), (value.abs() + 7.5) * f64::from(f32::EPSILON)),
                    _ => (0.0, 0.0),
                };
                Wanted { value: there + value, within: within + rounding }
            }));
            out.resize(out.len() + 4, exact(UNTOUCHED));
        }
        out
    }

    fn run(&self, variant: &str, rows: std::ops::Range<usize>, lab: &mut Lab) -> Vec<f32> {
        let count = rows.len();
        let mut params = self.params;
        (params.rows, params.grid_x) = (count as u32, (count as u32).div_ceil(2));
        let (x, w) = (lab.floats(&self.x), lab.floats(&self.w));
        let skipped = if params.gather == 1 { 0 } else { rows.start };
        let from = skipped * params.x_stride as usize;
        let x = if from == 0 { x } else { lab.floats(&self.x[from..]) };
        let meta = lab.words(&[&[u32::MAX; 3][..], &self.sources[rows]].concat());
        let y = lab.floats(&vec![UNTOUCHED; count * params.y_stride as usize]);
        let mut recording = Recording::default();
        let id = variants::variant(variant).expect("a row of the table");
        let grid = [params.grid_x, 2, 1];
        recording.dispatch(id, &params, vec![x, w, meta, y], grid);
        lab.run(recording, &[y]).remove(0)
    }
}

pub fn norm_rms(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for dim in [4, 36, 132, 576, 1028] {
        for (index, rows) in TOKENS.into_iter().enumerate() {
            let norm = Norm::new(dim, rows, index % 2 == 1, &mut draws);
            for variant in rows_variants(&lab, "norm_rows") {
                let what = format!("{} of {rows} x {dim}, seed {SEED:#x}", variant.name);
                let y = norm.run(&variant.name, 0..rows as usize, &mut lab);
                compare(&y, &norm.wanted()).unwrap_or_else(|e| panic!("{what}: {e}"));
                let last = rows as usize - 1;
                let alone = norm.run(&variant.name, last..rows as usize, &mut lab);
                let stride = norm.params.y_stride as usize;
                same_bits(&alone, &y[last * stride..])
                    .unwrap_or_else(|e| panic!("{what}, last row alone: {e}"));
                let (mut bad, wanted) = (y, norm.wanted());
                bad[last * stride] += 4.0 * wanted[last * stride].within as f32;
                assert!(compare(&bad, &wanted).is_err(), "a planted fault in {what}");
            }
            lab.clear();
        }
    }
}

fn rows_variants(lab: &Lab, end: &str) -> Vec<&'static Variant> {
    let mut all = lab.variants("norm_rms");
    all.retain(|v| v.imports["end"] == end);
    assert_eq!(all.len(), 2, "variants that end with {end}");
    all
}

/// A norm that packs its rows leaves what `mul_pack` makes of the rows of one that does not.
pub fn norm_bytes(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for dim in [4u32, 36, 132, 576, 1028] {
        for (index, rows) in TOKENS.into_iter().enumerate() {
            let mut norm = Norm::new(dim, rows, index % 2 == 1, &mut draws);
            norm.params.accumulate = 0;
            let (stride, words) = (norm.params.y_stride as usize, packed_stride(dim) as usize);
            let cols = dim.next_multiple_of(32);
            for variant in rows_variants(&lab, "norm_bytes") {
                let what = format!("{} of {rows} x {dim}, seed {SEED:#x}", variant.name);
                norm.params.y_stride = stride as u32;
                let y = norm.run(&variant.name.replace(".int8", ""), 0..rows as usize, &mut lab);
                let mut x = vec![0.0; (rows * cols) as usize];
                for (x, y) in x.chunks_exact_mut(cols as usize).zip(y.chunks_exact(stride)) {
                    x[..dim as usize].copy_from_slice(&y[..dim as usize]);
                }
                let wanted = packed::run(&x, rows, cols, cols, &mut lab);
                norm.params.y_stride = words as u32;
                let found = norm.run(&variant.name, 0..rows as usize, &mut lab);
                let alone = norm.run(&variant.name, rows as usize - 1..rows as usize, &mut lab);
                let used = cols as usize / 32 * 12;
                for (row, found) in found.chunks_exact(words).enumerate() {
                    let bits = |v: &f32| v.to_bits();
                    let (used, rest) = found.split_at(used);
                    let wanted = &wanted[row * words..][..used.len()];
                    let used: Vec<_> = used.iter().map(bits).collect();
                    assert_eq!(used, wanted, "{what}, row {row}");
                    assert!(rest.iter().all(|v| *v == UNTOUCHED), "{what}: behind row {row}");
                }
                same_bits(&alone, &found[(rows as usize - 1) * words..])
                    .unwrap_or_else(|e| panic!("{what}, last row alone: {e}"));
            }
            lab.clear();
        }
    }
}

/// Groups of one matrix, normed: (values, groups, dim, stride, weights).
struct Groups {
    x: Vec<f32>,
    groups: usize,
    dim: usize,
    stride: usize,
    w: Vec<f32>,
}

impl Groups {
    fn new(tokens: usize, groups: usize, dim: usize, draws: &mut Draws) -> Self {
        let stride = groups * dim + 8;
        let mut x = draws.values(tokens * stride);
        for (n, group) in x.chunks_mut(dim).enumerate() {
            group.iter_mut().for_each(|x| *x *= 10f32.powi(n as i32 % 9 - 3));
        }
        Self { x, groups, dim, stride, w: draws.values(dim) }
    }

    fn wanted(&self, eps: f32, offset: f32) -> Vec<Wanted> {
        let mut out: Vec<_> = self.x.iter().map(|x| exact(*x)).collect();
        for (row, x) in self.x.chunks(self.stride).enumerate() {
            for (group, x) in x[..self.groups * self.dim].chunks(self.dim).enumerate() {
                let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
                let scale = 1.0 / (mean + f64::from(eps)).sqrt();
                for (i, (x, w)) in x.iter().zip(&self.w).enumerate() {
                    let value = f64::from(*x) * scale * (f64::from(*w) + f64::from(offset));
                    let within = f64::from(*x).abs() * scale * NORM_TOLERANCE;
                    out[row * self.stride + group * self.dim + i] = Wanted { value, within };
                }
            }
        }
        out
    }
}

pub fn norm_qk(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    // Heads of several sizes, then whole rows.
    for (q_groups, k_groups, q_dim, k_dim) in
        [(4, 2, 16, 16), (3, 1, 36, 36), (16, 8, 128, 128), (1, 1, 576, 192), (2, 1, 256, 256)]
    {
        for tokens in [1, 3, 9] {
            let q = Groups::new(tokens, q_groups, q_dim, &mut draws);
            let k = Groups::new(tokens, k_groups, k_dim, &mut draws);
            let (eps, offset) = (1e-5, if tokens == 3 { 1.0 } else { 0.0 });
            let ids = tokens * (q_groups + k_groups);
            let params = NormQkParams {
                tokens: tokens as u32,
                x_stride: (q.stride + k.stride) as u32,
                q_groups: q_groups as u32,
                q_dim: q_dim as u32,
                k_at: q.stride as u32,
                k_groups: k_groups as u32,
                k_dim: k_dim as u32,
                eps,
                offset,
                grid_x: ids.div_ceil(2) as u32,
            };
            let wanted = [&q, &k].map(|groups| groups.wanted(eps, offset));
            let wanted = side_by_side([(&wanted[0], q.stride), (&wanted[1], k.stride)]);
            for variant in lab.variants("norm_qk") {
                let [wq, wk] = [&q.w, &k.w].map(|w| lab.floats(w));
                let x = lab.floats(&side_by_side([(&q.x, q.stride), (&k.x, k.stride)]));
                let mut recording = Recording::default();
                let id = variants::variant(&variant.name).expect("a row of the table");
                let grid = [params.grid_x, 2, 1];
                recording.dispatch(id, &params, vec![wq, wk, x], grid);
                let got = lab.run(recording, &[x]).remove(0);
                let what = format!("{}, {tokens} tokens, seed {SEED:#x}", variant.name);
                compare(&got, &wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
                for at in [q.dim - 1, q.stride + k.dim - 1] {
                    let mut bad = got.clone();
                    bad[at] += 3.0 * wanted[at].within as f32 + 1e-9;
                    assert!(compare(&bad, &wanted).is_err(), "a planted fault in {what}");
                }
                lab.clear();
            }
        }
    }
}

fn gate(act: Gate, g: f64) -> f64 {
    match act {
        Gate::Silu => g / (1.0 + (-g).exp()),
        Gate::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044_715 * g.powi(3));
            // 1 + tanh(u), which would lose all digits far below 0.
            let square = (2.0 * u.min(0.0)).exp();
            0.5 * g * if u < 0.0 { 2.0 * square / (1.0 + square) } else { 1.0 + u.tanh() }
        }
    }
}

pub fn soft_cap(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (cap, count) in [(30.0f32, 1usize), (30.0, 65), (50.0, 1000)] {
        let mut x: Vec<f32> = draws.values(count + 9).iter().map(|v| v * 200.0).collect();
        x.iter_mut().zip([1e30, -1e30, 0.0, -0.0, 1e-3]).for_each(|(x, far)| *x = far);
        let bound = lab.floats(&x);
        let mut recording = Recording::default();
        SoftCap { cap, count: count as u32, x: bound }.record(&lab.facts, &mut recording);
        let got = lab.run(recording, &[bound]).remove(0);
        let wide = f64::from(cap);
        let capped = |x: &f32| Wanted {
            value: wide * (f64::from(*x) / wide).tanh(),
            within: wide * CAP_TOLERANCE,
        };
        let rest = x[count..].iter().map(|x| exact(*x));
        let wanted: Vec<_> = x[..count].iter().map(capped).chain(rest).collect();
        compare(&got, &wanted).unwrap_or_else(|e| panic!("{count} values at {cap}: {e}"));
        let mut bad = got;
        bad[0] *= 1.0 + 3.0 * CAP_TOLERANCE as f32;
        assert!(compare(&bad, &wanted).is_err(), "a planted fault");
    }
}

pub fn act_glu(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (act, count) in [Gate::Silu, Gate::GeluTanh]
        .into_iter()
        .flat_map(|act| [1, 7, 63, 64, 65, 1000].map(|count| (act, count)))
    {
        let up = draws.values(count);
        let mut g: Vec<f32> = draws.values(count).iter().map(|g| g * 20.0).collect();
        // Far ends: exp overflows, the result must not.
        g.iter_mut()
            .zip([-100.0, 100.0, 0.0, -0.0, -1000.0, 7e4, -7e4])
            .for_each(|(g, far)| *g = far);
        // exp is wrong by a part of its argument, which grows with the cube for GELU.
        let wide = if act == Gate::Silu { 1.0 } else { 4.0 };
        let wanted: Vec<_> = g
            .iter()
            .zip(&up)
            .map(|(g, up)| {
                let value = gate(act, f64::from(*g)) * f64::from(*up);
                Wanted { value, within: value.abs() * GLU_TOLERANCE * wide + 1e-30 }
            })
            .chain([exact(UNTOUCHED); 9])
            .collect();
        let x = lab.floats(&[&g[..], &[f32::NAN; 5], &up].concat());
        let y = lab.floats(&vec![UNTOUCHED; count + 9]);
        let mut recording = Recording::default();
        let (rows, dim, x_stride) = (1, count as u32, 2 * count as u32 + 5);
        ActGlu { act, rows, dim, x, x_stride, up_at: dim + 5, y, y_stride: dim }
            .record(&lab.facts, &mut recording);
        let got = lab.run(recording, &[y]).remove(0);
        let what = format!("{act:?} of {count} values, seed {SEED:#x}");
        compare(&got, &wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut bad = got;
        bad[count] = 0.0;
        assert!(compare(&bad, &wanted).is_err(), "a planted fault in {what}");
    }
    // What lies between rows becomes 0, also where it was no number.
    let (rows, dim, stride) = (5usize, 33usize, 64usize);
    let mut g = vec![f32::NAN; 2 * rows * stride];
    for row in g.chunks_mut(2 * stride) {
        row[..dim].fill(1.5);
        row[stride..][..dim].fill(2.0);
    }
    let (x, y) = (lab.floats(&g), lab.floats(&vec![f32::NAN; rows * stride]));
    let mut recording = Recording::default();
    let (act, up_at) = (Gate::Silu, stride as u32);
    let (rows, dim32, x_stride, y_stride) = (rows as u32, dim as u32, 2 * up_at, up_at);
    ActGlu { act, rows, dim: dim32, x, x_stride, up_at, y, y_stride }
        .record(&lab.facts, &mut recording);
    let got = lab.run(recording, &[y]).remove(0);
    for (i, v) in got.iter().enumerate() {
        let there = i % stride < dim;
        assert!(if there { (v - 2.452_723).abs() < 1e-4 } else { *v == 0.0 }, "{i}: {v}");
    }
}
