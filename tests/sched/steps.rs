//! What a step is made of: budget, order, chunks, slots, ends, refusals.

use super::world::{World, expected, prompt};
use crate::support::Rows;
use tilewright::base::{Limits, RequestId, SequenceId};
use tilewright::sched::{NewSequence, Outcome, Plan, Scheduler};
use tilewright::trace::{Event, FinishReason, Refusal, RowPicture};

pub fn rows(rows: &mut Rows) {
    rows.add("sched::decodes_come_first_then_chunks", decodes_come_first_then_chunks);
    rows.add("sched::chunks_cover_the_prompt_once", chunks_cover_the_prompt_once);
    rows.add("sched::budget_is_shared_without_starving", budget_is_shared_without_starving);
    rows.add("sched::finish_reasons", finish_reasons);
    rows.add("sched::refusals_name_both_numbers", refusals_name_both_numbers);
    rows.add("sched::longest_output_is_accepted", longest_output_is_accepted);
    rows.add("sched::slots_are_lowest_free", slots_are_lowest_free);
    rows.add("sched::limits_change_between_steps", limits_change_between_steps);
    rows.add("sched::step_may_be_in_flight", step_may_be_in_flight);
    rows.add("sched::commit_refuses_foreign_outcomes", commit_refuses_foreign_outcomes);
    rows.add("sched::empty_plan_is_no_step", empty_plan_is_no_step);
}

pub fn limits(blocks: u32, step_tokens_max: u32, sequences_max: u32) -> Limits {
    Limits { blocks, step_tokens_max, sequences_max, ..Limits::default() }
}

/// `(sequence, start, len, samples)` of the last planned step.
fn last_rows(world: &World) -> Vec<(u32, u32, u32, bool)> {
    let rows = &world.picture.last_step.rows;
    let id = |r: &RowPicture| r.sequence.map_or(u32::MAX, |s| s.0);
    rows.iter().map(|r| (id(r), r.start, r.len, r.samples)).collect()
}

fn decodes_come_first_then_chunks() {
    let mut world = World::new(limits(64, 32, 8));
    world.submit(0, 10, 20).expect("fits");
    world.step();
    world.submit(1, 50, 20).expect("fits");
    world.submit(2, 3, 20).expect("fits");
    assert_eq!(last_rows(&world), [(0, 0, 10, true)]);
    world.step();
    assert_eq!(last_rows(&world), [(0, 10, 1, true), (1, 0, 31, false)]);
    world.step();
    assert_eq!(last_rows(&world), [(0, 11, 1, true), (1, 31, 19, true), (2, 0, 3, true)]);
    world.step();
    assert_eq!(last_rows(&world), [(0, 12, 1, true), (1, 50, 1, true), (2, 3, 1, true)]);
    world.finish(100);
}

fn chunks_cover_the_prompt_once() {
    for budget in [1, 7, 16, 64, 300] {
        let mut world = World::new(limits(64, budget, 8));
        world.submit(5, 129, 3).expect("fits");
        let mut next = 0;
        while next < 129 {
            world.step();
            let rows = last_rows(&world);
            assert_eq!(rows, [(5, next, budget.min(129 - next), next + budget >= 129)]);
            next += rows[0].2;
        }
        world.finish(10);
        assert_eq!(world.outputs[&SequenceId(5)], expected(&prompt(5, 129), 3));
    }
}

/// A budget below the sequence cap limits who runs, so that every step serves all that run.
fn budget_is_shared_without_starving() {
    let mut world = World::new(limits(256, 4, 64));
    for id in 0..12 {
        world.submit(id, 5, 6).expect("fits");
    }
    let mut served = [0u32; 12];
    while world.step() {
        assert!(world.sched.running() <= 4);
        for (sequence, ..) in last_rows(&world) {
            served[sequence as usize] = world.picture.last_step.step as u32;
        }
        let step = world.picture.last_step.step as u32;
        for s in world.sched.snapshot().running {
            let last = served[s.sequence.index()];
            assert!(step - last <= 4, "{} had no row since step {last}", s.sequence);
        }
    }
    assert!(world.finished.values().all(|&r| r == FinishReason::Length));
    assert_eq!(world.finished.len(), 12);
}

fn finish_reasons() {
    let mut sched = Scheduler::new(limits(8, 64, 4));
    let (mut plan, mut events) = (Plan::default(), Vec::new());
    for id in 0..3 {
        let new = NewSequence::new(SequenceId(id), RequestId(9), vec![1, 2, 3], 2);
        sched.submit(new, 0, &mut events).expect("fits");
    }
    sched.plan(0, &mut plan, &mut events);
    let outcome = |id, finish| Outcome { sequence: SequenceId(id), token: Some(7), finish };
    let outcomes = [outcome(0, Some(FinishReason::Stop)), outcome(1, None), outcome(2, None)];
    sched.commit(&plan, &outcomes, 0, &mut events);
    assert_eq!(sched.tokens(SequenceId(1)), [1, 2, 3, 7]);
    assert_eq!(sched.tokens(SequenceId(0)), [0u32; 0]);
    sched.plan(0, &mut plan, &mut events);
    assert!(sched.cancel(SequenceId(2), 0, &mut events));
    assert_eq!(sched.blocks(SequenceId(2)).len(), 1, "in flight, so its blocks stay");
    // The end token on the last allowed position is a stop, not a length.
    let outcomes = [outcome(1, Some(FinishReason::Stop)), outcome(2, None)];
    sched.commit(&plan, &outcomes, 0, &mut events);
    assert!(!sched.cancel(SequenceId(2), 0, &mut events));
    let ends: Vec<_> = events
        .iter()
        .filter_map(|e| match e {
            Event::SequenceFinished { sequence, reason, prompt, generated, .. } => {
                Some((sequence.0, *reason, *prompt, *generated))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        ends,
        [
            (0, FinishReason::Stop, 3, 1),
            (1, FinishReason::Stop, 3, 2),
            (2, FinishReason::Cancelled, 3, 1)
        ]
    );
    assert!(sched.is_idle());
    assert_eq!(sched.free_blocks(), 8);
    sched.check().expect("sound");
}

fn refusals_name_both_numbers() {
    let context_max = 100;
    let mut world = World::new(Limits { context_max, queue_max: 1, ..limits(4, 16, 4) });
    assert_eq!(world.submit(0, 0, 5), Err(Refusal::Empty));
    assert_eq!(world.submit(0, 5, 0), Err(Refusal::Empty));
    let error = world.submit(0, 90, 11).expect_err("too long");
    assert_eq!(error, Refusal::TooLong { needed: 101, context: 100 });
    assert!(error.to_string().contains("101") && error.to_string().contains("100"));
    let error = world.submit(0, 60, 6).expect_err("never fits");
    assert_eq!(error, Refusal::NeverFits { blocks_needed: 5, blocks_total: 4 });
    assert!(error.to_string().contains('5') && error.to_string().contains('4'));
    world.submit(0, 60, 5).expect("its last token needs no block");
    assert_eq!(world.submit(0, 5, 5), Err(Refusal::Repeated { sequence: SequenceId(0) }));
    assert_eq!(world.submit(1, 5, 5), Err(Refusal::Full { waiting: 1, max: 1 }));
    assert_eq!(
        world.submit(2, 5, u32::MAX).map_err(|e| matches!(e, Refusal::TooLong { .. })),
        Err(true)
    );
    world.step();
    world.submit(1, 5, 5).expect("room in the queue again");
    assert_eq!(world.picture.counters.refused, 7);
    world.finish(50);
}

fn longest_output_is_accepted() {
    for (blocks, context_max) in [(4, 4096), (4, 65), (4, 64), (300, 100)] {
        let mut world = World::new(Limits { context_max, ..limits(blocks, 64, 4) });
        let most = world.sched.longest_output(30);
        assert!(world.submit(0, 30, most + 1).is_err());
        world.submit(1, 30, most).expect("the longest");
        world.finish(500);
        assert_eq!(world.outputs[&SequenceId(1)].len() as u32, 30 + most);
        assert_eq!(world.sched.longest_output(5000), 0);
    }
}

fn slots_are_lowest_free() {
    let mut world = World::new(limits(200, 256, 100));
    for id in 0..70 {
        world.submit(id, 2, if id == 3 { 2 } else { 30 }).expect("fits");
    }
    world.step();
    let slots: Vec<_> = world.picture.last_step.rows.iter().map(|r| r.slot).collect();
    assert_eq!(slots, (0..70).collect::<Vec<_>>());
    world.step();
    world.submit(70, 2, 5).expect("fits");
    world.step();
    assert_eq!(world.picture.slots[3], Some(SequenceId(70)));
    world.finish(100);
}

fn limits_change_between_steps() {
    let mut world = World::new(limits(64, 64, 8));
    for id in 0..8 {
        world.submit(id, 20, 40).expect("fits");
    }
    (0..5).for_each(|_| assert!(world.step()));
    let fixed = world.sched.set_limits(limits(65, 64, 8), &mut world.events);
    let fixed = fixed.expect_err("the pool is fixed");
    assert_eq!((fixed.field, fixed.now, fixed.asked), ("blocks", 64, 65));
    // Fewer slots and tokens than are in use: those that run finish, in order of age.
    world.sched.set_limits(limits(64, 3, 2), &mut world.events).expect("may change");
    assert!(world.step());
    assert_eq!(world.picture.last_step.budget, 3);
    world.finish(2000);
    for id in 0..8 {
        assert_eq!(world.outputs[&SequenceId(id)], expected(&prompt(id, 20), 40));
    }
}

/// `plan(t + 1)` before `commit(t)`: same outputs, whatever ends, is cancelled or is preempted
/// while its next row runs.
fn step_may_be_in_flight() {
    for depth in [1, 2, 3] {
        let mut world = World::new(limits(24, 48, 8));
        world.depth = depth;
        world.stop = Some(70);
        for id in 0..12 {
            world.submit(id, 20 + id * 3, 60).expect("fits");
        }
        (0..8).for_each(|_| assert!(world.step()));
        let victim = world.sched.snapshot().running[1].sequence;
        assert!(world.cancel(victim.0));
        world.finish(2000);
        assert!(world.picture.counters.preempted > 0);
        assert_eq!(world.finished[&victim], FinishReason::Cancelled);
        assert!(world.finished.values().any(|&r| r == FinishReason::Stop));
        for (id, said) in &world.outputs {
            let prompt = prompt(id.0, 20 + id.0 * 3);
            let new = said.len() - prompt.len();
            assert_eq!(*said, expected(&prompt, new as u32), "sequence {id}, depth {depth}");
        }
    }
}

fn commit_refuses_foreign_outcomes() {
    let faults: [fn(&mut Plan, &mut Vec<Outcome>); 4] =
        [|_, o| o.clear(), |_, o| o.swap(0, 1), |p, _| p.step += 1, |_, o| o[0].token = None];
    for fault in faults {
        let mut sched = Scheduler::new(limits(8, 64, 4));
        let (mut plan, mut events) = (Plan::default(), Vec::new());
        for id in 0..2 {
            let new = NewSequence::new(SequenceId(id), RequestId(id), vec![1], 2);
            sched.submit(new, 0, &mut events).expect("fits");
        }
        sched.plan(0, &mut plan, &mut events);
        let outcome = |id| Outcome { sequence: SequenceId(id), token: Some(7), finish: None };
        let mut outcomes = vec![outcome(0), outcome(1)];
        fault(&mut plan, &mut outcomes);
        let commit = std::panic::AssertUnwindSafe(|| {
            sched.commit(&plan, &outcomes, 0, &mut Vec::new());
        });
        assert!(std::panic::catch_unwind(commit).is_err());
    }
}

fn empty_plan_is_no_step() {
    let mut world = World::new(limits(8, 64, 4));
    assert!(!world.step() && !world.step());
    assert_eq!(world.picture.counters.steps, 0);
    world.submit(0, 3, 2).expect("fits");
    world.step();
    assert_eq!(world.picture.last_step.step, 1);
    world.finish(5);
}
