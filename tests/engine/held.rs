//! A held engine: requests arrive and wait, steps are done one by one.

use super::fake::{World, hashed, limits};
use crate::support::{Rows, steps_in_flight};
use tilewright::engine::{GenerateRequest, Stepped};

pub fn rows(rows: &mut Rows) {
    rows.add("engine::a_held_engine_does_exactly_the_steps_asked_for", held);
}

fn held() {
    let mut world = World::new(limits(), hashed());
    let request = || GenerateRequest {
        prompt: vec![300; 8],
        max_tokens: Some(6),
        ..GenerateRequest::default()
    };
    let first = world.handle.submit(request()).expect("taken");
    assert_eq!(world.step(), Stepped::Ran);
    world.handle.hold(true);
    for _ in 0..3 {
        assert_eq!(world.step(), Stepped::Idle);
    }
    let status = world.handle.status();
    // What was in the air when the word came has landed.
    let done = u64::from(steps_in_flight());
    assert!(status.held && status.steps == done, "{status:?}");
    let second = world.handle.submit(request()).expect("a held engine takes requests");
    assert_eq!(world.step(), Stepped::Idle);
    assert_eq!((world.handle.status().waiting, world.handle.status().steps), (1, done));
    world.handle.step_once();
    world.handle.step_once();
    let ran = (0..5).filter(|_| world.step() == Stepped::Ran).count();
    assert_eq!((ran, world.handle.status().steps), (2, done + 2));
    // Cancelling works while it is held.
    drop(second);
    assert_eq!(world.step(), Stepped::Idle);
    assert_eq!(world.handle.status().open, 1);
    world.handle.hold(false);
    world.settle();
    assert!(!world.handle.status().held);
    let done = pollster::block_on(first.collect()).expect("an answer");
    assert_eq!(done.tokens.len(), 6);
}
