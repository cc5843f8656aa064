//! Requests come, wait, run, are cancelled and leave; blocks always come back.

use super::fake::{World, hashed, limits};
use crate::support::Rows;
use tilewright::base::{Limits, TokenId, threefry2x32};
use tilewright::engine::{
    EngineState, GenerateError, GenerateRequest, Output, Stepped, SubmitError,
};

pub fn rows(rows: &mut Rows) {
    rows.add("engine::dropped_request_is_gone_in_one_step", dropped_request_is_gone_in_one_step);
    rows.add("engine::cancel_by_id", cancel_by_id);
    rows.add("engine::dropped_waiting_request_never_starts", dropped_waiting_never_starts);
    rows.add("engine::tiny_pool_preempts_and_all_finish", tiny_pool);
    rows.add("engine::small_pools_of_case_37", small_pools);
    rows.add("engine::random_submit_cancel_finish", random_life);
    rows.add("engine::queue_is_bounded", queue_is_bounded);
    rows.add("engine::drain_finishes_what_is_open", drain);
    rows.add("engine::stop_ends_everything", stop);
}

fn request(prompt: usize, max: u32) -> GenerateRequest {
    let prompt = (0..prompt as TokenId).map(|i| 300 + i % 1000).collect();
    GenerateRequest { prompt, max_tokens: Some(max), ..GenerateRequest::default() }
}

/// Dropped while prefilling a long prompt, after the first token, and in mid-answer: after the
/// next step its blocks are free, and a neighbour is not touched.
fn dropped_request_is_gone_in_one_step() {
    for steps in [1, 3, 16, 17, 30] {
        let mut world = World::new(limits(), hashed());
        let neighbour = world.handle.submit(request(10, 60)).unwrap();
        let victim = world.handle.submit(request(900, 100)).unwrap();
        for _ in 0..steps {
            assert_eq!(world.step(), Stepped::Ran);
        }
        let before = world.handle.status();
        assert!(before.blocks_used > 4, "the victim holds blocks: {before:?}");
        drop(victim);
        world.step();
        let after = world.handle.status();
        assert!(after.blocks_used <= 5, "only the neighbour's blocks are used: {after:?}");
        assert_eq!((after.running, after.waiting, after.requests_cancelled), (1, 0, 1));
        world.settle();
        assert_eq!(pollster::block_on(neighbour.collect()).unwrap().tokens.len(), 60);
        assert_eq!(world.handle.status().blocks_used, 0);
    }
}

fn cancel_by_id() {
    let mut world = World::new(limits(), hashed());
    let generation = world.handle.submit(request(40, 100)).unwrap();
    world.step();
    world.handle.cancel(generation.id());
    assert_eq!(world.step(), Stepped::Idle);
    assert_eq!(world.handle.status().blocks_used, 0);
    let end = pollster::block_on(generation.collect()).unwrap_err();
    assert_eq!(end, GenerateError::Cancelled);
}

fn dropped_waiting_never_starts() {
    let mut world = World::new(Limits { sequences_max: 1, ..limits() }, hashed());
    let first = world.handle.submit(request(10, 20)).unwrap();
    let second = world.handle.submit(request(10, 20)).unwrap();
    world.step();
    assert_eq!(world.handle.status().waiting, 1);
    drop(second);
    // One that is gone before the engine ever saw it.
    drop(world.handle.submit(request(10, 20)).unwrap());
    world.step();
    assert_eq!((world.handle.status().waiting, world.handle.status().open), (0, 1));
    world.settle();
    assert_eq!(pollster::block_on(first.collect()).unwrap().tokens.len(), 20);
    // Prompt in one step, 20 tokens in all: no step was spent on the dead.
    assert_eq!(world.handle.status().steps, 20);
    assert_eq!(world.handle.status().tokens_computed, 10 + 19);
}

fn run_all(limits: Limits, requests: &[GenerateRequest]) -> (Vec<Vec<TokenId>>, u64) {
    let mut world = World::new(limits, hashed());
    let open: Vec<_> = requests.iter().map(|r| world.handle.submit(r.clone()).unwrap()).collect();
    world.settle();
    let status = world.handle.status();
    assert_eq!((status.blocks_used, status.open), (0, 0));
    let collect = |g: tilewright::engine::Generation| pollster::block_on(g.collect()).unwrap();
    (open.into_iter().map(|g| collect(g).ids()).collect(), status.tokens_computed)
}

/// The answers do not depend on company, chunks or preemption.
fn tiny_pool() {
    let requests: Vec<_> = (0..12).map(|i| request(20 + 7 * i, 60)).collect();
    let (roomy, least) = run_all(limits(), &requests);
    let tiny = Limits { blocks: 24, step_tokens_max: 16, ..limits() };
    let (answers, computed) = run_all(tiny, &requests);
    assert!(computed > least, "preemption computes again: {computed} > {least}");
    assert_eq!(answers, roomy);
    for (request, answer) in requests.iter().zip(&answers) {
        assert_eq!(&run_all(limits(), std::slice::from_ref(request)).0[0], answer);
        assert_eq!(answer.len(), 60);
    }
}

fn small_pools() {
    let eight = Limits { blocks: 8, context_max: 8192, ..limits() };
    // Prompt and answer do not fit together: the answer is cut, nothing waits for ever.
    assert_eq!(run_all(eight, &[request(100, 100)]).0[0].len(), 28);
    assert!(run_all(eight, &[request(60, 60), request(60, 60)]).0.iter().all(|a| a.len() == 60));
    let ten: Vec<_> = (0..10).map(|_| request(40, 80)).collect();
    assert!(run_all(eight, &ten).0.iter().all(|a| a.len() == 80));
}

/// Ten thousand steps of arrivals, drops and ends: free + used = total after each, and all free
/// at the end. `World::step` checks the scheduler's invariants every time.
fn random_life() {
    let mut world = World::new(Limits { blocks: 40, queue_max: 8, ..limits() }, hashed());
    let mut open = Vec::new();
    let mut refused = 0;
    for round in 0..10_000u32 {
        let [a, b] = threefry2x32([7, 0], [round, 0]);
        if a % 3 == 0 {
            let wanted = request(1 + (b % 300) as usize, 1 + b % 90);
            match world.handle.submit(wanted) {
                Ok(generation) => open.push(generation),
                Err(SubmitError::QueueFull { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        if a % 7 == 1 && !open.is_empty() {
            open.swap_remove(b as usize % open.len());
        }
        if a % 11 == 2 && !open.is_empty() {
            let generation: &tilewright::engine::Generation = &open[b as usize % open.len()];
            world.handle.cancel(generation.id());
        }
        world.step();
        open.retain_mut(|generation| {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            loop {
                let next = std::pin::pin!(generation.next());
                match std::future::Future::poll(next, &mut context) {
                    std::task::Poll::Ready(Some(_)) => {}
                    std::task::Poll::Ready(None) => return false,
                    std::task::Poll::Pending => return true,
                }
            }
        });
    }
    drop(open);
    world.settle();
    let status = world.handle.status();
    assert_eq!((status.blocks_used, status.open, status.waiting), (0, 0, 0));
    assert!(status.requests_finished > 300 && status.requests_cancelled > 500, "{status:?}");
    assert!(status.requests_failed + refused > 0, "the queue was full at times: {status:?}");
}

fn queue_is_bounded() {
    let mut world = World::new(Limits { queue_max: 2, sequences_max: 1, ..limits() }, hashed());
    let mut open = vec![world.handle.submit(request(10, 50)).unwrap()];
    world.step();
    open.extend((0..2).map(|_| world.handle.submit(request(10, 50)).unwrap()));
    let refused = world.handle.submit(request(10, 50)).unwrap_err();
    assert!(matches!(refused, SubmitError::QueueFull { max: 2, .. }), "{refused}");
    world.step();
    // The way in is empty again, the queue is not: the refusal comes as an output.
    let late = world.handle.submit(request(10, 50)).unwrap();
    world.step();
    let refused = pollster::block_on(late.collect()).unwrap_err();
    let full = SubmitError::QueueFull { waiting: 2, max: 2, retry_seconds: 1 };
    assert_eq!(refused, GenerateError::Refused(full));
    world.settle();
    for generation in open {
        assert_eq!(pollster::block_on(generation.collect()).unwrap().tokens.len(), 50);
    }
}

fn drain() {
    let mut world = World::new(limits(), hashed());
    let open = world.handle.submit(request(10, 5)).unwrap();
    world.step();
    world.handle.drain();
    world.step();
    assert_eq!(world.handle.status().state, EngineState::Draining);
    assert_eq!(world.handle.submit(request(10, 5)).unwrap_err(), SubmitError::Stopping);
    while world.step() != Stepped::Ended {}
    assert_eq!(pollster::block_on(open.collect()).unwrap().tokens.len(), 5);
    assert_eq!(world.handle.status().state, EngineState::Stopped);
    assert_eq!(world.step(), Stepped::Ended);
}

fn stop() {
    let mut world = World::new(limits(), hashed());
    let running = world.handle.submit(request(10, 500)).unwrap();
    world.step();
    let mut arriving = world.handle.submit(request(10, 500)).unwrap();
    world.handle.stop();
    assert_eq!(world.step(), Stepped::Ended);
    let end = pollster::block_on(running.collect()).unwrap_err();
    assert_eq!(end, GenerateError::Stopped);
    let end = pollster::block_on(arriving.next());
    assert_eq!(end, Some(Output::Failed(GenerateError::Refused(SubmitError::Stopping))));
    assert_eq!(world.handle.status().blocks_used, 0);
}
