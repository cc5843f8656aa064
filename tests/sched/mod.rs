//! Rows of `sched`: the scheduler under a fake device whose tokens depend on what the paged
//! cache really holds.

mod bench;
mod check;
mod fairness;
mod memory;
mod policies;
mod pool;
mod prefix;
mod run;
mod siblings;
mod steps;
mod traces;
mod world;
mod worlds;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    pool::rows(rows);
    steps::rows(rows);
    memory::rows(rows);
    policies::rows(rows);
    fairness::rows(rows);
    prefix::rows(rows);
    siblings::rows(rows);
    worlds::rows(rows);
    check::rows(rows);
    bench::rows(rows);
    traces::rows(rows);
}
