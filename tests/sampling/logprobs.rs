//! Logprobs, flags of rows that are not finite, and a vocabulary of real size.

use super::exact::exact;
use super::step::{Sampled, Step, widths};
use crate::kernels::lab::{Draws, Lab};
use crate::support::On;
use tilewright::kernels::sample::{Edit, SampleRow, TOP_MAX};

const SEED: u64 = 0x6c6f_6770;
/// Allowed error of a logprob: a sum of exps in f32, its logarithm, a difference.
const LOGPROB_TOLERANCE: f64 = 1e-5;
/// The same for a sum of 150,000 terms.
const LARGE_TOLERANCE: f64 = 5e-5;

/// log-softmax in f64.
fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let high = logits.iter().copied().fold(f32::MIN, f32::max);
    let shifted = logits.iter().map(|l| f64::from(*l) - f64::from(high));
    let sum: f64 = shifted.clone().map(f64::exp).sum();
    shifted.map(|l| l - sum.ln()).collect()
}

fn close(got: f32, wanted: f64, within: f64) -> bool {
    (f64::from(got) - wanted).abs() <= within
}

/// Checks the logprobs of `sampled` against raw `logits`.
fn check(sampled: &Sampled, logits: &[f32], top: u32, within: f64) -> Result<(), String> {
    let (wanted, result) = (log_softmax(logits), &sampled.result);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(top.saturating_sub(1) as usize);
    let ids: Vec<usize> = result.top.iter().map(|t| t.0 as usize).collect();
    if ids != order {
        return Err(format!("top {ids:?}, wanted {order:?}"));
    }
    for (id, logprob) in &result.top {
        if !close(*logprob, wanted[*id as usize], within) {
            return Err(format!("logprob of {id} is {logprob}, not {}", wanted[*id as usize]));
        }
        if *id == result.token && logprob.to_bits() != result.logprob.to_bits() {
            return Err(format!("chosen {} against top {logprob}", result.logprob));
        }
    }
    let token = result.token as usize;
    if top > 0 && !close(result.logprob, wanted[token], within) {
        return Err(format!("logprob of the token is {}, not {}", result.logprob, wanted[token]));
    }
    Ok(())
}

/// Edits move the choice, never the logprobs.
pub fn are_of_raw_logits(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let mut step = Step::new(301);
    for index in 0..40 {
        let logits: Vec<f32> = draws.values(301).iter().map(|v| v * 8.0 + 3.0).collect();
        let temperature = if index % 2 == 0 { 0.0 } else { 1.4 };
        let top = [1, 2, 6, TOP_MAX + 1][index % 4];
        let row = SampleRow { temperature, top, unit: draws.unit(), ..SampleRow::default() };
        let row = SampleRow { repetition: 1.3, frequency: 0.5, ..row };
        let edits: Vec<Edit> = draws.order(301)[..50]
            .iter()
            .map(|&token| Edit { token, times: 2, seen: 1, bias: 6.0, ..Edit::default() })
            .collect();
        step.push(&logits, row, if index % 3 == 0 { &[] } else { &edits });
    }
    for facts in widths(&lab) {
        let mut edited = 0;
        for (index, sampled) in step.run(&facts, &mut lab).iter().enumerate() {
            let (logits, top) = (&step.logits[index], step.rows[index].top);
            check(sampled, logits, top, LOGPROB_TOLERANCE)
                .unwrap_or_else(|e| panic!("row {index}, seed {SEED:#x}: {e}"));
            edited += u32::from(sampled.edited != *logits);
            // The check itself fails on the logits that decided.
            if sampled.edited != *logits {
                let check = check(sampled, &sampled.edited, top, LOGPROB_TOLERANCE);
                assert!(check.is_err(), "row {index}: a planted fault");
            }
        }
        assert!(edited > 20);
    }
}

/// Higher first, equal logits by id, whatever thread they lie with; none when none are asked for.
pub fn top_are_ordered(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let mut step = Step::new(520);
    for _ in 0..20 {
        // Few different values: many ties within the first twenty.
        let logits: Vec<f32> = (0..520).map(|_| draws.below(12) as f32 - 20.0).collect();
        step.push(&logits, SampleRow { top: TOP_MAX + 1, ..SampleRow::default() }, &[]);
    }
    step.push(&[1.0; 520], SampleRow { top: TOP_MAX + 1, ..SampleRow::default() }, &[]);
    step.push(&[f32::MIN; 520], SampleRow { top: TOP_MAX + 1, ..SampleRow::default() }, &[]);
    step.push(&[1.0; 520], SampleRow::default(), &[]);
    for facts in widths(&lab) {
        let got = step.run(&facts, &mut lab);
        for (index, sampled) in got.iter().enumerate() {
            let (logits, top) = (&step.logits[index], step.rows[index].top);
            check(sampled, logits, top, LOGPROB_TOLERANCE)
                .unwrap_or_else(|e| panic!("row {index}, seed {SEED:#x}: {e}"));
        }
        let none = &got[step.rows.len() - 1].result;
        assert_eq!((none.logprob, none.top.len(), none.finite), (0.0, 0, true));
    }
}

/// A logit that is no number, or infinite, flags its row and changes no other.
pub fn broken_rows_are_flagged_alone(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let settings = [
        SampleRow::default(),
        SampleRow { temperature: 0.9, top_k: 9, ..SampleRow::default() },
        SampleRow { temperature: 0.9, top_p: 0.8, min_p: 0.01, top: 4, ..SampleRow::default() },
    ];
    let mut good = Step::new(200);
    for index in 0..30 {
        let logits: Vec<f32> = draws.values(200).iter().map(|v| v * 5.0).collect();
        let row = SampleRow { unit: draws.unit(), ..settings[index % 3] };
        good.push(&logits, row, &[]);
    }
    let mut bad = good.clone();
    let faults = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for (index, logits) in bad.logits.iter_mut().enumerate().filter(|(i, _)| i % 4 == 1) {
        let fault = faults[index / 4 % 3];
        match index % 8 {
            1 => logits[draws.below(200) as usize] = fault,
            _ => logits.fill(fault),
        }
    }
    for facts in widths(&lab) {
        let (good, bad) = (good.run(&facts, &mut lab), bad.run(&facts, &mut lab));
        for (index, (good, bad)) in good.iter().zip(&bad).enumerate() {
            assert!(good.result.finite);
            assert_eq!(bad.result.finite, index % 4 != 1, "row {index}, seed {SEED:#x}");
            match bad.result.finite {
                true => assert_eq!(good, bad, "row {index}, seed {SEED:#x}"),
                false => assert!(bad.result.token < 200, "a token of the vocabulary"),
            }
        }
    }
}

/// The vocabularies of Qwen and Gemma; both cuts together take the most passes over them.
pub fn large_vocabulary(on: On) {
    let mut lab = Lab::open(on);
    for vocab in [151_936, 262_144] {
        large(vocab, &mut lab);
    }
}

fn large(vocab: usize, lab: &mut Lab) {
    let mut draws = Draws::new(SEED);
    let values = draws.values(vocab);
    let logits: Vec<f32> = values.iter().map(|v| v * v * v * 14.0).collect();
    let top = TOP_MAX + 1;
    let base = SampleRow { temperature: 0.7, top, ..SampleRow::default() };
    let settings = [
        SampleRow { temperature: 0.0, ..base },
        SampleRow { unit: 0.37, ..base },
        SampleRow { unit: 0.93, top_k: 50, ..base },
        SampleRow { unit: 0.61, top_p: 0.95, min_p: 0.02, ..base },
        SampleRow { unit: 0.48, top_k: 40, top_p: 0.9, ..base },
    ];
    let mut step = Step::new(vocab);
    settings.into_iter().for_each(|row| step.push(&logits, row, &[]));
    for facts in widths(lab) {
        for (index, sampled) in step.run(&facts, lab).iter().enumerate() {
            let what = format!("row {index}, seed {SEED:#x}");
            let exact = exact(&logits, &step.rows[index]);
            let (token, margin) = exact.pick(step.rows[index].unit);
            assert!(margin > 1e-6, "{what}: another draw, {margin:e} is too near");
            assert_eq!(sampled.result.token, token, "{what}, margin {margin:e}");
            assert_eq!(sampled.kept as usize, exact.kept.len(), "{what}");
            check(sampled, &logits, top, LARGE_TOLERANCE).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
}
