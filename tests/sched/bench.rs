//! The cost of `plan` + `commit` with 256 running sequences: no allocation, and a time that
//! `TILEWRIGHT_BENCH=1 cargo test --release -- sched::bench` prints. No test asserts a time.

use crate::support::{Rows, allocations};
use std::time::Instant;
use tilewright::base::{Limits, RequestId, SequenceId};
use tilewright::sched::{NewSequence, Outcome, Plan, Scheduler};

pub fn rows(rows: &mut Rows) {
    rows.add("sched::steady_state_allocates_nothing", || {
        let (_, allocated) = decode(256, 400);
        assert_eq!(allocated, 0, "allocations in 400 steps of 256 sequences");
    });
    rows.add("sched::bench_256_running", || {
        let (mut nanos, _) = decode(256, 2000);
        nanos.sort_unstable();
        if std::env::var_os("TILEWRIGHT_BENCH").is_some() {
            let at = |percent: usize| nanos[(nanos.len() - 1) * percent / 100] / 1000;
            println!("plan + commit, 256 running: median {} µs, p99 {} µs", at(50), at(99));
        }
    });
}

/// Decodes `sequences` at once; the nanoseconds of each step and the allocations of all.
fn decode(sequences: u32, steps: u32) -> (Vec<u64>, u64) {
    let mut sched = Scheduler::new(Limits {
        sequences_max: sequences,
        step_tokens_max: 2 * sequences,
        blocks: sequences * 256,
        context_max: 4096,
        ..Limits::default()
    });
    let (mut plan, mut events) = (Plan::default(), Vec::new());
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut nanos = Vec::with_capacity(steps as usize);
    for id in 0..sequences {
        let new = NewSequence::new(SequenceId(id), RequestId(id), vec![id; 40], 4000);
        sched.submit(new, 0, &mut events).expect("fits");
    }
    let warm_up = 200;
    let mut before = 0;
    for step in 0..warm_up + steps {
        if step == warm_up {
            before = allocations();
        }
        events.clear();
        let start = Instant::now();
        sched.plan(u64::from(step), &mut plan, &mut events);
        let planned = start.elapsed();
        outcomes.clear();
        outcomes.extend(plan.rows.iter().map(|r| Outcome {
            sequence: r.sequence,
            token: r.samples.then_some(step),
            finish: None,
        }));
        let start = Instant::now();
        sched.commit(&plan, &outcomes, u64::from(step), &mut events);
        if step >= warm_up {
            assert_eq!(plan.rows.len(), sequences as usize);
            nanos.push((planned + start.elapsed()).as_nanos() as u64);
        }
    }
    (nanos, allocations() - before)
}
