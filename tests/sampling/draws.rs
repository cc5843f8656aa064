//! Draws and cuts against the exact distribution.

use super::exact::{Exact, exact, surprise};
use super::step::{Step, widths};
use crate::kernels::lab::{Draws, Lab};
use crate::support::On;
use tilewright::base::unit_from_seed;
use tilewright::kernels::sample::SampleRow;
use tilewright::record::Facts;

const SEED: u64 = 0x6472_6177;
/// Standard deviations; a right sampler passes it with 3 seeds in a million, and seeds are fixed.
const SURPRISE_MAX: f64 = 4.5;
/// Decisions nearer than this, as a part of the mass, may fall either way in f32.
const MARGIN: f64 = 1e-6;

const DRAWS: u32 = 100_000;
const PART: u32 = 2048;
const VOCAB: usize = 120;

fn row(temperature: f32) -> SampleRow {
    SampleRow { temperature, ..SampleRow::default() }
}

fn logits(draws: &mut Draws, count: usize, spread: f32) -> Vec<f32> {
    draws.values(count).iter().map(|v| v * spread).collect()
}

/// How often each token was drawn in `draws` rows that differ in their draw only.
fn counts(logits: &[f32], row: SampleRow, draws: u32, facts: &Facts, lab: &mut Lab) -> Vec<u32> {
    let mut counts = vec![0; logits.len()];
    for from in (0..draws).step_by(PART as usize) {
        let mut step = Step::new(logits.len());
        for position in from..draws.min(from + PART) {
            let unit = unit_from_seed(SEED, position);
            step.push(logits, SampleRow { unit, ..row }, &[]);
        }
        for sampled in step.run(facts, lab) {
            counts[sampled.result.token as usize] += 1;
        }
    }
    counts
}

/// The settings whose distribution is tried.
fn settings() -> Vec<(&'static str, SampleRow)> {
    vec![
        ("temperature 0.7", row(0.7)),
        ("temperature 2.5", row(2.5)),
        ("top_k 40", SampleRow { top_k: 40, ..row(1.0) }),
        ("top_p 0.9", SampleRow { top_p: 0.9, ..row(1.0) }),
        ("min_p 0.05", SampleRow { min_p: 0.05, ..row(1.0) }),
        ("top_k 60, top_p 0.8", SampleRow { top_k: 60, top_p: 0.8, ..row(1.3) }),
        ("all cuts", SampleRow { top_k: 90, top_p: 0.85, min_p: 0.1, ..row(0.9) }),
    ]
}

pub fn follow_the_distribution(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let logits = logits(&mut draws, VOCAB, 4.0);
    // The launch for the device at hand; other widths are held to the exact token below.
    let facts = lab.facts.clone();
    for (index, (name, row)) in settings().into_iter().enumerate() {
        let exact = exact(&logits, &row);
        assert!(exact.margin > MARGIN, "{name}: another seed, a cut is too near");
        // Workgroups with barriers are slow where the shader runs on the processor; there the
        // exact tokens of `are_the_exact_token` say more.
        let slow = on == On::Gpu && facts.software() && index > 0;
        let draws = if slow { DRAWS / 20 } else { DRAWS };
        let counts = counts(&logits, row, draws, &facts, &mut lab);
        let z = surprise(&counts, &exact).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(z < SURPRISE_MAX, "{name}, seed {SEED:#x}: {z:.2} standard deviations");
    }
}

/// Counts drawn from a distribution a little off do not pass.
pub fn chi_square_sees_faults() {
    let mut draws = Draws::new(SEED);
    let logits = logits(&mut draws, VOCAB, 4.0);
    let base = SampleRow { top_k: 60, ..row(1.0) };
    let right = exact(&logits, &row(1.0));
    let draw = |from: &Exact| {
        let mut counts = vec![0; VOCAB];
        for position in 0..DRAWS {
            counts[from.pick(unit_from_seed(SEED, position)).0 as usize] += 1;
        }
        counts
    };
    let z = surprise(&draw(&right), &right).expect("the same distribution");
    assert!(z < SURPRISE_MAX, "{z}");
    let warm = exact(&logits, &row(1.05));
    let z = surprise(&draw(&warm), &right).expect("the same tokens");
    assert!(z > SURPRISE_MAX, "five per cent of temperature go unseen: {z}");
    let right = exact(&logits, &base);
    let wide = exact(&logits, &SampleRow { top_k: 61, ..base });
    assert!(surprise(&draw(&wide), &right).is_err(), "a token too many goes unseen");
    let narrow = exact(&logits, &SampleRow { top_k: 50, ..base });
    let z = surprise(&draw(&narrow), &right).expect("fewer tokens");
    assert!(z > SURPRISE_MAX, "missing tokens go unseen: {z}");
}

fn random_row(draws: &mut Draws) -> SampleRow {
    let chance = |draws: &mut Draws| draws.below(2) == 0;
    SampleRow {
        temperature: [0.2, 0.7, 1.0, 1.7, 0.0][draws.below(5) as usize],
        top_k: if chance(draws) { draws.below(400) } else { 0 },
        top_p: if chance(draws) { draws.unit() } else { 1.0 },
        min_p: if chance(draws) { draws.unit() * 0.3 } else { 0.0 },
        unit: draws.unit(),
        ..SampleRow::default()
    }
}

/// Thousands of random rows: both devices and all widths pick the exact token, so they agree.
pub fn are_the_exact_token(on: On) {
    let mut lab = Lab::open(on);
    for (turn, facts) in widths(&lab).into_iter().enumerate() {
        // Vocabularies around the widths; wide workgroups are slow on software devices.
        let rows = if turn == 0 { 1000 } else { 50 };
        for vocab in [1, 2, 63, 65, 290] {
            let mut draws = Draws::new(SEED + vocab as u64);
            let mut step = Step::new(vocab);
            for _ in 0..rows {
                let logits = logits(&mut draws, vocab, 6.0);
                step.push(&logits, random_row(&mut draws), &[]);
            }
            let mut near = 0;
            for (index, sampled) in step.run(&facts, &mut lab).into_iter().enumerate() {
                let row = step.rows[index];
                let exact = exact(&step.logits[index], &row);
                let (token, margin) = exact.pick(row.unit);
                if margin < MARGIN {
                    near += 1;
                    continue;
                }
                let (got, kept) = (sampled.result.token, sampled.kept as usize);
                let what = format!("row {index} of {vocab}, seed {SEED:#x}: {row:?}");
                assert_eq!((got, kept), (token, exact.kept.len()), "{what}, margin {margin:e}");
            }
            assert!(near <= rows / 50, "{near} of {rows} rows are too near to tell");
        }
    }
}

/// (logits, row, kept tokens): the kept set is read off by draws over all of [0, 1).
fn kept_tokens(logits: &[f32], row: SampleRow, facts: &Facts, lab: &mut Lab) -> Vec<u32> {
    let mut step = Step::new(logits.len());
    for at in 0..32 {
        step.push(logits, SampleRow { unit: at as f32 / 32.0, ..row }, &[]);
    }
    let sampled = step.run(facts, lab);
    let mut tokens: Vec<u32> = sampled.iter().map(|s| s.result.token).collect();
    tokens.dedup();
    let sorted = tokens.is_sorted();
    assert!(sorted, "draws walk tokens by id: {tokens:?}");
    for sampled in sampled {
        assert_eq!(sampled.kept as usize, tokens.len(), "kept of {tokens:?}");
    }
    tokens
}

pub fn ties_take_the_lowest_id(on: On) {
    let mut lab = Lab::open(on);
    // Rivals far apart, so that they lie with different threads.
    let mut wide = vec![-9.0; 700];
    [65, 130, 131, 699].into_iter().for_each(|id| wide[id] = 2.0);
    let few = [1.0, 3.0, 3.0, 3.0, 2.0, 3.0];
    let flat = [0.5; 10];
    for facts in widths(&lab) {
        let mut check = |logits: &[f32], row: SampleRow, wanted: &[u32]| {
            let kept = kept_tokens(logits, row, &facts, &mut lab);
            assert_eq!(kept, wanted, "{row:?} on {}", facts.name);
        };
        check(&wide, row(0.0), &[65]);
        check(&few, row(0.0), &[1]);
        check(&flat, row(0.0), &[0]);
        for top_k in 1..4 {
            let row = SampleRow { top_k, ..row(0.3) };
            check(&wide, row, &[65, 130, 131][..top_k as usize]);
            check(&few, row, &[1, 2, 3][..top_k as usize]);
        }
        for (top_p, kept) in [(0.05, 1), (0.25, 3), (0.5, 5), (0.95, 10), (0.0, 1)] {
            let ids: Vec<u32> = (0..kept).collect();
            check(&flat, SampleRow { top_p, ..row(1.0) }, &ids);
        }
        // Of the four rivals two stay by top_k, and of these one by top_p.
        check(&few, SampleRow { top_k: 2, top_p: 0.5, ..row(1.0) }, &[1]);
        check(&few, SampleRow { top_k: 2, top_p: 0.6, ..row(1.0) }, &[1, 2]);
        check(&few, SampleRow { min_p: 1.0, ..row(1.0) }, &[1, 2, 3, 5]);
        check(&flat, SampleRow { top_k: 10, ..row(1.0) }, &(0..10).collect::<Vec<_>>());
    }
}

/// top_k = 1 and a tiny top_p keep one token, the greedy one, at any temperature and draw.
pub fn one_kept_token_is_the_greedy_one(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let mut step = Step::new(333);
    for index in 0..300 {
        let mut logits = logits(&mut draws, 333, 5.0);
        if index % 2 == 0 {
            // A rival one unit in the last place below, at a lower id: a warm softmax rounds both
            // to the same weight.
            let best = draws.below(300) + 33;
            logits[best as usize] = 9.0;
            logits[draws.below(best) as usize] = f32::from_bits(9.0f32.to_bits() - 1);
        }
        let temperature = [0.01, 1.0, 100.0][index % 3];
        let unit = draws.unit();
        step.push(&logits, row(0.0), &[]);
        step.push(&logits, SampleRow { top_k: 1, unit, ..row(temperature) }, &[]);
        if index % 2 == 1 {
            step.push(&logits, SampleRow { top_p: 1e-7, unit, ..row(temperature) }, &[]);
        } else {
            step.push(&logits, row(0.0), &[]);
        }
    }
    for facts in widths(&lab) {
        let sampled = step.run(&facts, &mut lab);
        for (index, rows) in sampled.chunks(3).enumerate() {
            let tokens: Vec<_> = rows.iter().map(|s| (s.result.token, s.kept)).collect();
            assert_eq!(tokens, [tokens[0]; 3], "rows {index}, seed {SEED:#x}");
            assert_eq!(tokens[0].1, 1);
        }
    }
}

/// Temperature, then top-k, then top-p, then min-p: cases whose kept set tells the order.
pub fn cuts_come_in_order(on: On) {
    let mut lab = Lab::open(on);
    let ln = |p: &[f32]| p.iter().map(|p| p.ln()).collect::<Vec<_>>();
    for facts in widths(&lab) {
        let mut check = |p: &[f32], row: SampleRow, wanted: &[u32]| {
            assert_eq!(kept_tokens(&ln(p), row, &facts, &mut lab), wanted, "{p:?} {row:?}");
        };
        let three = [0.5, 0.3, 0.2];
        // At temperature 1/2 the first has 0.66 of the mass.
        check(&three, SampleRow { top_p: 0.6, ..row(1.0) }, &[0, 1]);
        check(&three, SampleRow { top_p: 0.6, ..row(0.5) }, &[0]);
        // At temperature 2 the last has 0.63 of the first.
        check(&three, SampleRow { min_p: 0.62, ..row(1.0) }, &[0]);
        check(&three, SampleRow { min_p: 0.62, ..row(2.0) }, &[0, 1, 2]);
        // Among the first two the first has 0.57 of the mass; of all it has 0.4.
        let four = [0.4, 0.3, 0.2, 0.1];
        check(&four, SampleRow { top_p: 0.5, ..row(1.0) }, &[0, 1]);
        check(&four, SampleRow { top_k: 2, top_p: 0.5, ..row(1.0) }, &[0]);
        // min-p alone leaves two, the first with 0.66 of their mass; top-p leaves two before it.
        let late = [0.5, 0.26, 0.24];
        check(&late, SampleRow { min_p: 0.5, ..row(1.0) }, &[0, 1]);
        check(&late, SampleRow { top_p: 0.6, min_p: 0.5, ..row(1.0) }, &[0, 1]);
    }
}
