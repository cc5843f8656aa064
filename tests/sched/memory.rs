//! Pools too small for their work: preemption, watermark, requests that can never fit.

use super::steps::limits;
use super::world::{World, expected, prompt};
use crate::support::Rows;
use tilewright::base::{Limits, Policies, Preemption, SequenceId};
use tilewright::sched::WorkCosts;
use tilewright::trace::{FinishReason, Refusal};

pub fn rows(rows: &mut Rows) {
    rows.add("sched::tiny_pool_finishes_all", tiny_pool_finishes_all);
    rows.add("sched::case_37_never_fits", case_37_never_fits);
    rows.add("sched::case_37_all_finish", case_37_all_finish);
    rows.add("sched::watermark_only_while_something_runs", watermark);
    rows.add("sched::preemption_keeps_tokens", preemption_keeps_tokens);
    rows.add("sched::oldest_is_never_interrupted", oldest_is_never_interrupted);
    rows.add("sched::preemptions_are_bounded", preemptions_are_bounded);
    rows.add("sched::cancel_frees_blocks", cancel_frees_blocks);
    rows.add("sched::swap_keeps_what_was_computed", swap_keeps_what_was_computed);
    rows.add("sched::auto_swaps_where_that_is_cheaper", auto_swaps_where_that_is_cheaper);
}

fn no_bypass() -> Policies {
    Policies { bypass_max: 0, ..Policies::default() }
}

fn finished_right(world: &World, id: u32, prompt_len: u32, max_new: u32) {
    assert_eq!(world.finished[&SequenceId(id)], FinishReason::Length);
    let right = expected(&prompt(id, prompt_len), max_new);
    assert_eq!(world.outputs[&SequenceId(id)], right, "sequence {id}");
}

fn tiny_pool_finishes_all() {
    for watermark_permille in [0, 20, 100] {
        for step_tokens_max in [16, 64, 2048] {
            let limits = Limits { watermark_permille, ..limits(24, step_tokens_max, 12) };
            let mut world = World::new(limits);
            for id in 0..12 {
                world.submit(id, 30 + 7 * id, 64).expect("fits");
            }
            world.finish(5000);
            assert!(world.picture.counters.preempted > 0);
            assert_eq!(world.picture.free_blocks(), 24);
            (0..12).for_each(|id| finished_right(&world, id, 30 + 7 * id, 64));
        }
    }
}

fn case_37_never_fits() {
    let mut world = World::new(Limits { context_max: 8192, ..limits(8, 64, 8) });
    world.submit(0, 20, 20).expect("an innocent one");
    world.step();
    let refused = world.submit(1, 129, 1);
    assert_eq!(refused, Err(Refusal::NeverFits { blocks_needed: 9, blocks_total: 8 }));
    let refused = world.submit(2, 100, 100);
    assert_eq!(refused, Err(Refusal::NeverFits { blocks_needed: 13, blocks_total: 8 }));
    world.submit(3, 128, 1).expect("fills the pool exactly");
    world.finish(200);
    finished_right(&world, 0, 20, 20);
    finished_right(&world, 3, 128, 1);
}

/// Two of 60 + 60; ten of 40 + 80; four choices of one prompt.
fn case_37_all_finish() {
    for (count, prompt_len, max_new) in [(2, 60, 60), (10, 40, 80), (4, 40, 60)] {
        for step_tokens_max in [1, 16, 512] {
            let mut world =
                World::new(Limits { context_max: 8192, ..limits(8, step_tokens_max, 16) });
            for id in 0..count {
                world.submit(id, prompt_len, max_new).expect("fits");
            }
            world.finish(20_000);
            (0..count).for_each(|id| finished_right(&world, id, prompt_len, max_new));
        }
    }
}

/// 10 % of 24 blocks, rounded up, is 3.
fn watermark() {
    let small = Limits { watermark_permille: 100, ..limits(24, 1000, 8) };
    let mut world = World::with(small, no_bypass());
    world.submit(0, 24 * 16, 1).expect("fits");
    assert!(world.step(), "nothing runs, so nothing is kept");
    world.finish(3);
    world.submit(1, 16, 9).expect("fits");
    world.submit(2, 21 * 16, 9).expect("fits");
    world.submit(3, 16, 9).expect("fits");
    assert!(world.step());
    // One block is held: 23 free, less 21 asked for, would leave 2 of the 3 to keep.
    assert_eq!((world.sched.running(), world.sched.waiting()), (1, 2), "the head is not passed");
    world.finish(100);
    world.submit(4, 16, 9).expect("fits");
    world.submit(5, 20 * 16, 9).expect("fits");
    assert!(world.step());
    assert_eq!(world.sched.running(), 2, "leaves exactly the 3 to keep");
    world.finish(100);
}

fn preemption_keeps_tokens() {
    let mut world = World::new(Limits { watermark_permille: 0, ..limits(4, 64, 4) });
    world.submit(0, 31, 30).expect("fits");
    world.submit(1, 31, 30).expect("fits");
    while world.picture.counters.preempted == 0 {
        assert!(world.step());
    }
    let waiting = &world.sched.snapshot().waiting[0];
    assert_eq!(waiting.sequence, SequenceId(1));
    assert!(waiting.known > 31, "produced tokens are kept");
    assert_eq!((waiting.computed, waiting.preemptions), (0, 1));
    assert_eq!(world.picture.counters.lost_tokens, 32);
    world.finish(200);
    (0..2).for_each(|id| finished_right(&world, id, 31, 30));
}

/// The oldest has a row in every step from its admission to its end, and those that run are
/// always older than those that wait.
fn oldest_is_never_interrupted() {
    let mut world = World::with(limits(24, 32, 12), no_bypass());
    for id in 0..12 {
        world.submit(id, 40, 90).expect("fits");
    }
    loop {
        let oldest = world.sched.snapshot().running.first().map(|s| s.sequence);
        if !world.step() {
            break;
        }
        let rows = &world.picture.last_step.rows;
        assert!(oldest.is_none_or(|o| rows.iter().any(|r| r.sequence == Some(o))));
        let state = world.sched.snapshot();
        let youngest = state.running.iter().map(|s| s.order).max();
        let next = state.waiting.iter().map(|s| s.order).min();
        assert!(youngest.zip(next).is_none_or(|(y, n)| y < n), "{youngest:?} {next:?}");
    }
    assert!(!world.preemptions.contains_key(&SequenceId(0)));
    assert!(world.picture.counters.preempted > 0);
}

/// Memory for one and a half: without a bound the young one loses its work again and again.
fn preemptions_are_bounded() {
    for blocks in 8..24 {
        let mut world = World::new(Limits { watermark_permille: 0, ..limits(blocks, 512, 16) });
        for id in 0..40 {
            world.submit(id, 1 + id % 17, 100).expect("fits");
        }
        world.finish(50_000);
        let most = world.preemptions.values().max().copied().unwrap_or(0);
        assert!(most <= 3, "{most} preemptions of one sequence in {blocks} blocks");
        assert!(world.picture.counters.preempted > 0);
    }
}

fn cancel_frees_blocks() {
    let mut world = World::new(limits(64, 32, 4));
    for id in 0..6 {
        world.submit(id, 100, 50).expect("fits");
    }
    assert!(world.step());
    // In the middle of its prefill, between steps: at once.
    let free = world.sched.free_blocks();
    assert!(world.cancel(0));
    assert_eq!(world.sched.free_blocks(), free + 7);
    assert!(world.cancel(5), "while it waits");
    assert!(!world.cancel(0) && !world.cancel(77));
    assert_eq!(world.finished[&SequenceId(5)], FinishReason::Cancelled);
    (0..20).for_each(|_| assert!(world.step()));
    (1..5).for_each(|id| assert!(world.cancel(id)));
    assert_eq!(world.sched.free_blocks(), 64);
    assert!(world.sched.is_idle());
}

fn two_in_four_blocks(host_blocks: u32, preemption: Preemption) -> World {
    let limits = Limits { watermark_permille: 0, host_blocks, ..limits(4, 64, 4) };
    let mut world = World::with(limits, Policies { preemption, ..Policies::default() });
    world.submit(0, 31, 30).expect("fits");
    world.submit(1, 31, 30).expect("fits");
    world
}

/// Nothing is computed twice while the host has room; without it, or when cancelled there, all is
/// given back.
fn swap_keeps_what_was_computed() {
    for (host_blocks, swaps) in [(2, true), (1, false), (0, false)] {
        let mut world = two_in_four_blocks(host_blocks, Preemption::Swap);
        world.finish(200);
        (0..2).for_each(|id| finished_right(&world, id, 31, 30));
        let counters = &world.picture.counters;
        assert!(counters.preempted > 0);
        assert_eq!(counters.lost_tokens == 0, swaps, "{host_blocks} host blocks");
        assert_eq!(world.sched.free_host_blocks(), host_blocks);
    }
    let mut world = two_in_four_blocks(2, Preemption::Swap);
    while world.sched.free_host_blocks() == 2 {
        assert!(world.step());
    }
    assert!(world.cancel(1), "while its blocks are in host memory");
    assert_eq!(world.sched.free_host_blocks(), 2);
    world.finish(200);
    finished_right(&world, 0, 31, 30);
}

fn auto_swaps_where_that_is_cheaper() {
    for (token_picos, block_picos, swaps) in
        [(1_000_000, 100, true), (100, 1_000_000, false), (0, 0, false), (1_000_000, 0, false)]
    {
        let mut world = two_in_four_blocks(2, Preemption::Auto);
        world.sched.set_costs(WorkCosts { token_picos, pair_picos: 0, block_picos });
        world.finish(200);
        assert_eq!(world.picture.counters.lost_tokens == 0, swaps, "{token_picos} {block_picos}");
    }
}
