//! The cost of `plan` + `commit` with 256 running sequences, alone and with 10,000 waiting, under
//! every kind of policy: no allocation, and times that `TILEWRIGHT_BENCH=1 cargo test --release --
//! sched::bench` prints. No test asserts a time.

use crate::support::{Rows, allocations};
use std::time::Instant;
use tilewright::base::{Admission, FairUnit, Limits, Order, Policies, RequestId, SequenceId};
use tilewright::sched::{NewSequence, Outcome, Plan, Scheduler};

pub fn rows(rows: &mut Rows) {
    rows.add("sched::steady_state_allocates_nothing", || {
        for (name, policies) in settings() {
            for waiting in [0, 500] {
                let (_, allocated) = decode(policies, 256, waiting, 400);
                assert_eq!(allocated, 0, "allocations in 400 steps, {name}, {waiting} waiting");
            }
        }
    });
    rows.add("sched::bench_256_running", || {
        if std::env::var_os("TILEWRIGHT_BENCH").is_none() {
            return;
        }
        for (name, policies) in settings() {
            for waiting in [0, 10_000] {
                let (mut nanos, _) = decode(policies, 256, waiting, 2000);
                nanos.sort_unstable();
                let at = |percent: usize| nanos[(nanos.len() - 1) * percent / 100] as f64 / 1000.0;
                println!(
                    "plan + commit, 256 running, {waiting:5} waiting, {name}: \
                     median {:.1} µs, p99 {:.1} µs",
                    at(50),
                    at(99)
                );
            }
        }
    });
}

fn settings() -> Vec<(&'static str, Policies)> {
    let with = |order, admission| Policies { order, admission, ..Policies::default() };
    let fair = Order::Fair { unit: FairUnit::Tokens };
    vec![
        ("fcfs, optimistic", Policies::default()),
        ("shortest, conservative", with(Order::Shortest, Admission::Conservative)),
        ("priority, exact peak", with(Order::Priority, Admission::ExactPeak)),
        ("fair, quantile", with(fair, Admission::Quantile { percent: 100 })),
    ]
}

/// Decodes `running` sequences at once while `waiting` more find no memory; the nanoseconds of
/// each step and the allocations of all.
fn decode(policies: Policies, running: u32, waiting: u32, steps: u32) -> (Vec<u64>, u64) {
    let limits = Limits {
        sequences_max: running + 8,
        step_tokens_max: 4 * running,
        blocks: running * 256,
        context_max: 4096,
        queue_max: u32::MAX,
        watermark_permille: 0,
        ..Limits::default()
    };
    let mut sched = Scheduler::with_policies(limits, policies);
    let (mut plan, mut events) = (Plan::default(), Vec::new());
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut nanos = Vec::with_capacity(steps as usize);
    let submit = |sched: &mut Scheduler, events: &mut Vec<_>, id: u32| {
        let prompt = vec![id; 90];
        let tenant = id;
        let new = NewSequence::new(SequenceId(id), RequestId(id), prompt, 4000);
        sched.submit(NewSequence { tenant, ..new }, 0, events).expect("fits");
    };
    (0..running).for_each(|id| submit(&mut sched, &mut events, id));
    let warm_up = 300;
    let mut before = 0;
    for step in 0..warm_up + steps {
        if step == 100 {
            // From here on the watermark keeps everybody out; other policies need no help.
            let full = Limits { watermark_permille: 1000, ..limits };
            sched.set_limits(full, &mut events).expect("may change");
            (running..running + waiting).for_each(|id| submit(&mut sched, &mut events, id));
        }
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
            assert_eq!((plan.rows.len() as u32, sched.waiting()), (running, waiting));
            nanos.push((planned + start.elapsed()).as_nanos() as u64);
        }
    }
    (nanos, allocations() - before)
}
