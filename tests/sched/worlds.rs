//! Random worlds: anything may arrive, be cancelled or end at any moment; every step is checked
//! by [`World`], every output compared, and every world runs twice to the same bytes.

use super::world::{Dice, World, expected, prompt};
use crate::support::Rows;
use tilewright::base::{Limits, SequenceId};
use tilewright::trace::FinishReason;

pub fn rows(rows: &mut Rows) {
    rows.add("sched::worlds_run_twice_to_equal_traces", || {
        for seed in 0..150 {
            let first = world(seed, 60);
            assert_eq!(first.lines, world(seed, 60).lines, "seed {seed}");
        }
    });
    rows.add("sched::worlds_finish_with_right_outputs", || {
        for seed in 1000..1200 {
            world(seed, 100);
        }
    });
    rows.add("sched::ten_thousand_operations_leak_nothing", ten_thousand_operations);
}

fn random_limits(dice: &mut Dice) -> Limits {
    let block_size = [1, 4, 16, 32][dice.below(4) as usize];
    Limits {
        sequences_max: dice.between(1, 12),
        step_tokens_max: [1, 3, 16, 64, 512][dice.below(5) as usize],
        block_size,
        blocks: dice.between(4, 40),
        context_max: 256,
        queue_max: dice.between(1, 20),
        watermark_permille: [0, 20, 100, 500][dice.below(4) as usize],
    }
}

/// A world of `operations` random operations, run to its end.
pub fn world(seed: u64, operations: u32) -> World {
    let mut dice = Dice::new(seed);
    let mut world = World::new(random_limits(&mut dice));
    world.depth = dice.between(1, 3) as usize;
    world.stop = dice.chance(50).then(|| dice.between(5, 40));
    let mut asked = Vec::new();
    for id in 0..operations {
        operate(&mut world, &mut dice, id, &mut asked);
    }
    world.finish(200_000);
    for (id, prompt_len, max_new) in asked {
        let said = &world.outputs[&SequenceId(id)];
        let new = said.len() as u32 - prompt_len;
        assert_eq!(*said, expected(&prompt(id, prompt_len), new), "seed {seed}, sequence {id}");
        if world.finished[&SequenceId(id)] == FinishReason::Length {
            assert_eq!(new, max_new);
        }
    }
    let most = world.preemptions.values().max().copied().unwrap_or(0);
    assert!(most <= 3, "seed {seed}: {most} preemptions of one sequence");
    world
}

fn operate(world: &mut World, dice: &mut Dice, id: u32, asked: &mut Vec<(u32, u32, u32)>) {
    match dice.below(10) {
        0..=3 => {
            let (prompt_len, max_new) = (dice.between(1, 80), dice.between(1, 60));
            if world.submit(id, prompt_len, max_new).is_ok() {
                asked.push((id, prompt_len, max_new));
            }
        }
        4 => {
            world.cancel(dice.below(id + 1));
        }
        5 if dice.chance(20) => {
            let now = *world.sched.limits();
            let changed = Limits {
                sequences_max: dice.between(1, 12),
                step_tokens_max: dice.between(1, 100),
                ..now
            };
            world.sched.set_limits(changed, &mut world.events).expect("may change");
            world.cancel(u32::MAX);
        }
        _ => {
            world.step();
        }
    }
}

fn ten_thousand_operations() {
    let world = world(42, 10_000);
    assert_eq!(world.sched.free_blocks(), world.sched.limits().blocks);
    assert!(world.finished.len() > 500, "{} finished", world.finished.len());
}
