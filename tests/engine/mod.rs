//! Rows of `engine`: the real loop and scheduler over a fake runner.

pub mod fake;

mod ahead;
mod asked;
mod choices;
mod draft;
mod faults;
mod fields;
mod guided;
mod held;
mod life;
mod policies;
mod replay;
mod stops;
mod thread;
mod trace;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    stops::rows(rows);
    fields::rows(rows);
    held::rows(rows);
    guided::rows(rows);
    life::rows(rows);
    faults::rows(rows);
    asked::rows(rows);
    trace::rows(rows);
    thread::rows(rows);
    policies::rows(rows);
    replay::rows(rows);
    choices::rows(rows);
    draft::rows(rows);
    ahead::rows(rows);
}
