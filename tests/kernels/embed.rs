//! `embed`: rows of a matrix in two parts, every format.

use super::lab::{Draws, Lab, Wanted, compare};
use super::weight::Weight;
use crate::support::On;
use tilewright::base::Format;
use tilewright::kernels::mul::{Embed, Matrix, SAMPLED};
use tilewright::kernels::sample::OUT_WORDS;
use tilewright::kernels::variants::Need;
use tilewright::record::{Facts, Recording};

/// Allowed error of a decoded, scaled weight: two roundings, relative.
const EMBED_TOLERANCE: f64 = 2e-7;

const SEED: u64 = 0x656d_6264;
const ROWS: usize = 37;
const FIRST_PART: usize = 20;
const UNTOUCHED: f32 = 7.5;
const SCALE: f32 = 1.75;

pub fn check(on: On, format: Format) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let cols = match format.block_len() {
        1 => [33, 330],
        _ => [32, 352].map(|wish| Weight::cols(format, wish)),
    };
    for cols in cols {
        let weight = Weight::random(format, ROWS, cols, &mut draws);
        let quant = format!("quant_{format}");
        let mut variants = lab.variants("embed");
        variants.retain(|v| v.imports["quant"] == quant);
        for (variant, tokens) in
            variants.iter().flat_map(|v| [1, 2, 3, 7, 8, 9, 33].map(|tokens| (v, tokens)))
        {
            let parts = vec![
                weight.part(0, FIRST_PART, variant, &mut lab),
                weight.part(FIRST_PART, ROWS - FIRST_PART, variant, &mut lab),
            ];
            let w = Matrix { format, rows: ROWS as u32, cols: cols as u32, parts };
            let texels = variant.needs.contains(&Need::Texels);
            let facts = Facts { texels, ..lab.facts.clone() };
            let got = embed(&w, tokens, &facts, &mut lab, &mut draws);
            let (x, ids) = got;
            let wanted = wanted(&weight, &ids);
            let what = format!("{}, {tokens} tokens of {cols}, seed {SEED:#x}", variant.name);
            compare(&x, &wanted).unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut bad = x.clone();
            bad[cols / 2] += 1e-4;
            assert!(compare(&bad, &wanted).is_err(), "a planted fault in {what}");
        }
    }
}

/// Every half float is on the processor what it is elsewhere.
pub fn halves() {
    let mut lab = Lab::open(On::Cpu);
    let raw = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let weight = Weight::of(Format::F16, 2048, 32, raw);
    let variant = lab.variants("embed").into_iter().find(|v| v.name == "embed.f16");
    let part = weight.part(0, 2048, variant.expect("a variant"), &mut lab);
    let w = &weight.matrix(vec![part]);
    let ids: Vec<u32> = (0..2048).collect();
    let (meta, sampled) = (lab.words(&ids), lab.words(&[0; OUT_WORDS as usize]));
    let x = lab.floats(&vec![UNTOUCHED; 1 << 16]);
    let mut recording = Recording::default();
    Embed { w, tokens: 2048, meta, tokens_at: 0, sampled, x, x_stride: 32, scale: 1.0 }
        .record(&lab.facts, &mut recording);
    let found = lab.run(recording, &[x]).remove(0);
    for (bits, found) in (0..=u16::MAX).zip(found) {
        let wanted = half::f16::from_bits(bits).to_f32();
        let same = wanted.to_bits() == found.to_bits() || wanted.is_nan() && found.is_nan();
        assert!(same, "{bits:#06x} is {found}, not {wanted}");
    }
}

fn stride(cols: usize) -> usize {
    cols.next_multiple_of(32) + 4
}

fn embed(
    w: &Matrix,
    tokens: u32,
    facts: &Facts,
    lab: &mut Lab,
    draws: &mut Draws,
) -> (Vec<f32>, Vec<u32>) {
    let mut ids: Vec<u32> = (0..tokens).map(|_| draws.below(ROWS as u32)).collect();
    for (id, edge) in ids.iter_mut().zip([ROWS - 1, FIRST_PART, FIRST_PART - 1, 0]) {
        *id = edge as u32;
    }
    let x_stride = stride(w.cols as usize);
    let x = lab.floats(&vec![UNTOUCHED; tokens as usize * x_stride]);
    let tokens_at = 5;
    // Every third is known to the sampler alone: of its results another row, whose other words say
    // something else.
    let mut results = vec![1; (tokens * OUT_WORDS) as usize];
    let mut named = ids.clone();
    for (at, id) in (0..tokens).zip(&mut named).filter(|(at, _)| at % 3 == 1) {
        let row = tokens - 1 - at;
        results[(row * OUT_WORDS) as usize] = *id;
        *id = SAMPLED | row;
    }
    let sampled = lab.words(&results);
    let meta = lab.words(&[&[u32::MAX; 5][..], &named].concat());
    let mut recording = Recording::default();
    Embed { w, tokens, meta, tokens_at, sampled, x, x_stride: x_stride as u32, scale: SCALE }
        .record(facts, &mut recording);
    (lab.run(recording, &[x]).remove(0), ids)
}

fn wanted(weight: &Weight, ids: &[u32]) -> Vec<Wanted> {
    let cols = weight.cols;
    let mut out = Vec::new();
    for id in ids {
        let row = &weight.values[*id as usize * cols..][..cols];
        out.extend(row.iter().map(|w| {
            let value = f64::from(*w) * f64::from(SCALE);
            Wanted { value, within: value.abs() * EMBED_TOLERANCE + 1e-7 }
        }));
        let exact = |value: f32| Wanted { value: f64::from(value), within: 0.0 };
        out.extend(vec![exact(0.0); cols.next_multiple_of(32) - cols]);
        out.extend(vec![exact(UNTOUCHED); stride(cols) - cols.next_multiple_of(32)]);
    }
    out
}
