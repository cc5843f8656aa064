//! Each policy does what its name says, and what the literature says of it can be counted.

use super::run::Run;
use super::steps::limits;
use super::world::World;
use crate::support::Rows;
use tilewright::base::{
    Admission, Batching, FairUnit, Limits, Order, Policies, Preemption, Prefill, SequenceId,
    Speculate, Victim,
};
use tilewright::trace::Event;

pub fn rows(rows: &mut Rows) {
    rows.add("sched::policies_have_text_forms", text_forms);
    rows.add("sched::static_batching_uses_a_fifth", static_batching_uses_a_fifth);
    rows.add("sched::static_batching_pads_prompts", static_batching_pads_prompts);
    rows.add("sched::dynamic_batching_waits_for_size_or_time", dynamic_batching_waits);
    rows.add("sched::prefill_policies_differ_in_stalls", prefill_policies_differ_in_stalls);
    rows.add("sched::admission_by_foreseen_memory", admission_by_foreseen_memory);
    rows.add("sched::quantile_admission_learns", quantile_admission_learns);
    rows.add("sched::predicted_lengths_are_medians", predicted_lengths_are_medians);
    rows.add("sched::victims_by_policy", victims_by_policy);
    rows.add("sched::bypass_is_bounded", bypass_is_bounded);
    rows.add("sched::step_budget_starves_nobody", step_budget_starves_nobody);
}

fn text_forms() {
    fn both<T: std::fmt::Display + std::str::FromStr + PartialEq + std::fmt::Debug>(text: &str) {
        let value: T = text.parse().unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(value.to_string(), text);
    }
    ["continuous", "static:8", "dynamic:4:50"].into_iter().for_each(both::<Batching>);
    ["prefill-first", "decode-first", "chunked"].into_iter().for_each(both::<Prefill>);
    ["conservative", "optimistic", "exact-peak", "quantile:90"]
        .into_iter()
        .for_each(both::<Admission>);
    ["youngest", "least-lost", "most-blocks"].into_iter().for_each(both::<Victim>);
    ["recompute", "swap", "auto"].into_iter().for_each(both::<Preemption>);
    ["fcfs", "shortest", "priority", "fair:requests", "fair:tokens", "fair:time"]
        .into_iter()
        .for_each(both::<Order>);
    ["off", "ngram:4:2:4"].into_iter().for_each(both::<Speculate>);
    assert_eq!("ngram".parse(), Ok(Speculate::NGRAM));
    for bad in ["ngram:0:1:2", "ngram:4:3:2", "ngram:4:0:2", "ngram:4:1:65", "ngram:4", "on"] {
        assert!(bad.parse::<Speculate>().is_err(), "{bad}");
    }
    for bad in ["", "static", "static:0", "static:x", "static:8:9", "dynamic:8", "Static:8"] {
        let error = bad.parse::<Batching>().expect_err(bad);
        assert!(error.to_string().contains("dynamic:SIZE:MILLISECONDS"), "{error}");
    }
    assert!("quantile:101".parse::<Admission>().is_err());
    let policies = Policies { order: Order::Fair { unit: FairUnit::Time }, ..Policies::default() };
    let text = serde_json::to_string(&policies).expect("JSON");
    assert!(text.contains("\"order\":\"fair:time\""), "{text}");
    assert_eq!(serde_json::from_str::<Policies>(&text).expect("back"), policies);
}

const LENGTHS: [u32; 8] = [20, 35, 40, 60, 80, 120, 200, 900];

fn batched(size: u32) -> Policies {
    Policies { batching: Batching::Static { size }, ..Policies::default() }
}

/// Thousandths of slot-steps that made a token, while every place could have been in use.
fn use_permille(policies: Policies, slots: u32, repeats: u32, drain: bool) -> u64 {
    let mut run = Run::new(limits(4096, 4096, slots), policies);
    for _ in 0..repeats {
        for length in LENGTHS {
            run.submit(16, length, |_| {}).expect("fits");
        }
    }
    let (mut events, mut made, mut all) = (Vec::new(), 0u64, 0u64);
    while run.step(&mut events) && (drain || run.sched.waiting() > 0) {
        made += run.plan.rows.iter().filter(|r| r.samples).count() as u64;
        all += u64::from(slots);
    }
    made * 1000 / all
}

/// Lengths 20 35 40 60 80 120 200 900 in a batch of 8: 1455 of 7200 slot-steps.
fn static_batching_uses_a_fifth() {
    assert_eq!(use_permille(batched(8), 8, 1, true), 202);
    let by_size = [2, 4, 8, 16, 32].map(|size| use_permille(batched(size), size, 8, true));
    assert!(by_size.is_sorted_by(|a, b| a > b) || by_size[3] == by_size[2], "{by_size:?}");
    assert!(by_size[0] > 2 * by_size[2], "{by_size:?}");
    let continuous = use_permille(Policies::default(), 8, 8, false);
    assert!(continuous >= 990, "{continuous}");
}

fn static_batching_pads_prompts() {
    let mut world = World::with(limits(64, 300, 8), batched(3));
    world.submit(0, 10, 4).expect("fits");
    world.submit(1, 50, 2).expect("fits");
    assert!(world.step());
    let rows = |world: &World| {
        let rows = world.picture.last_step.rows.iter();
        rows.map(|r| (r.sequence.map(|s| s.0), r.slot, r.start, r.len, r.pad)).collect::<Vec<_>>()
    };
    assert_eq!(
        rows(&world),
        [
            (Some(0), 0, 0, 10, false),
            (Some(0), 0, 10, 40, true),
            (Some(1), 1, 0, 50, false),
            (None, 2, 0, 50, true)
        ]
    );
    world.submit(2, 5, 5).expect("waits for the next batch");
    assert!(world.step());
    assert_eq!(
        rows(&world),
        [(Some(0), 0, 10, 1, false), (Some(1), 1, 50, 1, false), (None, 2, 50, 1, true)]
    );
    assert!(world.step());
    // Sequence 1 has ended; its place goes on.
    let ended = [(Some(0), 0, 11, 1, false), (Some(1), 1, 51, 1, true), (None, 2, 51, 1, true)];
    assert_eq!(rows(&world), ended);
    assert!(world.step() && world.step());
    assert_eq!(rows(&world)[0], (Some(2), 0, 0, 5, false), "the next batch");
    world.finish(20);
    assert_eq!(world.picture.counters.padding_tokens, 90 + 1 + 2 + 2 + 2 * 5 + 2 * 4);
}

fn dynamic_batching_waits() {
    let batching = Batching::Dynamic { size: 3, timeout_ms: 10 };
    let mut world = World::with(limits(64, 64, 8), Policies { batching, ..Policies::default() });
    world.submit(0, 5, 30).expect("fits");
    let arrived = world.now;
    assert!(!world.step());
    assert_eq!(world.sched.wake_at(), Some(arrived + 10_000));
    world.submit(1, 5, 3).expect("fits");
    while !world.step() {}
    assert_eq!((world.now, world.sched.running()), (arrived + 10_000, 2), "time is up");
    for id in 2..5 {
        world.submit(id, 5, 3).expect("fits");
    }
    (0..29).for_each(|_| assert!(world.step()));
    assert_eq!(world.sched.waiting(), 3, "late ones wait for the batch to end");
    assert!(world.step());
    assert_eq!(world.sched.running(), 3, "a full batch starts at once");
    world.finish(20);
}

/// Steps without a token for sequence 0 while the prompt of another is computed, and whether the
/// other began before sequence 0 ended.
fn stall(prefill: Prefill) -> (u32, bool) {
    let mut run = Run::new(limits(256, 100, 8), Policies { prefill, ..Policies::default() });
    run.submit(10, 30, |_| {}).expect("fits");
    let mut events = Vec::new();
    assert!(run.step(&mut events));
    run.submit(800, 5, |_| {}).expect("fits");
    let (mut stalled, mut began_early) = (0, false);
    while run.step(&mut events) {
        let of = |id| run.plan.rows.iter().any(|r| r.sequence == SequenceId(id));
        let alive = !run.sched.tokens(SequenceId(0)).is_empty();
        stalled += u32::from(!of(0) && alive);
        began_early |= of(1) && alive;
    }
    (stalled, began_early)
}

fn prefill_policies_differ_in_stalls() {
    assert_eq!(stall(Prefill::PrefillFirst), (8, true));
    assert_eq!(stall(Prefill::Chunked), (0, true));
    assert_eq!(stall(Prefill::DecodeFirst), (0, false));
    // Short requests that never end arriving hold decoding up for a bounded time.
    let prefill = Prefill::PrefillFirst;
    let mut run = Run::new(limits(256, 100, 8), Policies { prefill, ..Policies::default() });
    run.submit(10, 30, |_| {}).expect("fits");
    let mut events = Vec::new();
    for _ in 0..17 * 32 {
        run.submit(20, 1, |_| {}).expect("fits");
        run.step(&mut events);
    }
    assert!(run.sched.tokens(SequenceId(0)).is_empty(), "still not done");
}

/// Runs 40 requests in a small pool; the most that ran at once, and the preemptions.
fn pressed(admission: Admission, new: u32, made: u32) -> (u32, u32) {
    let limits = Limits { watermark_permille: 0, ..limits(60, 4096, 64) };
    let mut run = Run::new(limits, Policies { admission, bypass_max: 0, ..Policies::default() });
    let (mut events, mut most, mut preempted) = (Vec::new(), 0, 0);
    for id in 0..40 {
        run.submit(20 + id % 30, new + id, |n| n.predicted = Some(made)).expect("fits");
    }
    while run.step(&mut events) {
        most = most.max(run.plan.rows.len() as u32);
        preempted += run.plan.preempted;
        let is_made = |id: &u32| run.sched.tokens(SequenceId(*id)).len() as u32 > 50 + made;
        for id in (0..40).filter(is_made).collect::<Vec<_>>() {
            run.sched.cancel(SequenceId(id), run.now, &mut run.events);
        }
    }
    (most, preempted)
}

fn admission_by_foreseen_memory() {
    let conservative = pressed(Admission::Conservative, 100, 1000);
    let exact = pressed(Admission::ExactPeak, 100, 1000);
    let optimistic = pressed(Admission::Optimistic, 100, 1000);
    assert_eq!((conservative.1, exact.1), (0, 0), "no preemption");
    assert!(exact.0 > conservative.0, "{exact:?} {conservative:?}");
    assert!(optimistic.0 > exact.0 && optimistic.1 > 0, "{optimistic:?} {exact:?}");
    // Outputs end far below what was allowed, as foretold.
    let quantile = pressed(Admission::Quantile { percent: 90 }, 600, 30);
    let exact = pressed(Admission::ExactPeak, 600, 30);
    assert!(quantile.0 > exact.0, "{quantile:?} {exact:?}");
}

fn quantile_admission_learns() {
    let admission = Admission::Quantile { percent: 80 };
    let mut run = Run::new(limits(60, 4096, 64), Policies { admission, ..Policies::default() });
    let mut events = Vec::new();
    let mut burst = |run: &mut Run| {
        for _ in 0..40 {
            run.submit(20, 400, |_| {}).expect("fits");
        }
        let mut most = 0;
        while run.step(&mut events) {
            most = most.max(if most == 0 { run.plan.rows.len() } else { 0 });
            // Every output stops at ten tokens.
            for row in run.plan.rows.clone() {
                if run.sched.tokens(row.sequence).len() == 30 {
                    let reason = tilewright::trace::FinishReason::Stop;
                    run.sched.finish(row.sequence, reason, run.now, &mut run.events);
                }
            }
        }
        most
    };
    let (first, second) = (burst(&mut run), burst(&mut run));
    assert!(second >= 2 * first, "{first} at once, then {second}");
    assert!((10..=11).contains(&predicted(&mut run)));
}

/// What a new request is expected to make.
fn predicted(run: &mut Run) -> u32 {
    run.events.clear();
    run.submit(20, 400, |_| {}).expect("fits");
    match run.events.last() {
        Some(Event::RequestArrived { predicted, .. }) => *predicted,
        other => panic!("{other:?}"),
    }
}

/// Lengths are told apart to a quarter at least; half of the outputs decide; 15 are too few.
fn predicted_lengths_are_medians() {
    for (short, long) in [(1, 300), (7, 300), (10, 300), (100, 390)] {
        for (shorts, longs, right) in [(8, 8, short), (7, 9, long), (7, 8, 400)] {
            let mut run = Run::new(limits(4096, 4096, 64), Policies::default());
            let mut events = Vec::new();
            for n in 0..shorts + longs {
                let new = if n < shorts { short } else { long };
                run.submit(20, new, |_| {}).expect("fits");
            }
            while run.step(&mut events) {}
            let found = predicted(&mut run);
            assert!(found >= right && found <= right + right / 4, "{found} for {right}");
        }
    }
}

fn victims_by_policy() {
    // Sequence 1 has the most blocks, 2 has computed the least, 3 is the youngest.
    let victim_of = |victim| {
        let small = Limits { watermark_permille: 0, block_size: 4, ..limits(18, 512, 8) };
        let mut run = Run::new(small, Policies { victim, ..Policies::default() });
        for (prompt, new) in [(16, 20), (24, 20), (13, 20), (14, 20)] {
            run.submit(prompt, new, |_| {}).expect("fits");
        }
        let mut events = Vec::new();
        loop {
            assert!(run.step(&mut events));
            let preempted = events.iter().find_map(|e| match e {
                Event::SequencePreempted { victim, .. } => Some(victim.0),
                _ => None,
            });
            if let Some(victim) = preempted {
                return victim;
            }
        }
    };
    assert_eq!(victim_of(Victim::Youngest), 3);
    assert_eq!(victim_of(Victim::MostBlocks), 1);
    assert_eq!(victim_of(Victim::LeastLost), 2);
}

/// A large one waits for memory; of the small ones behind it a fixed number pass.
fn bypass_is_bounded() {
    for bypass_max in [0, 1, 4] {
        let mut run = Run::new(limits(20, 512, 16), Policies { bypass_max, ..Policies::default() });
        let mut events = Vec::new();
        run.submit(16 * 10, 100, |_| {}).expect("fits");
        run.step(&mut events);
        let large = run.submit(16 * 12, 5, |_| {}).expect("fits");
        let mut passed = 0;
        for _ in 0..400 {
            run.submit(10, 2, |_| {});
            run.step(&mut events);
            for event in &events {
                match event {
                    Event::SequenceAdmitted { sequence, .. } if sequence.0 == large => {
                        assert_eq!(passed, bypass_max);
                        // Later admissions are no bypass.
                        passed = u32::MAX;
                    }
                    Event::SequenceAdmitted { sequence, passed: over, .. } => {
                        assert!(passed == u32::MAX || *over == 1 || sequence.0 == 0);
                        passed = passed.saturating_add(1);
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(passed, u32::MAX, "the large one was let in");
    }
}

fn step_budget_starves_nobody() {
    let mut run = Run::new(limits(64, 256, 8), Policies::default());
    let mut events = Vec::new();
    run.sched.set_step_budget(Some(16));
    for _ in 0..8 {
        run.submit(40, 20, |_| {}).expect("fits");
    }
    while run.step(&mut events) {
        assert!(run.plan.budget == 16 && run.plan.tokens <= 16);
        run.sched.set_step_budget(Some(16));
    }
    for _ in 0..8 {
        run.submit(5, 20, |_| {}).expect("fits");
    }
    (0..4).for_each(|_| assert!(run.step(&mut events)));
    run.sched.set_step_budget(Some(1));
    run.step(&mut events);
    assert_eq!((run.plan.rows.len(), run.plan.budget), (8, 8));
}
