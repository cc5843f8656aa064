//! Rows of `engine`: answers held to a grammar. The guide here is scripted, so that what the engine
//! does with it is seen: masks on other threads, ends, faults, choices, preemption.

use super::fake::{END, World, hashed, limits};
use crate::support::Rows;
use std::sync::Arc;
use std::thread::ThreadId;
use tilewright::base::{Limits, TokenId};
use tilewright::engine::{EngineConfig, GenerateError, GenerateRequest};
use tilewright::text::{Grammar, Guide, GuideError, Mask, Next};
use tilewright::trace::FinishReason;

pub fn rows(rows: &mut Rows) {
    rows.add("engine::guided_answers_are_what_the_masks_allow", allowed);
    rows.add("engine::guided_answers_do_not_depend_on_company", company);
    rows.add("engine::a_guide_that_fails_ends_its_request_alone", faults);
}

/// Allows ids of `base..base + 8`, `base` one more with every token; complete after `length`.
#[derive(Clone, Debug)]
struct Stairs {
    length: u32,
    /// Fails (or panics) at this place.
    fails: Option<(u32, bool)>,
    /// Where masks must not be made.
    engine: ThreadId,
}

struct Stair {
    plan: Stairs,
    at: u32,
}

impl Grammar for Stairs {
    fn start(&self) -> Box<dyn Guide> {
        Box::new(Stair { plan: self.clone(), at: 0 })
    }
}

impl Guide for Stair {
    fn mask(&mut self) -> Result<Mask, GuideError> {
        assert_ne!(std::thread::current().id(), self.plan.engine, "off the engine's thread");
        if let Some((at, panics)) = self.plan.fails
            && at == self.at
        {
            assert!(!panics, "planted");
            return Err(GuideError("planted".to_string()));
        }
        let mut words = vec![0u32; 1551usize.div_ceil(32)];
        for id in 400 + self.at..408 + self.at {
            words[id as usize / 32] |= 1 << (id % 32);
        }
        Ok(words.into())
    }

    fn accept(&mut self, id: TokenId) -> Result<Next, GuideError> {
        assert!((400 + self.at..408 + self.at).contains(&id), "{id} at {}", self.at);
        self.at += 1;
        Ok(if self.at == self.plan.length { Next::Complete } else { Next::More })
    }
}

pub fn stairs(length: u32, fails: Option<(u32, bool)>) -> Option<Arc<dyn Grammar>> {
    Some(Arc::new(Stairs { length, fails, engine: std::thread::current().id() }))
}

fn request(first: TokenId, grammar: Option<Arc<dyn Grammar>>) -> GenerateRequest {
    GenerateRequest {
        prompt: (first..first + 20).collect(),
        max_tokens: Some(30),
        seed: Some(9),
        grammar,
        ..GenerateRequest::default()
    }
}

fn allowed() {
    let mut world = World::new(limits(), hashed());
    let whole = world.handle.submit(request(100, stairs(12, None))).unwrap();
    let cut = world
        .handle
        .submit(GenerateRequest { max_tokens: Some(5), ..request(130, stairs(12, None)) })
        .unwrap();
    // Complete on the last allowed place is complete.
    let exact = world
        .handle
        .submit(GenerateRequest { max_tokens: Some(12), ..request(160, stairs(12, None)) })
        .unwrap();
    world.settle();
    let [whole, cut, exact] = [whole, cut, exact].map(|g| pollster::block_on(g.collect()).unwrap());
    assert_eq!((whole.reason, whole.ids().len()), (Some(FinishReason::Stop), 12));
    assert_eq!((cut.reason, cut.ids().len()), (Some(FinishReason::Length), 5));
    assert_eq!((exact.reason, exact.ids().len()), (Some(FinishReason::Stop), 12));
    assert!(!whole.ids().contains(&END), "the end needs no token of its own");
    assert_eq!(world.handle.status().blocks_used, 0);
}

/// Alone, among others, as one of three choices, and preempted again and again: the same ids.
fn company() {
    let mut world = World::new(limits(), hashed());
    let alone = world.handle.submit(request(100, stairs(20, None))).unwrap();
    world.settle();
    let alone = pollster::block_on(alone.collect()).unwrap().ids();
    let small = Limits { blocks: 9, ..limits() };
    let often = |config: &mut EngineConfig| config.force_preemption_every = Some(5);
    let mut world = World::with(small, hashed(), often);
    let choices = world
        .handle
        .submit_choices(GenerateRequest { n: Some(3), ..request(100, stairs(20, None)) })
        .unwrap();
    let free = world.handle.submit(request(100, None)).unwrap();
    world.settle();
    for choice in choices {
        let found = pollster::block_on(choice.collect()).unwrap();
        assert_eq!((found.ids(), found.reason), (alone.clone(), Some(FinishReason::Stop)));
    }
    let free = pollster::block_on(free.collect()).unwrap();
    assert_eq!((free.ids().len(), free.reason), (30, Some(FinishReason::Length)));
}

fn faults() {
    for panics in [false, true] {
        let mut world = World::new(limits(), hashed());
        let bad = world.handle.submit(request(100, stairs(12, Some((4, panics))))).unwrap();
        let good = world.handle.submit(request(130, stairs(12, None))).unwrap();
        world.settle();
        let error = pollster::block_on(bad.collect()).unwrap_err();
        assert!(matches!(error, GenerateError::Grammar(_)), "{error}");
        assert_eq!(pollster::block_on(good.collect()).unwrap().ids().len(), 12);
        assert_eq!(world.handle.status().blocks_used, 0);
    }
}
