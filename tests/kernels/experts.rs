//! `moe_route` and `moe_group` against a sort on the host, `mul_expert` in every variant against
//! f64 sums and with equal bits whatever the tile and the company, `moe_combine` against f64.

use super::lab::{Draws, Lab, Wanted, compare, same_bits};
use super::packed;
use super::weight::Weight;
use crate::support::On;
use tilewright::base::{Activations, Format};
use tilewright::kernels::experts::{
    MoeCombine, MoeRoute, MulExpertParams, MulHeadsParams, Route, Scoring,
};
use tilewright::kernels::layout;
use tilewright::kernels::mul::packed_stride;
use tilewright::kernels::variants::{self, Variant};
use tilewright::record::{Binding, Recording};

/// Allowed relative error of a weight: an exponential, a sum, two divisions.
const WEIGHT_TOLERANCE: f64 = 1e-5;
/// Allowed error of a sum of f32 products, as a part of the sum of their magnitudes.
const SUM_TOLERANCE: f64 = 1e-6;

const SEED: u64 = 0x006d_6f65;
const UNTOUCHED: f32 = 7.5;

/// Experts of each token in rank order, with their weights.
fn chosen(
    logits: &[f32],
    bias: Option<&[f32]>,
    scoring: Scoring,
    used: usize,
    normalise: bool,
    scale: f64,
) -> Vec<(u32, f64)> {
    let logits: Vec<f64> = logits.iter().map(|l| f64::from(*l)).collect();
    let high = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|l| (l - high).exp()).sum();
    let score = |l: &f64| match scoring {
        Scoring::Softmax => (l - high).exp() / total,
        Scoring::Sigmoid => 1.0 / (1.0 + (-l).exp()),
    };
    let scores: Vec<f64> = logits.iter().map(score).collect();
    let rank = |e: usize| scores[e] + bias.map_or(0.0, |b| f64::from(b[e]));
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| rank(*b).total_cmp(&rank(*a)).then(a.cmp(b)));
    order.truncate(used);
    let sum: f64 = order.iter().map(|&e| scores[e]).sum();
    let factor = scale / if normalise { sum } else { 1.0 };
    order.into_iter().map(|e| (e as u32, scores[e] * factor)).collect()
}

/// The pairs grouped by expert, and the tiles: what a step's routing must be.
fn grouped(experts_of: &[u32], experts: u32, tile: u32) -> (Vec<u32>, Vec<[u32; 3]>) {
    let (mut list, mut tiles) = (Vec::new(), Vec::new());
    for e in 0..experts {
        let first = list.len() as u32;
        list.extend((0..experts_of.len() as u32).filter(|&p| experts_of[p as usize] == e));
        let end = list.len() as u32;
        let starts = (first..end).step_by(tile as usize);
        tiles.extend(starts.map(|start| [e, start, end.min(start + tile)]));
    }
    (list, tiles)
}

pub fn routing(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (n, (experts, used)) in
        [(4u32, 2u32), (5, 5), (64, 6), (128, 8), (384, 8), (512, 32)].into_iter().enumerate()
    {
        for tokens in [1u32, 3, 33] {
            let scoring = [Scoring::Softmax, Scoring::Sigmoid][n % 2];
            let (normalise, scale) = (tokens != 3, if n == 3 { 2.5 } else { 1.0 });
            let stride = experts.next_multiple_of(32);
            // Draws have steps much wider than what rounding could reorder; ties are planted.
            let step = |v: &f32| (v * 4096.0).round() / 512.0;
            let mut logits: Vec<f32> =
                draws.values((tokens * stride) as usize).iter().map(step).collect();
            logits[1] = logits[0];
            let bias: Vec<f32> = draws.values(experts as usize).iter().map(step).collect();
            let bias = (scoring == Scoring::Sigmoid).then_some(bias);
            let route = Route { tokens, experts, used };
            let out = lab.words(&vec![u32::MAX; route.words() as usize]);
            let mut recording = Recording::default();
            MoeRoute {
                route,
                logits: lab.floats(&logits),
                stride,
                scoring,
                bias: bias.as_ref().map(|bias| lab.floats(bias)),
                normalise,
                scale,
                out,
            }
            .record(&lab.facts, &mut recording);
            let got = lab.run(recording, &[out]).remove(0);
            let got: Vec<u32> = got.iter().map(|v| v.to_bits()).collect();
            let what = format!("{used} of {experts}, {tokens} tokens, seed {SEED:#x}");
            check_route(&got, route, &what, |token| {
                let logits = &logits[(token * stride) as usize..][..experts as usize];
                let scale = f64::from(scale);
                chosen(logits, bias.as_deref(), scoring, used as usize, normalise, scale)
            });
            lab.clear();
        }
    }
}

fn check_route(got: &[u32], route: Route, what: &str, chosen: impl Fn(u32) -> Vec<(u32, f64)>) {
    let wanted: Vec<(u32, f64)> = (0..route.tokens).flat_map(chosen).collect();
    let pairs = wanted.len();
    assert_eq!(got[..pairs], wanted.iter().map(|w| w.0).collect::<Vec<_>>(), "{what}");
    let weights: Vec<f32> =
        got[route.weights_at() as usize..][..pairs].iter().map(|w| f32::from_bits(*w)).collect();
    let near: Vec<_> =
        wanted.iter().map(|w| Wanted { value: w.1, within: w.1 * WEIGHT_TOLERANCE }).collect();
    compare(&weights, &near).unwrap_or_else(|e| panic!("weights of {what}: {e}"));
    let mut bad = weights;
    bad[pairs - 1] *= 1.0 + 3.0 * WEIGHT_TOLERANCE as f32;
    assert!(compare(&bad, &near).is_err(), "a planted fault in {what}");
    let (list, tiles) = grouped(&got[..pairs], route.experts, route.tile());
    assert_eq!(got[route.list_at() as usize..][..pairs], list, "{what}");
    let at = route.tiles_at() as usize;
    assert_eq!(got[at] as usize, tiles.len(), "{what}");
    assert_eq!(got[at + 1..][..tiles.len() * 3], tiles.concat(), "{what}");
}

/// Matrices of some experts and tokens that choose among them.
struct World {
    experts: Vec<Weight>,
    /// Words, and those from row to row.
    x: Vec<u32>,
    x_stride: usize,
    experts_of: Vec<u32>,
    used: usize,
    wanted: Vec<Wanted>,
    y_stride: usize,
}

impl World {
    fn new(
        (format, taken): (Format, Activations),
        [rows, cols]: [usize; 2],
        draws: &mut Draws,
    ) -> Self {
        let (count, tokens, used) = (5, 19, 2);
        let experts: Vec<Weight> =
            (0..count).map(|_| Weight::random(format, rows, cols, draws)).collect();
        let row = cols.next_multiple_of(32);
        let mut x = vec![0.0; tokens * row];
        x.chunks_mut(row).for_each(|x| x[..cols].copy_from_slice(&draws.values(cols)));
        let mut words: Vec<u32> = x.iter().map(|x| x.to_bits()).collect();
        let mut x_stride = row;
        if taken == Activations::Int8 {
            (words, x) = packed::pack(&x, cols, row);
            x_stride = packed_stride(cols as u32) as usize;
        }
        // Expert 3 is never chosen, expert 0 by every token.
        let other = |draws: &mut Draws| [1, 2, 4][draws.below(3) as usize];
        let experts_of: Vec<u32> = (0..tokens).flat_map(|_| [0, other(draws)]).collect();
        let y_stride = rows + 5;
        let mut wanted = Vec::new();
        for (pair, expert) in experts_of.iter().enumerate() {
            let x = &x[pair / used * row..][..cols];
            for w in experts[*expert as usize].values.chunks(cols) {
                let terms: Vec<f64> =
                    x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).collect();
                let magnitude: f64 = terms.iter().map(|t| t.abs()).sum();
                let within = magnitude * SUM_TOLERANCE;
                wanted.push(Wanted { value: terms.iter().sum(), within });
            }
            let untouched = Wanted { value: f64::from(UNTOUCHED), within: 0.0 };
            wanted.resize((pair + 1) * y_stride, untouched);
        }
        Self { experts, x: words, x_stride, experts_of, used, wanted, y_stride }
    }

    /// The streams in two parts, as `variant` reads them: first expert, experts, quants, scales.
    fn parts(&self, variant: &Variant, lab: &mut Lab) -> Vec<(u32, u32, Binding, Binding)> {
        let part = |(first, count): (usize, usize)| {
            let w = &self.experts[first];
            let raw: Vec<_> = self.experts[first..first + count].iter().map(Weight::raw).collect();
            let (quants, scales) = lab.streams(w.format, [w.rows, w.cols], &raw, variant);
            (first as u32, count as u32, quants, scales)
        };
        [(0, 2), (2, 3)].map(part).to_vec()
    }

    /// All parts on one variant, for the pairs of tokens `from..`.
    fn run(&self, variant: &Variant, segments: u32, from: usize, lab: &mut Lab) -> Vec<f32> {
        let (rows, cols) = (self.experts[0].rows, self.experts[0].cols);
        let experts_of = &self.experts_of[from * self.used..];
        let tile = variant.constant("TM");
        let (list, tiles) = grouped(experts_of, self.experts.len() as u32, tile);
        let tiles_at = 3 + list.len() as u32;
        let head = [u32::MAX; 3];
        let route = [&head, &list[..], &[tiles.len() as u32], &tiles.concat()].concat();
        let x = lab.words(&self.x[from * self.x_stride..]);
        let route = lab.words(&route);
        let y = lab.floats(&vec![UNTOUCHED; experts_of.len() * self.y_stride]);
        let id = variants::variant(&variant.name).expect("a row of the table");
        let columns = match variant.constant("LANES") {
            0 => variant.constant("WG") * variant.constant("TN"),
            lanes => lanes,
        };
        let one = layout::stream_bytes(self.experts[0].format, rows as u64, cols as u64);
        let one = one.expect("small");
        let k_blocks = cols.div_ceil(32) as u32;
        let mut recording = Recording::default();
        for (first_expert, experts, quants, scales) in self.parts(variant, lab) {
            let params = MulExpertParams {
                rows: rows as u32,
                k_blocks,
                segments,
                x_stride: self.x_stride as u32,
                y_stride: self.y_stride as u32,
                x_div: self.used as u32,
                list_at: 3,
                tiles_at,
                first_expert,
                experts,
                quant_stride: (one.quants / 16) as u32,
                scale_stride: (one.scales / 4) as u32,
            };
            // More tiles than there are: the rest does nothing.
            let grid = [(rows as u32).div_ceil(columns), tiles.len() as u32 + 3, 1];
            recording.dispatch(id, &params, vec![quants, scales, x, route, y], grid);
        }
        lab.run(recording, &[y]).remove(0)
    }
}

pub fn products(on: On, format: Format, taken: Activations) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let cols = [33, 330].map(|cols| Weight::cols(format, cols));
    for (rows, cols) in [(7, cols[0]), (70, cols[1])] {
        let world = World::new((format, taken), [rows, cols], &mut draws);
        for segments in [1, 4] {
            let mut all = lab.variants("mul_expert");
            all.extend(lab.variants("mul_expert_vec"));
            let int8 = taken == Activations::Int8;
            all.retain(|v| v.imports["quant"] == format!("quant_{format}"));
            all.retain(|v| v.imports.contains_key("dots") == int8);
            all.retain(|v| [0, segments].contains(&v.constant("SEGMENTS")));
            assert!(all.len() >= 3, "variants of {format}");
            let mut first: Option<Vec<f32>> = None;
            for variant in all {
                let what = format!("{} with {segments} segments, seed {SEED:#x}", variant.name);
                let y = world.run(variant, segments, 0, &mut lab);
                compare(&y, &world.wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
                let few = world.run(variant, segments, 17, &mut lab);
                same_bits(&few, &y[17 * world.used * world.y_stride..])
                    .unwrap_or_else(|e| panic!("{what}, two tokens alone: {e}"));
                let first = first.get_or_insert_with(|| y.clone());
                same_bits(first, &y).unwrap_or_else(|e| panic!("{what} against the first: {e}"));
                let mut bad = y;
                bad[3] += 3.0 * world.wanted[3].within as f32;
                assert!(compare(&bad, &world.wanted).is_err(), "a planted fault in {what}");
            }
        }
    }
}

pub fn combining(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    for (tokens, used, dim) in [(1u32, 1u32, 4u32), (3, 2, 36), (9, 8, 132)] {
        let stride = dim.next_multiple_of(32);
        let route = Route { tokens, experts: 16, used };
        let pairs = route.pairs();
        let (weights, before) =
            (draws.values(pairs as usize), draws.values((tokens * stride) as usize));
        let x = draws.values((pairs * stride) as usize);
        let mut words = vec![u32::MAX; route.words() as usize];
        for (to, weight) in words[route.weights_at() as usize..].iter_mut().zip(&weights) {
            *to = weight.to_bits();
        }
        for accumulate in [false, true] {
            let scale = 0.22f32;
            let (y, routing) = (lab.floats(&before), lab.words(&words));
            let mut recording = Recording::default();
            let x_bound = lab.floats(&x);
            MoeCombine { route, routing, x: x_bound, y, dim, stride, accumulate, scale }
                .record(&lab.facts, &mut recording);
            let got = lab.run(recording, &[y]).remove(0);
            let value = |at: usize| {
                let (t, i) = (at / stride as usize, at % stride as usize);
                let there = f64::from(before[at]);
                if i >= dim as usize {
                    return Wanted { value: there, within: 0.0 };
                }
                let term = |r: u32| {
                    let pair = t * used as usize + r as usize;
                    f64::from(weights[pair]) * f64::from(x[pair * stride as usize + i])
                };
                let sum: f64 = (0..used).map(term).sum::<f64>() * f64::from(scale);
                let magnitude: f64 = (0..used).map(|r| term(r).abs()).sum::<f64>() + 1.0;
                let value = if accumulate { there + sum } else { sum };
                Wanted { value, within: magnitude * SUM_TOLERANCE }
            };
            let wanted: Vec<_> = (0..before.len()).map(value).collect();
            let what = format!("{tokens} tokens, {used} experts of {dim}, seed {SEED:#x}");
            compare(&got, &wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut bad = got;
            bad[1] += 3.0 * wanted[1].within as f32;
            assert!(compare(&bad, &wanted).is_err(), "a planted fault in {what}");
        }
        lab.clear();
    }
}

/// A matrix per head: every variant against f64, equal bits whatever the tile and the tokens.
pub fn heads(on: On, format: Format) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let mut all = lab.variants("mul_heads");
    all.retain(|v| v.imports["quant"] == format!("quant_{format}"));
    assert!(all.len() >= 2, "variants of {format}");
    for (rows, cols) in [(7usize, 32usize), (48, 64), (33, 96)] {
        let (heads, tokens) = (5usize, 11usize);
        let world = World::new((format, Activations::F32), [rows, cols], &mut draws);
        let (x_head, y_head) = (cols + 16, rows + 3);
        let (x_stride, y_stride) = (heads * x_head + 16, heads * y_head + 5);
        let x = draws.values(tokens * x_stride);
        let untouched = Wanted { value: f64::from(UNTOUCHED), within: 0.0 };
        let mut wanted = vec![untouched; tokens * y_stride];
        for (t, h) in (0..tokens).flat_map(|t| (0..heads).map(move |h| (t, h))) {
            let x = &x[t * x_stride + h * x_head..][..cols];
            for (n, w) in world.experts[h].values.chunks(cols).enumerate() {
                let terms = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let magnitude: f64 = terms.clone().map(f64::abs).sum();
                let within = magnitude * SUM_TOLERANCE;
                wanted[t * y_stride + h * y_head + n] = Wanted { value: terms.sum(), within };
            }
        }
        let mut run = |variant: &Variant, from: usize| {
            let bound = lab.floats(&x[from * x_stride..]);
            let y = lab.floats(&vec![UNTOUCHED; (tokens - from) * y_stride]);
            let one = layout::stream_bytes(format, rows as u64, cols as u64).expect("small");
            let columns = variant.constant("WG") * variant.constant("TN");
            let id = variants::variant(&variant.name).expect("a row of the table");
            let mut recording = Recording::default();
            let count = (tokens - from) as u32;
            for (first_head, own, quants, scales) in world.parts(variant, &mut lab) {
                let params = MulHeadsParams {
                    rows: rows as u32,
                    k_blocks: cols.div_ceil(32) as u32,
                    segments: 1,
                    tokens: count,
                    x_stride: x_stride as u32,
                    x_head: x_head as u32,
                    y_stride: y_stride as u32,
                    y_head: y_head as u32,
                    first_head,
                    first_tile: 0,
                    quant_stride: (one.quants / 16) as u32,
                    scale_stride: (one.scales / 4) as u32,
                };
                let tiles = own * count.div_ceil(variant.constant("TM"));
                let grid = [(rows as u32).div_ceil(columns), tiles, 1];
                recording.dispatch(id, &params, vec![quants, scales, bound, y], grid);
            }
            lab.run(recording, &[y]).remove(0)
        };
        let mut first: Option<Vec<f32>> = None;
        for variant in &all {
            let what = format!("{} of {rows} x {cols}, seed {SEED:#x}", variant.name);
            let y = run(variant, 0);
            compare(&y, &wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
            let alone = run(variant, tokens - 1);
            same_bits(&alone, &y[(tokens - 1) * y_stride..])
                .unwrap_or_else(|e| panic!("{what}, the last token alone: {e}"));
            let first = first.get_or_insert_with(|| y.clone());
            same_bits(first, &y).unwrap_or_else(|e| panic!("{what} against the first: {e}"));
            let mut bad = y;
            bad[3] += 3.0 * wanted[3].within as f32;
            assert!(compare(&bad, &wanted).is_err(), "a planted fault in {what}");
        }
    }
}
