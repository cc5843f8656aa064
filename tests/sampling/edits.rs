//! Penalties and bias: hand-computed values, and no effect outside their row.

use super::step::{Step, widths};
use crate::kernels::lab::{Draws, Lab, same_bits};
use crate::support::On;
use tilewright::kernels::sample::{Edit, SampleRow};

const SEED: u64 = 0x6564_6974;

/// repetition 2, presence 0.5, frequency 0.25.
fn penalties() -> SampleRow {
    SampleRow { repetition: 2.0, presence: 0.5, frequency: 0.25, ..SampleRow::default() }
}

fn edit(token: u32, times: u32, seen: bool, bias: f32) -> Edit {
    Edit { token, times, seen: u32::from(seen), bias, ..Edit::default() }
}

/// Repetition divides what is positive and multiplies what is not; then presence and frequency;
/// then bias.
pub fn come_in_order(on: On) {
    let mut lab = Lab::open(on);
    let logits = [4.0, -1.0, 0.0, 2.0, 2.0, -2.0, 3.0, 5.0];
    let edits = [
        edit(0, 0, true, 0.0),   // 4 / 2
        edit(1, 0, true, 0.0),   // -1 * 2
        edit(2, 0, true, 0.0),   // 0 * 2
        edit(3, 3, true, 1.5),   // 2 / 2 - 0.5 - 0.25 * 3 + 1.5
        edit(4, 3, false, 0.0),  // 2 - 0.5 - 0.75
        edit(5, 1, true, 100.0), // -2 * 2 - 0.5 - 0.25 + 100
        edit(6, 0, false, -1.0), // 3 - 1
    ];
    let wanted = [2.0, -2.0, 0.0, 1.25, 0.75, 95.25, 2.0, 5.0];
    let mut step = Step::new(logits.len());
    step.push(&logits, penalties(), &[]);
    step.push(&logits, penalties(), &edits);
    step.push(&logits, SampleRow { repetition: 0.5, ..SampleRow::default() }, &edits[..3]);
    for facts in widths(&lab) {
        let got = step.run(&facts, &mut lab);
        same_bits(&got[0].edited, &logits).expect("a row without edits");
        same_bits(&got[1].edited, &wanted).expect("hand-computed");
        same_bits(&got[2].edited[..3], &[8.0, -0.5, 0.0]).expect("a repetition below 1");
        let tokens: Vec<_> = got.iter().map(|s| s.result.token).collect();
        assert_eq!(tokens, [7, 5, 0], "the edited logits decide");
        // In another order token 3 would differ: bias first gives 0.5, presence first 1.875.
        assert_ne!(got[1].edited[3], (2.0 + 1.5) / 2.0 - 0.5 - 0.75);
    }
}

/// Rows with and without edits, alone, together, and in two launches: the same results.
pub fn stay_in_their_row(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let mut step = Step::new(130);
    for index in 0..20 {
        let logits: Vec<f32> = draws.values(130).iter().map(|v| v * 5.0).collect();
        let tokens = draws.order(130);
        let count = [0, 1, 65, 7, 130][index % 5];
        let edits: Vec<Edit> = tokens[..count]
            .iter()
            .map(|token| edit(*token, draws.below(4), draws.below(2) == 0, draws.unit()))
            .collect();
        let cuts = SampleRow { temperature: 0.8, top_k: 20, top: 6, ..penalties() };
        step.push(&logits, SampleRow { unit: draws.unit(), ..cuts }, &edits);
    }
    for facts in widths(&lab) {
        let together = step.run(&facts, &mut lab);
        let mut parts = step.run_part(0..7, &facts, &mut lab);
        parts.extend(step.run_part(7..20, &facts, &mut lab));
        assert_eq!(parts, together, "two launches, seed {SEED:#x}");
        for (index, sampled) in together.iter().enumerate() {
            let alone = step.run_part(index..index + 1, &facts, &mut lab);
            assert_eq!(alone[0], *sampled, "row {index} alone, seed {SEED:#x}");
        }
    }
}

/// A bias of 1 at temperature 1/2 weighs e^2: the draw's boundary lies at 1 / (1 + e^2) = 0.1192.
pub fn before_temperature(on: On) {
    let mut lab = Lab::open(on);
    let mut step = Step::new(2);
    let base = SampleRow { temperature: 0.5, ..SampleRow::default() };
    for unit in [0.0, 0.119, 0.1195, 0.999] {
        step.push(&[0.25, 0.25], SampleRow { unit, ..base }, &[edit(1, 0, false, 1.0)]);
    }
    for facts in widths(&lab) {
        let tokens: Vec<_> = step.run(&facts, &mut lab).iter().map(|s| s.result.token).collect();
        assert_eq!(tokens, [0, 0, 1, 1]);
    }
}
