//! The prefix cache: what is found, for whom, how long it stays, and that a hit is never wrong.

use super::steps::limits;
use super::world::{World, expected, prompt};
use crate::support::Rows;
use tilewright::base::{Limits, Policies, Prefill, PrefixCache, RequestId, SequenceId, TokenId};
use tilewright::sched::{NewSequence, Outcome, Plan, Scheduler, Tag};
use tilewright::trace::{Event, EvictReason, FinishReason};

pub fn rows(rows: &mut Rows) {
    rows.add("sched::prefix_is_shared_with_running", prefix_is_shared_with_running);
    rows.add("sched::prefix_leaves_the_last_token", prefix_leaves_the_last_token);
    rows.add("sched::prefix_equal_prompts_compute_once", equal_prompts_compute_once);
    rows.add("sched::prefix_wait_for_another_is_bounded", wait_for_another_is_bounded);
    rows.add("sched::prefix_64_hold_a_system_prompt_once", common_blocks_are_held_once);
    rows.add("sched::prefix_chat_of_six_turns", chat_of_six_turns);
    rows.add("sched::prefix_survives_preemption", prefix_survives_preemption);
    rows.add("sched::prefix_tails_are_evicted_first", tails_are_evicted_first);
    rows.add("sched::prefix_tags_isolate", tags_isolate);
    rows.add("sched::prefix_of_a_failed_one_is_dropped", failed_is_dropped);
    rows.add("sched::prefix_equal_blocks_merge", equal_blocks_merge);
    rows.add("sched::prefix_of_one_bit_is_right", one_bit_is_right);
}

pub fn off() -> Policies {
    Policies { prefix_cache: PrefixCache::Off, ..Policies::default() }
}

pub fn new(id: u32, prompt: Vec<TokenId>, max_new: u32) -> NewSequence {
    NewSequence::new(SequenceId(id), RequestId(id), prompt, max_new)
}

/// `common` tokens that all share, then `own` of this id's.
pub fn begins(common: u32, id: u32, own: u32) -> Vec<TokenId> {
    [prompt(9999, common), prompt(id, own)].concat()
}

/// Every position computed so far.
fn computed(world: &World) -> u64 {
    let c = &world.picture.counters;
    c.prefill_tokens + c.decode_tokens
}

#[track_caller]
fn right(world: &World, id: u32, prompt: &[TokenId], max_new: u32) {
    assert_eq!(world.outputs[&SequenceId(id)], expected(prompt, max_new), "sequence {id}");
}

fn prefix_is_shared_with_running() {
    let mut world = World::new(limits(64, 512, 8));
    let (first, second) = (begins(80, 0, 20), begins(80, 1, 20));
    world.submit_new(new(0, first.clone(), 40)).expect("fits");
    (0..3).for_each(|_| assert!(world.step()));
    world.submit_new(new(1, second.clone(), 40)).expect("fits");
    assert!(world.step());
    let row = world.picture.last_step.rows[1];
    assert_eq!((row.start, row.len), (80, 20));
    let blocks = |id| world.sched.blocks(SequenceId(id));
    assert_eq!(blocks(0)[..5], blocks(1)[..5]);
    assert_ne!(blocks(0)[5], blocks(1)[5]);
    assert_eq!(world.sched.shared_blocks(), 5);
    assert_eq!(world.picture.counters.matched_tokens, 80);
    world.finish(100);
    right(&world, 0, &first, 40);
    right(&world, 1, &second, 40);
}

/// Around block edges, twice the same prompt: the second computes the last token at least and a
/// block at most.
fn prefix_leaves_the_last_token() {
    for block_size in [16, 32] {
        for len in [1, 15, 16, 17, 31, 32, 33, 48, 64, 65] {
            let mut world = World::new(Limits { block_size, ..limits(64, 512, 8) });
            for id in 0..2 {
                world.submit_new(new(id, prompt(7, len), 3)).expect("fits");
                world.step();
                let row = world.picture.last_step.rows[0];
                let found = if id == 0 { 0 } else { (len - 1) / block_size * block_size };
                assert_eq!((row.start, row.len), (found, len - found), "{len}");
                world.finish(10);
                right(&world, id, &prompt(7, len), 3);
            }
        }
    }
}

/// Together in the queue: in any chunking the second waits for the budget and then lacks nothing.
fn equal_prompts_compute_once() {
    for step_tokens_max in [16, 50, 64, 512, 2048] {
        let mut world = World::new(limits(256, step_tokens_max, 8));
        for id in 0..4 {
            world.submit_new(new(id, prompt(7, 500), 2)).expect("fits");
        }
        let mut steps = 0;
        while world.picture.counters.sampled_tokens < 8 {
            assert!(world.step());
            steps += 1;
        }
        // 500 tokens, three times the 4 after the last full block, and a decode each.
        assert_eq!(computed(&world), 500 + 3 * 4 + 4, "budget {step_tokens_max}");
        assert!(steps <= 500_u32.div_ceil(step_tokens_max) + 4, "{steps} steps");
        world.finish(10);
        (0..4).for_each(|id| right(&world, id, &prompt(7, 500), 2));
    }
}

/// Whoever waits for another's blocks is never later than without them: it waits for the budget
/// only, and when the other is cancelled it goes on from what that one computed.
fn wait_for_another_is_bounded() {
    let first_tokens = |policies: Policies, alike: bool, cancel_at: Option<u32>| {
        let mut world = World::with(limits(256, 64, 8), policies);
        for id in 0..2 {
            world.submit_new(new(id, prompt(if alike { 7 } else { id }, 500), 2)).expect("fits");
        }
        let mut steps = 0;
        while world.outputs[&SequenceId(1)].len() == 500 {
            if cancel_at == Some(steps) {
                world.cancel(0);
            }
            assert!(world.step(), "nobody waits while nothing runs");
            steps += 1;
        }
        world.finish(10);
        (steps, computed(&world))
    };
    for prefill in [Prefill::Chunked, Prefill::PrefillFirst, Prefill::DecodeFirst] {
        let policies = Policies { prefill, ..Policies::default() };
        let (apart, all) = first_tokens(policies, false, None);
        let (shared, once) = first_tokens(policies, true, None);
        assert!(shared <= 500_u32.div_ceil(64) + 2 && shared < apart, "{shared}, {apart} apart");
        assert!(once < all - 400, "{once} positions computed, {all} apart");
        for at in 1..7 {
            let (steps, _) = first_tokens(policies, true, Some(at));
            // One step more, for the step in which the other ended.
            assert!(steps <= 500_u32.div_ceil(64) + 1, "cancelled after {at}: {steps} steps");
        }
    }
}

fn common_blocks_are_held_once() {
    let mut world = World::new(limits(32 + 64 * 2, 1024, 64));
    for id in 0..64 {
        world.submit_new(new(id, begins(512, id, 8), 20)).expect("fits");
    }
    let mut most = 0;
    while world.step() {
        let used = world.sched.limits().blocks - world.sched.free_blocks();
        most = most.max(used);
        assert!(world.sched.running() < 2 || world.sched.shared_blocks() == 32);
    }
    // Without sharing 64 × 34 blocks: thirteen times the pool.
    assert_eq!(most, 32 + 64 * 2);
    assert_eq!(world.picture.counters.preempted, 0);
    assert_eq!(world.picture.counters.matched_tokens, 63 * 512);
    (0..64).for_each(|id| right(&world, id, &begins(512, id, 8), 20));
}

/// Each turn is the whole conversation so far: answers are found as well as prompts.
fn chat_of_six_turns() {
    for block_size in [16, 32] {
        let mut world = World::new(Limits { block_size, ..limits(128, 64, 8) });
        let mut said = begins(45, 0, 0);
        for turn in 0..6 {
            let fresh = prompt(100 + turn, 23);
            said.extend(&fresh);
            let before = computed(&world);
            world.submit_new(new(turn, said.clone(), 37)).expect("fits");
            world.finish(100);
            right(&world, turn, &said, 37);
            said.clone_from(&world.outputs[&SequenceId(turn)]);
            // The first token comes of the prompt, so the answer costs one less.
            let prefill = computed(&world) - before - 36;
            let new = if turn == 0 { 45 + 23 } else { 23 };
            assert!(prefill <= new + u64::from(block_size), "turn {turn}: {prefill}");
        }
    }
}

fn prefix_survives_preemption() {
    let cost = |policies| {
        let tight = Limits { watermark_permille: 0, ..limits(12, 64, 4) };
        let mut world = World::with(tight, policies);
        for id in 0..3 {
            world.submit_new(new(id, prompt(id, 40), 60)).expect("fits");
        }
        world.finish(2000);
        assert!(world.picture.counters.preempted > 0);
        (0..3).for_each(|id| right(&world, id, &prompt(id, 40), 60));
        computed(&world)
    };
    let (on, none) = (cost(Policies::default()), cost(off()));
    assert!(on < none, "{on} positions computed with the cache, {none} without");
}

/// What is unused for longest goes first, and of one chain its end; the event says for how long.
fn tails_are_evicted_first() {
    let mut world = World::new(limits(8, 512, 8));
    world.submit_new(new(0, prompt(0, 65), 1)).expect("fits");
    world.step();
    assert_eq!((world.sched.cached_blocks(), world.sched.free_blocks()), (4, 8));
    let freed = world.now;
    // Four blank ones are left; a chain of five takes them and the tail of the other.
    world.submit_new(new(1, prompt(1, 80), 1)).expect("fits");
    world.step();
    let evicted =
        (world.picture.counters.blocks_evicted, world.picture.counters.evicted_idle_micros);
    assert_eq!(evicted, (1, world.now - freed));
    world.finish(5);
    world.submit_new(new(2, prompt(0, 65), 1)).expect("fits");
    world.step();
    assert_eq!(world.picture.last_step.rows[0].start, 48, "the head of the chain stayed");
    world.finish(5);
}

fn tags_isolate() {
    let mut world = World::new(limits(64, 512, 8));
    let salts: [Tag; 3] = ["".into(), "a".into(), "b".into()];
    for (id, (tag, found)) in
        (0..).zip([(0, 0), (1, 0), (2, 0), (1, 32), (0, 32), (2, 32)].map(|(t, f)| (&salts[t], f)))
    {
        let new = NewSequence { tag: tag.clone(), ..new(id, prompt(7, 40), 2) };
        world.submit_new(new).expect("fits");
        world.step();
        assert_eq!(world.picture.last_step.rows[0].start, found, "request {id}");
        world.finish(5);
    }
}

fn failed_is_dropped() {
    let mut sched = Scheduler::new(limits(16, 512, 4));
    let (mut plan, mut events) = (Plan::default(), Vec::new());
    for (id, finish) in
        [(0, FinishReason::Stop), (1, FinishReason::Failed), (2, FinishReason::Stop)]
    {
        let prompt = if id == 0 { prompt(7, 33) } else { prompt(7, 70) };
        sched.submit(new(id, prompt, 2), 0, &mut events).expect("fits");
        sched.plan(0, &mut plan, &mut events);
        // The third finds what the first left, and nothing of the second.
        assert_eq!(plan.rows[0].start, [0, 32, 32][id as usize]);
        let token = Some(1).filter(|_| finish == FinishReason::Stop);
        let outcome = Outcome { sequence: SequenceId(id), token, finish: Some(finish) };
        sched.commit(&plan, &[outcome], 0, &mut events);
        sched.check().expect("sound");
    }
    let failed = |e: &&Event| matches!(e, Event::BlockEvicted { reason: EvictReason::Failed, .. });
    assert_eq!(events.iter().filter(failed).count(), 2);
}

/// A prompt that fills its blocks exactly computes its last one again: the copy makes way.
fn equal_blocks_merge() {
    let mut world = World::new(limits(16, 512, 4));
    world.submit_new(new(0, prompt(7, 64), 30)).expect("fits");
    world.step();
    world.submit_new(new(1, prompt(7, 64), 30)).expect("fits");
    world.step();
    assert_eq!(world.picture.counters.blocks_merged, 1);
    let blocks = |id| world.sched.blocks(SequenceId(id));
    assert_eq!(blocks(0)[..4], blocks(1)[..4]);
    world.finish(100);
    // The generated blocks of the second are those of the first.
    assert!(world.picture.counters.blocks_merged >= 2);
    (0..2).for_each(|id| right(&world, id, &prompt(7, 64), 30));
    assert_eq!(world.sched.cached_blocks(), 5);
}

/// Two buckets for everything: chains that differ in one token anywhere stay apart.
fn one_bit_is_right() {
    let mut world = World::new(limits(200, 256, 16));
    world.sched.narrow_hashes(1);
    let mut prompts = Vec::new();
    for id in 0..60u32 {
        let mut tokens = prompt(7, 60);
        if id % 3 > 0 {
            tokens[(id as usize * 7) % 60] ^= id;
        }
        world.submit_new(new(id, tokens.clone(), 12)).expect("fits");
        prompts.push(tokens);
    }
    world.finish(1000);
    (0..60).for_each(|id| right(&world, id, &prompts[id as usize], 12));
    assert!(world.picture.counters.matched_tokens > 19 * 48);
}
