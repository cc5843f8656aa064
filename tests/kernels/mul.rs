//! `mul_mat` and `mul_vec`: every variant of a format on the same cases, against f64 sums, and
//! with equal bits whatever the tile, the kernel, and the number of rows.

use super::lab::{Draws, Lab, Wanted, compare, same_bits};
use super::packed;
use super::weight::Weight;
use crate::support::On;
use tilewright::base::{Activations, Format};
use tilewright::kernels::block::{ActGlu, Gate};
use tilewright::kernels::mul::{self, Mul, MulParams, Pack, TURN, WINDOW, packed_stride};
use tilewright::kernels::texels;
use tilewright::kernels::variants::{self, Need, Variant};
use tilewright::record::{Binding, DeviceKind, Facts, Recording};

/// Allowed error of a sum of f32 products, as a part of the sum of their magnitudes.
const MUL_TOLERANCE: f64 = 1e-6;

/// The same where operands are halves: each is off by at most 2^-11 of itself.
const UNIT_TOLERANCE: f64 = 1e-3;

const SEED: u64 = 0x6d75_6c31;
const TOKENS: usize = 33;
/// (first row of x, rows): the rows of each also lie in the last, where their bits must be equal.
const COMPANIES: [(usize, usize); 10] =
    [(0, 1), (0, 2), (0, 3), (0, 7), (0, 8), (0, 9), (5, 1), (32, 1), (17, 9), (0, TOKENS)];
/// Columns of y before the first and after the last output, which nobody may touch.
const MARGIN: usize = 3;
const UNTOUCHED: f32 = 7.5;

/// One matrix with its operands on the device.
struct Shape {
    weight: Weight,
    x: Binding,
    /// Words.
    x_stride: usize,
    bias: Option<Binding>,
    accumulate: bool,
    scale: f32,
    /// y before the launch and the wanted y, `[TOKENS][y_stride]`.
    before: Vec<f32>,
    wanted: Vec<Wanted>,
    y_stride: usize,
}

/// One launch: rows of x times a matrix, into its own part of y.
struct Case {
    shape: usize,
    first: usize,
    rows: usize,
    /// First value of y.
    at: usize,
}

struct Cases {
    shapes: Vec<Shape>,
    cases: Vec<Case>,
    y: Binding,
    before: Vec<f32>,
    wanted: Vec<Wanted>,
}

impl Shape {
    fn new(
        weight: Weight,
        taken: Activations,
        flags: usize,
        draws: &mut Draws,
        lab: &mut Lab,
    ) -> Self {
        let (rows, cols) = (weight.rows, weight.cols);
        let x_stride = cols.next_multiple_of(64);
        let mut x = vec![0.0; TOKENS * x_stride];
        // Case 45: activations, and sums of them, that half precision cannot hold.
        let size = if flags == 2 { 70_000.0 } else { 1.0 };
        for x in x.chunks_mut(x_stride) {
            x[..cols].copy_from_slice(&draws.values(cols));
            x[..cols].iter_mut().for_each(|x| *x *= size);
            // Kernels may read up to the next multiple of 32, and no further.
            x[cols.next_multiple_of(32)..].fill(f32::NAN);
        }
        let mut words: Vec<u32> = x.iter().map(|x| x.to_bits()).collect();
        let mut stride = x_stride;
        if taken == Activations::Int8 {
            // The products are those of the values that the bytes stand for.
            (words, x) = packed::pack(&x, cols, x_stride);
            stride = packed_stride(cols as u32) as usize;
        }
        let y_stride = rows + 2 * MARGIN;
        let bias = draws.values(y_stride);
        let (has_bias, accumulate) = (flags & 1 != 0, flags & 2 != 0);
        let scale = if flags == 3 { 0.22 } else { 1.0 };
        let mut before = vec![UNTOUCHED; TOKENS * y_stride];
        let mut wanted: Vec<_> =
            before.iter().map(|v| Wanted { value: f64::from(*v), within: 0.0 }).collect();
        for m in 0..TOKENS {
            for n in 0..rows {
                let at = m * y_stride + MARGIN + n;
                before[at] = if accumulate { draws.unit() } else { f32::NAN };
                let mut terms = Vec::new();
                let w = &weight.values[n * cols..(n + 1) * cols];
                let products = x[m * x_stride..].iter().zip(w);
                terms.extend(products.map(|(x, w)| f64::from(*x) * f64::from(*w)));
                terms.extend(has_bias.then(|| f64::from(bias[MARGIN + n])));
                terms.iter_mut().for_each(|term| *term *= f64::from(scale));
                terms.extend(accumulate.then(|| f64::from(before[at])));
                let magnitude: f64 = terms.iter().map(|t| t.abs()).sum();
                let within = MUL_TOLERANCE * magnitude;
                wanted[at] = Wanted { value: terms.iter().sum(), within };
            }
        }
        let (x, bias) = (lab.words(&words), has_bias.then(|| lab.floats(&bias)));
        Self { weight, x, x_stride: stride, bias, accumulate, scale, before, wanted, y_stride }
    }
}

impl Cases {
    fn new(format: Format, taken: Activations, lab: &mut Lab) -> Self {
        let mut draws = Draws::new(SEED);
        // Whole blocks: 32, 96, 352, 64, 1056, or multiples of 256.
        let cols = match format.block_len() {
            1 => [33, 99, 330, 66, 1056],
            _ => [32, 96, 352, 64, 1056].map(|wish| Weight::cols(format, wish)),
        };
        let mut shapes = Vec::new();
        for (flags, (rows, cols)) in [1, 7, 33, 577, 7].into_iter().zip(cols).enumerate() {
            let weight = Weight::random(format, rows, cols, &mut draws);
            shapes.push(Shape::new(weight, taken, flags, &mut draws, lab));
        }
        let (mut cases, mut before, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for (index, shape) in shapes.iter().enumerate() {
            for (first, rows) in COMPANIES {
                let at = before.len();
                let range = first * shape.y_stride..(first + rows) * shape.y_stride;
                before.extend_from_slice(&shape.before[range.clone()]);
                wanted.extend_from_slice(&shape.wanted[range]);
                // Bindings start at multiples of 256 bytes.
                before.resize(before.len().next_multiple_of(64), UNTOUCHED);
                let nothing = Wanted { value: f64::from(UNTOUCHED), within: 0.0 };
                wanted.resize(before.len(), nothing);
                cases.push(Case { shape: index, first, rows, at });
            }
        }
        let y = lab.floats(&before);
        Self { shapes, cases, y, before, wanted }
    }

    /// All cases on one variant; `change` may spoil the parameters.
    fn run(
        &self,
        variant: &Variant,
        segments: u32,
        change: impl Fn(&mut MulParams),
        lab: &mut Lab,
    ) -> Vec<f32> {
        let mut recording = Recording::default();
        recording.upload(self.y.buffer, 0, bytemuck::cast_slice(&self.before));
        let constant = |name| variant.constant(name) as usize;
        let columns = match variant.shader.as_str() {
            "mul_vec" => constant("LANES"),
            _ => constant("WG") * constant("TN"),
        };
        let id = variants::variant(&variant.name).expect("a row of the table");
        let parts: Vec<_> = self
            .shapes
            .iter()
            .map(|shape| shape.weight.part(0, shape.weight.rows, variant, lab))
            .collect();
        let texels = variant.needs.contains(&Need::Texels);
        let tile = constant("TM");
        let windows = |case: &Case| {
            let row = self.shapes[case.shape].x_stride * 4;
            let at_once = if texels { WINDOW as usize / row / tile * tile } else { case.rows };
            (0..case.rows).step_by(at_once).map(move |from| (from, at_once))
        };
        let launches = self.cases.iter().flat_map(|c| windows(c).map(move |w| (c, w)));
        for (case, (from, at_once)) in launches {
            let (shape, part) = (&self.shapes[case.shape], &parts[case.shape]);
            let end = case.rows.min(from + at_once);
            let mut params = MulParams {
                rows: part.rows,
                k_blocks: shape.weight.cols.div_ceil(32) as u32,
                segments,
                first: from as u32,
                tokens: end as u32,
                x_stride: shape.x_stride as u32,
                y_stride: shape.y_stride as u32,
                y_column: MARGIN as u32,
                accumulate: u32::from(shape.accumulate),
                has_bias: u32::from(shape.bias.is_some()),
                scale: shape.scale,
                act: 0,
            };
            change(&mut params);
            let skipped = ((case.first + from) * shape.x_stride * 4) as u64;
            // A device whose kernels have windows pads its buffers by one.
            let bytes = if lab.facts.texels && texels { WINDOW } else { shape.x.bytes - skipped };
            let x = Binding { offset: skipped, bytes, ..shape.x };
            let bytes = (case.rows * shape.y_stride * 4) as u64;
            let y = Binding { offset: case.at as u64 * 4, bytes, ..self.y };
            let bias = shape.bias.unwrap_or(shape.x);
            let bindings = vec![part.quants, part.scales, x, bias, y];
            let tiles = (end - from).div_ceil(tile);
            let grid = [shape.weight.rows.div_ceil(columns) as u32, tiles as u32, 1];
            recording.dispatch(id, &params, bindings, grid);
        }
        lab.run(recording, &[self.y]).remove(0)
    }

    /// Every row of every case has the bits it has among all rows.
    fn company(&self, y: &[f32]) -> Result<(), String> {
        for case in &self.cases {
            let all = self.cases.iter().find(|c| c.shape == case.shape && c.rows == TOKENS);
            let stride = self.shapes[case.shape].y_stride;
            let together = all.expect("the last company").at + case.first * stride;
            let (here, there) = (&y[case.at..], &y[together..]);
            let count = case.rows * stride;
            same_bits(&here[..count], &there[..count]).map_err(|e| {
                format!("shape {}, rows {}+{}: {e}", case.shape, case.first, case.rows)
            })?;
        }
        Ok(())
    }
}

/// The variants of both kernels that serve `format` with k in `segments` parts.
fn variants_of(
    (format, taken): (Format, Activations),
    segments: u32,
    lab: &Lab,
) -> Vec<&'static Variant> {
    let quant = format!("quant_{format}");
    let mut all = lab.variants("mul_mat");
    // Every tile with one part and with four; the other cuts show the kernels' agreement.
    all.retain(|v| matches!(segments, 1 | 4) || v.constant("TM") == 1);
    all.extend(lab.variants("mul_gemm").iter().filter(|_| matches!(segments, 1 | 4)));
    all.extend(lab.variants("mul_vec").iter().filter(|v| v.constant("SEGMENTS") == segments));
    let int8 = taken == Activations::Int8;
    all.retain(|v| v.imports["quant"] == quant && v.imports.contains_key("dots") == int8);
    all
}

pub fn check(on: On, format: Format, taken: Activations) {
    let mut lab = Lab::open(on);
    let cases = Cases::new(format, taken, &mut lab);
    for segments in [1, 2, 4, 8] {
        let mut first: Option<Vec<f32>> = None;
        let variants = variants_of((format, taken), segments, &lab);
        assert!(variants.len() >= if segments == 1 { 4 } else { 5 }, "variants of {format}");
        for variant in variants {
            let what = format!("{} with {segments} segments, seed {SEED:#x}", variant.name);
            let y = cases.run(variant, segments, |_| {}, &mut lab);
            compare(&y, &cases.wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
            cases.company(&y).unwrap_or_else(|e| panic!("{what}: {e}"));
            let first = first.get_or_insert_with(|| y.clone());
            same_bits(first, &y).unwrap_or_else(|e| panic!("{what} against the first: {e}"));
        }
    }
}

/// Gates that are part of a product have the bits that [`ActGlu`] gives of the product.
pub fn gates(on: On, format: Format) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let (dim, cols) = (5 * TURN as usize, Weight::cols(format, 96));
    let weight = Weight::random(format, 2 * dim, cols, &mut draws);
    let (facts, turn) = (lab.facts.clone(), TURN as usize);
    let one = mul::variant(&weight.matrix(Vec::new()), 1, &facts, Activations::F32).0;
    let variant = variants::get(one).expect("a row of the table");
    if on == On::Gpu && !texels(cols as u32, &facts) {
        return;
    }
    let w = weight.matrix(vec![weight.part(0, 2 * dim, variant, &mut lab)]);
    let x = lab.floats(&draws.values(TOKENS * cols));
    let bias = lab.floats(&draws.values(2 * dim));
    let bytes = lab.words(&vec![0; TOKENS * packed_stride(cols as u32) as usize]);
    let plain = [(Gate::Silu, None, None), (Gate::GeluTanh, Some(bias), None)];
    for (act, bias, packed) in plain.into_iter().chain([(Gate::Silu, Some(bias), Some(bytes))]) {
        for tokens in [1, 2, 3, 8, 9, TOKENS] {
            let what = format!("{act:?} of {tokens} tokens, {packed:?}, seed {SEED:#x}");
            let mut product = |gate: Option<Gate>, width: usize| {
                let y = lab.floats(&vec![UNTOUCHED; tokens * width]);
                let (x_stride, y_stride) = (cols as u32, width as u32);
                let (w, tokens, accumulate, scale) = (&w, tokens as u32, false, 1.0);
                let mut recording = Recording::default();
                if let Some(y) = packed {
                    Pack { rows: tokens, cols: x_stride, x, x_stride, y }
                        .record(&facts, &mut recording);
                }
                Mul {
                    w,
                    tokens,
                    x,
                    x_stride,
                    packed,
                    y,
                    y_stride,
                    bias,
                    accumulate,
                    scale,
                    gate,
                    halves: x,
                }
                .record(&facts, &mut recording);
                lab.run(recording, &[y]).remove(0)
            };
            let (plain, gated) = (product(None, 2 * dim), product(Some(act), dim));
            let mut apart = Vec::new();
            for row in plain.chunks(2 * dim) {
                let half = |from| row.chunks(turn).skip(from).step_by(2).flatten();
                apart.extend(half(0).chain(half(1)));
            }
            let [from, y] = [&apart, &vec![UNTOUCHED; tokens * dim]].map(|list| lab.floats(list));
            let mut recording = Recording::default();
            let (rows, dim) = (tokens as u32, dim as u32);
            ActGlu { act, rows, dim, x: from, x_stride: 2 * dim, up_at: dim, y, y_stride: dim }
                .record(&facts, &mut recording);
            let wanted = lab.run(recording, &[y]).remove(0);
            assert!(wanted.iter().all(|v| v.is_finite() && *v != UNTOUCHED), "{what}");
            same_bits(&gated, &wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
}

/// The kernel for many tokens has the bits of the one for few, in whole tiles and behind them.
pub fn gemm(on: On, format: Format, taken: Activations) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let (rows, cols, tokens) = (150, Weight::cols(format, 544), 133);
    let weight = Weight::random(format, rows, cols, &mut draws);
    let wide = Facts { kind: DeviceKind::Discrete, texels: false, ..lab.facts.clone() };
    let narrow = Facts { shared_bytes_max: 0, ..wide.clone() };
    let variant = |facts| mul::variant(&weight.matrix(Vec::new()), tokens, facts, taken);
    assert_eq!([&wide, &narrow].map(|facts| variant(facts).1.stem), ["mul_gemm", "mul_mat"]);
    let plain = variant(&wide).0;
    let plain = variants::get(plain).expect("a row of the table");
    let w = weight.matrix(vec![weight.part(0, rows, plain, &mut lab)]);
    let x = lab.floats(&draws.values(tokens as usize * cols));
    let bias = Some(lab.floats(&draws.values(rows)));
    let words = tokens as usize * packed_stride(cols as u32) as usize;
    let packed = (taken == Activations::Int8).then(|| lab.words(&vec![0; words]));
    let mut product = |facts: &Facts| {
        let y = lab.floats(&vec![UNTOUCHED; tokens as usize * rows + 9]);
        let (x_stride, y_stride) = (cols as u32, rows as u32);
        let (w, accumulate, scale, gate) = (&w, true, 0.5, None);
        let mut recording = Recording::default();
        if let Some(y) = packed {
            Pack { rows: tokens, cols: x_stride, x, x_stride, y }.record(facts, &mut recording);
        }
        let halves = x;
        Mul { w, tokens, x, x_stride, packed, y, y_stride, bias, accumulate, scale, gate, halves }
            .record(facts, &mut recording);
        lab.run(recording, &[y]).remove(0)
    };
    let (got, wanted) = (product(&wide), product(&narrow));
    assert!(wanted[..got.len() - 9].iter().all(|v| v.is_finite() && *v != UNTOUCHED));
    assert!(got[got.len() - 9..].iter().all(|v| *v == UNTOUCHED), "written behind the end");
    same_bits(&got, &wanted).unwrap_or_else(|e| panic!("{format}, seed {SEED:#x}: {e}"));
}

/// Products on matrix units are near the exact ones, whatever the size of the values, and a row has
/// the same bits in any company.
pub fn units(on: On, format: Format) {
    let mut lab = Lab::open(on);
    let (rows, cols, most) = (150, Weight::cols(format, 544), 133);
    let mut facts = lab.facts.clone();
    if on == On::Cpu {
        facts.matrix_side = 16;
    }
    assert!(facts.matrix_side > 0, "{} has no matrix units, or they fail", facts.name);
    let mut draws = Draws::new(SEED);
    let weight = Weight::random(format, rows, cols, &mut draws);
    let named = mul::variant(&weight.matrix(Vec::new()), 1, &facts, Activations::F32).0;
    let plain = variants::get(named).expect("a row of the table");
    assert_eq!(plain.shader, "mul_unit");
    let w = weight.matrix(vec![weight.part(0, rows, plain, &mut lab)]);
    let mut values = draws.values(most * cols);
    // Case 45: activations that half precision cannot hold, and some that are nearly nothing.
    for (row, x) in values.chunks_mut(cols).enumerate() {
        let size = [1.0, 70_000.0, 1e-4][row % 3];
        x.iter_mut().for_each(|x| *x *= size);
    }
    let bias = draws.values(rows);
    let (bias_at, halves) = (lab.floats(&bias), mul::halves_bytes(most as u32, cols as u32));
    let halves = lab.floats(&vec![f32::NAN; halves as usize / 4]);
    let mut product = |first: usize, tokens: usize| {
        let x = lab.floats(&values[first * cols..(first + tokens) * cols]);
        let y = lab.floats(&vec![UNTOUCHED; tokens * rows + 9]);
        let mut recording = Recording::default();
        Mul {
            w: &w,
            tokens: tokens as u32,
            x,
            x_stride: cols as u32,
            packed: None,
            y,
            y_stride: rows as u32,
            bias: Some(bias_at),
            accumulate: true,
            scale: 0.5,
            gate: None,
            halves,
        }
        .record(&facts, &mut recording);
        lab.run(recording, &[y]).remove(0)
    };
    let all = product(0, most);
    assert!(all[most * rows..].iter().all(|v| *v == UNTOUCHED), "written behind the end");
    let mut wanted = Vec::new();
    for x in values.chunks(cols) {
        for (n, w) in weight.values.chunks(cols).enumerate() {
            let terms = || x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w) * 0.5);
            let value = terms().sum::<f64>() + f64::from(bias[n]) * 0.5 + f64::from(UNTOUCHED);
            let magnitude = terms().map(f64::abs).sum::<f64>() + f64::from(UNTOUCHED);
            wanted.push(Wanted { value, within: UNIT_TOLERANCE * magnitude });
        }
    }
    compare(&all[..most * rows], &wanted).unwrap_or_else(|e| panic!("{format}: {e}"));
    for (first, tokens) in [(0, 1), (7, 1), (0, 8), (3, 40), (60, 65), (132, 1)] {
        let some = product(first, tokens);
        same_bits(&some[..tokens * rows], &all[first * rows..(first + tokens) * rows])
            .unwrap_or_else(|e| panic!("{format}, rows {first}+{tokens}: {e}"));
    }
}

/// Kernels and results with a planted fault do not pass for right.
pub fn faults_are_seen() {
    let mut lab = Lab::open(On::Cpu);
    let f32 = Activations::F32;
    let cases = Cases::new(Format::Q5_1, f32, &mut lab);
    let variant = variants_of((Format::Q5_1, f32), 4, &lab)[0];
    let good = cases.run(variant, 4, |_| {}, &mut lab);
    assert_eq!(compare(&good, &cases.wanted), Ok(()));
    let spoilers: [fn(&mut MulParams); 5] = [
        |p| p.k_blocks -= 1,
        |p| p.y_column += 1,
        |p| p.accumulate ^= 1,
        |p| p.has_bias = 0,
        |p| p.scale = 1.0,
    ];
    for (index, spoil) in spoilers.into_iter().enumerate() {
        let bad = cases.run(variant, 4, spoil, &mut lab);
        assert!(compare(&bad, &cases.wanted).is_err(), "fault {index}");
    }
    let other_order = cases.run(variant, 1, |_| {}, &mut lab);
    assert!(same_bits(&good, &other_order).is_err(), "another order of the sum");
    for at in [MARGIN, cases.cases[7].at + MARGIN] {
        let mut bad = good.clone();
        bad[at] = f32::from_bits(bad[at].to_bits() ^ 1);
        assert!(cases.company(&bad).is_err(), "one bit of value {at}");
    }
}
