//! Rows of `invariance`: with `--invariance off` a number may depend on company, within the
//! tolerances that hold with `on`; nothing else may. What `on` promises are the rows of `company`.

use crate::company::{options, requests};
use crate::models::craft::Checkpoint;
use crate::models::{FORMATS, LOGITS_TOLERANCE, golden, prompt};
use crate::support::{Decoder, On, Rows, World, shared};
use std::collections::BTreeSet;
use std::path::Path;
use tilewright::base::{Invariance, Limits, Preemption};
use tilewright::kernels::variants;
use tilewright::record::Facts;
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let device = on.name();
        for format in FORMATS {
            let path =
                present.clone().and_then(|()| shared(&format!("fixtures/gguf/tiny-{format}.gguf")));
            rows.add_if(path, format!("invariance::off_{format}.{device}"), move |path| {
                fixture(&path, on);
            });
        }
        rows.add_if(present.clone(), format!("invariance::long_contexts.{device}"), move |()| {
            long_contexts(on);
        });
        rows.add_if(present, format!("invariance::off_under_pressure.{device}"), move |()| {
            under_pressure(on);
        });
    }
    rows.add("invariance::units_serve_many", units_serve_many);
}

fn off(facts: &mut Facts) {
    facts.invariance = Invariance::Off;
}

fn largest(got: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(got.len(), wanted.len());
    let off = |(got, wanted): (&f32, &f32)| match got.is_finite() {
        true => (got - wanted).abs(),
        false => f32::INFINITY,
    };
    got.iter().zip(wanted).map(off).fold(0.0, f32::max)
}

/// One text in several rows of each step, which get on by one token and by many.
fn fixture(path: &Path, on: On) {
    let weights = Weights::open(path).unwrap_or_else(|e| panic!("{e}"));
    let decoder = Decoder::on(&weights, on.with(off), 128);
    let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
    let (ids, expected) = golden(&path.with_extension("golden.safetensors"));
    let blocks = ids.len().div_ceil(16) as u32;
    let mut done = [0; 5];
    while done.iter().any(|done| *done < ids.len()) {
        decoder.batch.clear();
        let (mut at, pieces) = (Vec::new(), [1, 2, 5, 8, 33]);
        for (row, (done, piece)) in (0..).zip(done.iter_mut().zip(pieces)) {
            let piece = &ids[*done..ids.len().min(*done + piece)];
            if piece.is_empty() {
                continue;
            }
            let table: Vec<u32> = (row * blocks..(row + 1) * blocks).rev().collect();
            let first = decoder.batch.push_row(piece, *done as u32, &table);
            let tokens = first..first + piece.len() as u32;
            decoder.batch.samples.extend(tokens.map(|token| (token, Default::default())));
            at.extend(*done..*done + piece.len());
            *done += piece.len();
        }
        decoder.batch.logits = true;
        let bytes = decoder.run();
        for (at, got) in at.into_iter().zip(decoder.model.logits(&decoder.batch, &bytes)) {
            let worst = largest(&got, &expected[at]);
            assert!(worst <= LOGITS_TOLERANCE, "{worst} at {at}, rows at {done:?}");
        }
    }
}

/// Logits of sequences that decode alone and together, with contexts of several splits: near those
/// with `on`, and others, so that the facts reached the kernels.
fn long_contexts(on: On) {
    let weights = Checkpoint::fable(1).folder();
    let lengths = [500, 330, 200, 64];
    let run = |change: fn(&mut Facts)| {
        let decoder = Decoder::on(&weights, on.with(change), 512);
        let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
        let tables: Vec<Vec<u32>> = (0..4).map(|n| (n * 32..(n + 1) * 32).collect()).collect();
        for (length, table) in lengths.into_iter().zip(&tables) {
            decoder.prefill(&prompt(length), 128, table);
        }
        let (mut all, mut done) = (Vec::new(), lengths);
        for rows in [0..1, 0..4, 1..4, 0..4] {
            decoder.batch.clear();
            for n in rows {
                let at = decoder.batch.push_row(&[7 + done[n] % 5], done[n], &tables[n]);
                decoder.batch.samples.push((at, Default::default()));
                done[n] += 1;
            }
            decoder.batch.logits = true;
            let bytes = decoder.run();
            all.extend(decoder.model.logits(&decoder.batch, &bytes).concat());
        }
        all
    };
    let (with_on, with_off) = (run(|_| {}), run(off));
    let worst = largest(&with_off, &with_on);
    assert!(worst > 0.0 && worst <= LOGITS_TOLERANCE, "{worst}");
}

/// A pool that is too small, moves to host memory, shared beginnings: every request gets its
/// tokens, the invariants of the pool hold, and equal steps give equal bits.
fn under_pressure(on: On) {
    let weights = Checkpoint::fable(1).folder();
    let world = World::open(&weights, on.with(off), &options(64)).unwrap_or_else(|e| panic!("{e}"));
    let mut requests = requests();
    requests.truncate(8);
    requests.push(requests[0].clone());
    for preemption in [Preemption::Recompute, Preemption::Swap] {
        let run = || {
            let limits = Limits { blocks: 26, ..world.limits };
            let outcome = world.run_with(limits, &requests, |config| {
                config.policies.preemption = preemption;
            });
            assert!(outcome.preempted > 0 && outcome.matched > 0);
            outcome.all()
        };
        let answers = run();
        assert!(answers.iter().all(|answer| answer.ids().len() == 24));
        assert!(answers == run(), "{preemption:?}: the same steps again");
    }
}

/// On matrix units: of all products' kernels, what a step of few tokens and one of many take.
fn units_serve_many() {
    let path = crate::support::root().join("tests/data/gguf/tiny-q4_1.gguf");
    let weights = Weights::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let kernels = |invariance| {
        let device = On::Cpu.with(|facts| (facts.matrix_side, facts.invariance) = (16, invariance));
        let decoder = Decoder::on(&weights, device, 128).unwrap_or_else(|e| panic!("{e}"));
        let variants = decoder.model.variants().into_iter().filter_map(variants::get);
        let products = variants.map(|v| v.shader.as_str()).filter(|s| s.starts_with("mul_"));
        products.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(kernels(Invariance::On), ["mul_unit"]);
    assert_eq!(kernels(Invariance::Off), ["mul_mat", "mul_unit"]);
}
