//! Several sequences of one request: the prompt is computed once and held once, and whoever goes
//! on within a shared block does so in a copy of its own.

use super::prefix::{new, off};
use super::steps::limits;
use super::world::{World, expected, prompt};
use crate::support::Rows;
use tilewright::base::{Limits, Policies, PrefixCache, RequestId, SequenceId};
use tilewright::sched::NewSequence;

pub fn rows(rows: &mut Rows) {
    rows.add("sched::siblings_share_the_prompt", siblings_share_the_prompt);
    rows.add("sched::siblings_of_one_token_run_together", siblings_of_one_token);
    rows.add("sched::siblings_at_block_edges", siblings_at_block_edges);
    rows.add("sched::case_37_siblings_in_a_tiny_pool", siblings_in_a_tiny_pool);
}

/// Submits `count` choices of one prompt under ids from `first`.
pub fn submit(world: &mut World, first: u32, count: u32, prompt_len: u32, max_new: u32) {
    for id in first..first + count {
        let new = NewSequence {
            request: RequestId(first),
            siblings: count > 1,
            ..new(id, prompt(first, prompt_len), max_new)
        };
        world.submit_new(new).expect("fits");
    }
}

fn right(world: &World, first: u32, count: u32, prompt_len: u32, max_new: u32) {
    let right = expected(&prompt(first, prompt_len), max_new);
    (first..first + count).for_each(|id| assert_eq!(world.outputs[&SequenceId(id)], right, "{id}"));
}

fn siblings_share_the_prompt() {
    for policies in [Policies::default(), off()] {
        let mut world = World::with(limits(64, 64, 8), policies);
        submit(&mut world, 0, 4, 100, 20);
        // Two steps for the prompt; the others wait, then lack one token each.
        assert!(world.step() && world.step());
        assert_eq!(world.sched.running(), 1);
        assert!(world.step());
        let rows = &world.picture.last_step.rows;
        let rows: Vec<_> = rows.iter().map(|r| (r.start, r.len, r.samples)).collect();
        assert_eq!(rows, [(100, 1, true), (99, 1, true), (99, 1, true), (99, 1, true)]);
        assert_eq!(world.sched.shared_blocks(), 6);
        assert_eq!(world.sched.free_blocks(), 64 - 6 - 4);
        let counters = &world.picture.counters;
        assert_eq!((counters.shared_tokens, counters.blocks_copied), (3 * 99, 3));
        world.finish(100);
        right(&world, 0, 4, 100, 20);
    }
}

/// Nobody waits for a copy of a prompt that is gone before it could be made.
fn siblings_of_one_token() {
    for (policies, others) in [(Policies::default(), (32, 8)), (off(), (0, 40))] {
        let mut world = World::with(limits(64, 512, 8), policies);
        submit(&mut world, 0, 4, 40, 1);
        assert!(world.step());
        let rows = &world.picture.last_step.rows;
        let rows: Vec<_> = rows.iter().map(|r| (r.start, r.len)).collect();
        assert_eq!(rows, [(0, 40), others, others, others]);
        assert_eq!(world.sched.running(), 0);
        right(&world, 0, 4, 40, 1);
    }
}

fn siblings_at_block_edges() {
    for block_size in [16, 32] {
        for len in [1, 2, 15, 16, 17, 18, 31, 32, 33, 48, 64, 65] {
            for prefix_cache in [PrefixCache::On, PrefixCache::Off] {
                let policies = Policies { prefix_cache, ..Policies::default() };
                let limits = Limits { block_size, ..limits(64, 64, 8) };
                let mut world = World::with(limits, policies);
                for depth in 1..=3 {
                    world.depth = depth;
                    let first = depth as u32 * 10;
                    submit(&mut world, first, 3, len, 40);
                    world.finish(200);
                    right(&world, first, 3, len, 40);
                }
                let copies = if (len - 1) % block_size == 0 { 0 } else { 2 };
                let copied = world.picture.counters.blocks_copied;
                // With the cache, later requests of the same prompt may share more than that.
                assert_eq!(copied, 3 * copies, "{len} in {block_size}");
            }
        }
    }
}

/// Four of 40 + 60 in 8 blocks of 16.
fn siblings_in_a_tiny_pool() {
    for policies in [Policies::default(), off()] {
        for step_tokens_max in [1, 16, 512] {
            for sequences_max in [1, 2, 16] {
                let limits = limits(8, step_tokens_max, sequences_max);
                let mut world = World::with(limits, policies);
                submit(&mut world, 0, 4, 40, 60);
                world.finish(20_000);
                right(&world, 0, 4, 40, 60);
                let most = world.preemptions.values().max().copied().unwrap_or(0);
                assert!(most <= 3, "{most} preemptions");
            }
        }
    }
}
