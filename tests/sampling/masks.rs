//! Masks: a row takes only the ids its mask names, whatever bias, cuts and neighbours say, and a
//! row without a mask does not notice.

use super::step::{Step, widths};
use crate::kernels::lab::{Draws, Lab, same_bits};
use crate::support::On;
use tilewright::kernels::sample::{Edit, SampleRow};

const SEED: u64 = 0x6d61_736b;
/// No multiple of 32, so that the last word is cut.
const VOCAB: usize = 75;

fn allowed(masks: &[u32], mask: usize, id: u32) -> bool {
    let words = VOCAB.div_ceil(32);
    masks[mask * words + id as usize / 32] >> (id % 32) & 1 == 1
}

pub fn keep_rows_to_their_ids(on: On) {
    let mut lab = Lab::open(on);
    let mut draws = Draws::new(SEED);
    let (mut held, mut free) = (Step::new(VOCAB), Step::new(VOCAB));
    // The last mask allows one id only, the very last one.
    let mut masks = Vec::new();
    for _ in 0..5 {
        masks.extend((0..3).map(|_| draws.below(u32::MAX) & draws.below(u32::MAX)));
    }
    masks.extend([0, 0, 1 << 10]);
    held.masks = masks.clone();
    for index in 0..24u32 {
        let logits: Vec<f32> = draws.values(VOCAB).iter().map(|v| v * 6.0).collect();
        let mask = if index % 4 == 3 { 0 } else { index % 6 + 1 };
        // A bias on an id that may not come lifts nothing.
        let barred =
            (0..VOCAB as u32).find(|id| mask > 0 && !allowed(&masks, mask as usize - 1, *id));
        let edits: Vec<Edit> = barred
            .map(|token| Edit { token, bias: 100.0, seen: 1, ..Edit::default() })
            .into_iter()
            .collect();
        let row = SampleRow {
            temperature: [0.0, 0.9][index as usize % 2],
            top_k: [0, 3][index as usize / 2 % 2],
            top_p: [1.0, 0.7][index as usize / 4 % 2],
            repetition: 0.001,
            unit: draws.unit(),
            top: 3,
            mask,
            ..SampleRow::default()
        };
        held.push(&logits, row, &edits);
        free.push(&logits, SampleRow { mask: 0, ..row }, &edits);
    }
    for facts in widths(&lab) {
        let got = held.run(&facts, &mut lab);
        let without = free.run(&facts, &mut lab);
        let mut parts = held.run_part(0..11, &facts, &mut lab);
        parts.extend(held.run_part(11..24, &facts, &mut lab));
        assert_eq!(parts, got, "two launches, seed {SEED:#x}");
        for (index, (sampled, free)) in got.iter().zip(&without).enumerate() {
            let mask = held.rows[index].mask as usize;
            if mask == 0 {
                assert_eq!(sampled, free, "row {index} has no mask");
                continue;
            }
            let token = sampled.result.token;
            assert!(allowed(&masks, mask - 1, token), "row {index} took {token}, seed {SEED:#x}");
            assert_eq!(sampled.result.top, free.result.top, "logprobs are of raw logits");
            for id in 0..VOCAB as u32 {
                let (a, b) = (sampled.edited[id as usize], free.edited[id as usize]);
                let wanted = if allowed(&masks, mask - 1, id) { b } else { -1e30 };
                same_bits(&[a], &[wanted]).unwrap_or_else(|e| panic!("row {index}, id {id}: {e}"));
            }
        }
        assert!(got.iter().zip(&without).any(|(a, b)| a.result.token != b.result.token));
    }
}
