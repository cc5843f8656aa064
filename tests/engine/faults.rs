//! What goes wrong in one request stays there; what goes wrong in the engine is told to all.

use super::fake::{World, hashed, limits};
use crate::support::Rows;
use std::sync::atomic::Ordering;
use tilewright::base::{Limits, Preemption, TokenId};
use tilewright::engine::{
    EngineState, GenerateError, GenerateRequest, Output, RunError, Stepped, SubmitError,
};

pub fn rows(rows: &mut Rows) {
    rows.add("engine::not_finite_ends_one_request", not_finite_ends_one_request);
    rows.add("engine::lost_device_fails_all", lost_device_fails_all);
    rows.add("engine::device_lost_while_blocks_move", lost_in_swap);
    rows.add("engine::slow_reader_is_bounded_then_cancelled", slow_reader);
}

fn request(first: TokenId, max: u32) -> GenerateRequest {
    let prompt = vec![first, 301, 302];
    GenerateRequest { prompt, max_tokens: Some(max), ..GenerateRequest::default() }
}

fn not_finite_ends_one_request() {
    let answer = |with_poison: bool| {
        let mut world = World::new(limits(), hashed());
        let healthy = world.handle.submit(request(400, 20)).unwrap();
        let sick = with_poison.then(|| world.handle.submit(request(500, 20)).unwrap());
        world.knobs.poison.store(500, Ordering::SeqCst);
        world.settle();
        if let Some(sick) = sick {
            let error = pollster::block_on(sick.collect()).unwrap_err();
            assert_eq!(error, GenerateError::NonFinite);
        }
        let status = world.handle.status();
        assert_eq!((status.blocks_used, &status.state), (0, &EngineState::Serving));
        assert_eq!(status.requests_failed, u64::from(with_poison));
        pollster::block_on(healthy.collect()).unwrap()
    };
    assert_eq!(answer(true), answer(false));
    assert_eq!(answer(true).tokens.len(), 20);
}

fn lost_device_fails_all() {
    let mut world = World::new(Limits { sequences_max: 2, ..limits() }, hashed());
    let open: Vec<_> = (0..4).map(|i| world.handle.submit(request(400 + i, 50)).unwrap()).collect();
    world.knobs.lost_at.store(5, Ordering::SeqCst);
    for _ in 0..4 {
        assert_eq!(world.step(), Stepped::Ran);
    }
    let arriving = world.handle.submit(request(410, 50)).unwrap();
    assert_eq!(world.step(), Stepped::Ended);
    for generation in open.into_iter().chain([arriving]) {
        let error = pollster::block_on(generation.collect()).unwrap_err();
        assert_eq!(error, GenerateError::Run(RunError::DeviceLost("planted".to_string())));
    }
    let status = world.handle.status();
    assert!(matches!(&status.state, EngineState::Failed(why) if why.contains("planted")));
    assert_eq!((status.open, status.blocks_used), (0, 0));
    let refused = world.handle.submit(request(400, 1)).unwrap_err();
    assert!(matches!(refused, SubmitError::Failed(why) if why.contains("planted")));
}

/// The reader gets what was buffered, then the reason; its neighbour gets everything.
fn slow_reader() {
    let mut world = World::with(limits(), hashed(), |config| config.output_buffer = 8);
    let mut slow = world.handle.submit(request(400, 50)).unwrap();
    let mut quick = world.handle.submit(request(401, 50)).unwrap();
    let mut quick_tokens = 0;
    for _ in 0..60 {
        world.step();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while let std::task::Poll::Ready(Some(output)) =
            std::future::Future::poll(std::pin::pin!(quick.next()), &mut context)
        {
            quick_tokens += u32::from(matches!(output, Output::Token { .. }));
        }
    }
    assert_eq!(quick_tokens, 50);
    assert_eq!(world.handle.status().blocks_used, 0);
    let mut outputs = Vec::new();
    while let Some(output) = pollster::block_on(slow.next()) {
        outputs.push(output);
    }
    assert_eq!(outputs.len(), 8 + 1);
    assert_eq!(outputs.last(), Some(&Output::Failed(GenerateError::SlowReader(8))));
    assert_eq!(world.handle.status().requests_cancelled, 1);
}

/// In a step with rows, and in one that only preempts.
fn lost_in_swap() {
    for requests in [1, 3] {
        let limits = Limits { host_blocks: 8, ..limits() };
        let mut world = World::with(limits, hashed(), |config| {
            config.policies.preemption = Preemption::Swap;
            config.force_preemption_every = Some(4);
        });
        let open: Vec<_> =
            (0..requests).map(|i| world.handle.submit(request(400 + i, 50)).unwrap()).collect();
        world.knobs.lost_in_swap.store(true, Ordering::SeqCst);
        let steps = (0..9).take_while(|_| world.step() == Stepped::Ran).count();
        assert_eq!(steps, 3, "the fourth preempts");
        for generation in open {
            let error = pollster::block_on(generation.collect()).unwrap_err();
            assert_eq!(error, GenerateError::Run(RunError::DeviceLost("planted".to_string())));
        }
        let status = world.handle.status();
        assert!(matches!(&status.state, EngineState::Failed(why) if why.contains("planted")));
        assert_eq!((status.open, status.blocks_used), (0, 0));
    }
}
