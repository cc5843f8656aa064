//! Random worlds: any policies, any pool; anything may arrive, begin like another, be one of
//! several of its request, be cancelled or end at any moment; policies may change in mid-run.
//! Every step is checked by [`World`], every output compared, and every world runs twice to the
//! same bytes.

use super::world::{Dice, Guesses, World, expected_within, prompt};
use crate::support::Rows;
use tilewright::base::{
    Admission, Batching, FairUnit, Limits, Order, Policies, Preemption, Prefill, PrefixCache,
    RequestId, SequenceId, Speculate, TokenId, Victim,
};
use tilewright::sched::{NewSequence, Tag, WorkCosts};
use tilewright::trace::FinishReason;

pub fn rows(rows: &mut Rows) {
    for part in 0..4 {
        rows.add(format!("sched::worlds_run_twice_to_equal_traces_{part}"), move || {
            for seed in 0..250 {
                let seed = part * 1000 + seed;
                let first = world(seed, 60, None);
                assert_eq!(first.lines, world(seed, 60, None).lines, "seed {seed}");
            }
        });
    }
    rows.add("sched::ten_thousand_operations_leak_nothing", ten_thousand_operations);
}

fn random_limits(dice: &mut Dice) -> Limits {
    Limits {
        sequences_max: dice.between(1, 12),
        step_tokens_max: [1, 3, 16, 64, 512][dice.below(5) as usize],
        block_size: [1, 4, 16, 32][dice.below(4) as usize],
        blocks: dice.between(4, 40),
        context_max: 256,
        queue_max: dice.between(1, 20),
        queue_timeout_ms: 0,
        host_blocks: [0, 3, 40][dice.below(3) as usize],
        watermark_permille: [0, 20, 100, 500][dice.below(4) as usize],
        window: dice.chance(40).then(|| dice.between(1, 50)),
    }
}

pub fn random_policies(dice: &mut Dice) -> Policies {
    let size = dice.between(1, 8);
    let batching = match dice.below(6) {
        0 => Batching::Static { size },
        1 => Batching::Dynamic { size, timeout_ms: dice.below(20) },
        _ => Batching::Continuous,
    };
    let prefill =
        [Prefill::Chunked, Prefill::PrefillFirst, Prefill::DecodeFirst][dice.below(3) as usize];
    let admission = match dice.below(4) {
        0 => Admission::Conservative,
        1 => Admission::ExactPeak,
        2 => Admission::Quantile { percent: dice.between(1, 100) },
        _ => Admission::Optimistic,
    };
    let unit = [FairUnit::Requests, FairUnit::Tokens, FairUnit::Time][dice.below(3) as usize];
    let order = match dice.below(4) {
        0 => Order::Shortest,
        1 => Order::Priority,
        2 => Order::Fair { unit },
        _ => Order::Fcfs,
    };
    Policies {
        batching,
        prefill,
        admission,
        victim: [Victim::Youngest, Victim::LeastLost, Victim::MostBlocks][dice.below(3) as usize],
        preemption: [Preemption::Recompute, Preemption::Swap, Preemption::Auto]
            [dice.below(3) as usize],
        order,
        aging: dice.chance(70).then(|| u64::from(dice.below(5000))),
        bypass_max: dice.below(5),
        prefix_cache: [PrefixCache::On, PrefixCache::Off][dice.below(2) as usize],
        itl_target_micros: None,
        // Offers come from the world.
        speculate: Speculate::Off,
    }
}

/// A world of `operations` random operations, run to its end.
fn world(seed: u64, operations: u32, limits: Option<Limits>) -> World {
    let mut dice = Dice::new(seed);
    let policies =
        if seed.is_multiple_of(5) { Policies::default() } else { random_policies(&mut dice) };
    let given = limits.is_some();
    let limits = limits.unwrap_or_else(|| random_limits(&mut dice));
    let mut world = World::with(limits, policies);
    let block_picos = u64::from(dice.below(4)) * 20_000;
    world.sched.set_costs(WorkCosts { token_picos: 1000, pair_picos: 100, block_picos });
    world.depth = dice.between(1, 3) as usize;
    world.stop = dice.chance(50).then(|| dice.between(5, 40));
    let changes = dice.chance(30);
    let (most, any) = (dice.between(1, 9), [0, 50, 90, 100][dice.below(4) as usize]);
    // A world of given limits is one that both kinds of guesses are counted in.
    let right_percent = if given { 50 } else { any };
    if !seed.is_multiple_of(3) {
        world.guesses = Some(Guesses { dice: Dice::new(seed), most, right_percent });
    }
    if dice.chance(50) {
        world.sched.narrow_hashes(dice.between(1, 3));
    }
    let mut asked = Vec::new();
    for id in 0..operations {
        operate(&mut world, &mut dice, id, changes, &mut asked);
    }
    world.finish(200_000);
    for (id, prompt, max_new) in asked {
        let said = &world.outputs[&SequenceId(id)];
        let new = (said.len() - prompt.len()) as u32;
        let right = expected_within(&prompt, new, limits.window);
        assert_eq!(*said, right, "seed {seed}, sequence {id}");
        if world.finished[&SequenceId(id)] == FinishReason::Length {
            assert_eq!(new, max_new);
        }
    }
    let most = world.preemptions.values().max().copied().unwrap_or(0);
    assert!(most <= 3 || changes, "seed {seed}: {most} preemptions of one sequence");
    world
}

fn operate(
    world: &mut World,
    dice: &mut Dice,
    id: u32,
    changes: bool,
    asked: &mut Vec<(u32, Vec<TokenId>, u32)>,
) {
    match dice.below(10) {
        0..=3 => {
            let max_new = dice.between(1, 60);
            let prompt = random_prompt(dice, id, asked);
            // Ids of further choices are far from those of requests.
            let choices = if dice.chance(25) { dice.between(2, 4) } else { 1 };
            let tag: Tag = ["", "salt"][dice.below(2) as usize].into();
            let new = NewSequence {
                tenant: dice.below(4),
                class: dice.below(9) as u8,
                predicted: dice.chance(30).then(|| dice.below(100)),
                tag,
                siblings: choices > 1,
                ..NewSequence::new(SequenceId(id), RequestId(id), prompt.clone(), max_new)
            };
            for choice in 0..choices {
                let sequence = SequenceId(id + choice * 1_000_000);
                if world.submit_new(NewSequence { sequence, ..new.clone() }).is_ok() {
                    asked.push((sequence.0, prompt.clone(), max_new));
                }
            }
        }
        4 => {
            world.cancel(dice.below(id + 1));
        }
        5 if changes => {
            let limits = Limits {
                sequences_max: dice.between(1, 12),
                step_tokens_max: dice.between(1, 100),
                ..*world.sched.limits()
            };
            world.sched.set_limits(limits, &mut world.events).expect("may change");
            world.sched.set_policies(random_policies(dice), &mut world.events);
            world.sched.set_step_budget(dice.chance(50).then(|| dice.below(50)));
            world.sched.force_preemption();
            world.cancel(u32::MAX);
        }
        _ => {
            world.step();
        }
    }
}

/// Often the beginning of an earlier one, sometimes all of it, with other tokens after it.
fn random_prompt(dice: &mut Dice, id: u32, asked: &[(u32, Vec<TokenId>, u32)]) -> Vec<TokenId> {
    let own = prompt(id, dice.between(1, 80));
    if asked.is_empty() || dice.chance(40) {
        return own;
    }
    let earlier = &asked[dice.below(asked.len() as u32) as usize].1;
    let common = dice.between(1, earlier.len() as u32) as usize;
    let own = &own[..(dice.below(30) as usize).min(own.len())];
    let mut tokens = [&earlier[..common], own].concat();
    tokens.truncate(80);
    tokens
}

fn ten_thousand_operations() {
    let limits = Limits {
        blocks: 24,
        host_blocks: 12,
        sequences_max: 8,
        step_tokens_max: 64,
        queue_max: 20,
        ..Limits::default()
    };
    for seed in [40, 41, 42] {
        let world = world(seed, 10_000, Some(limits));
        assert_eq!((world.sched.free_blocks(), world.sched.free_host_blocks()), (24, 12));
        assert!(world.finished.len() > 250, "{} finished", world.finished.len());
        // Seed 40 runs the default policies.
        let counters = &world.picture.counters;
        assert!(seed != 40 || counters.preempted > 0 && counters.lost_tokens > 0);
        assert!(seed != 40 || world.swapped_in > 0, "some go to host memory, some do not");
        let used = [counters.matched_tokens, counters.shared_tokens, counters.blocks_copied];
        let used = used.into_iter().chain([counters.blocks_evicted, counters.blocks_merged]);
        assert!(seed != 40 || used.min() > Some(0), "{counters:?}");
        let (tried, right) = (counters.drafted_tokens, counters.drafts_right);
        assert!(seed == 42 || right > 50 && tried > right, "{right} of {tried} guesses");
    }
}
