//! Rows of sampling on the device: the distribution of its draws, its cuts and ties, edits of
//! logits, logprobs, and rows that must not disturb each other.

mod draws;
mod edits;
mod exact;
mod logprobs;
mod masks;
mod step;

use crate::support::{On, Rows};

pub fn rows(rows: &mut Rows) {
    rows.add("sampling::chi_square_sees_faults", draws::chi_square_sees_faults);
    for (on, present) in On::all() {
        for (name, body) in [
            ("draws_follow_the_distribution", draws::follow_the_distribution as fn(On)),
            ("draws_are_the_exact_token", draws::are_the_exact_token),
            ("ties_take_the_lowest_id", draws::ties_take_the_lowest_id),
            ("one_kept_token_is_the_greedy_one", draws::one_kept_token_is_the_greedy_one),
            ("cuts_come_in_order", draws::cuts_come_in_order),
            ("edits_come_in_order", edits::come_in_order),
            ("edits_stay_in_their_row", edits::stay_in_their_row),
            ("edits_change_the_draw_before_temperature", edits::before_temperature),
            ("masks_keep_rows_to_their_ids", masks::keep_rows_to_their_ids),
            ("logprobs_are_of_raw_logits", logprobs::are_of_raw_logits),
            ("top_logprobs_are_ordered", logprobs::top_are_ordered),
            ("broken_rows_are_flagged_alone", logprobs::broken_rows_are_flagged_alone),
            ("large_vocabulary", logprobs::large_vocabulary),
        ] {
            let row = format!("sampling::{name}.{}", on.name());
            rows.add_if(present.clone(), row, move |()| body(on));
        }
    }
}
