//! Several choices of one request, the prefix cache as a caller sees it, and the check.

use super::fake::{World, hashed, limits};
use crate::support::Rows;
use std::collections::BTreeSet;
use tilewright::base::Limits;
use tilewright::engine::{
    CHOICES_MAX, GenerateError, GenerateRequest, Generation, SubmitError, choice_seed,
};

pub fn rows(rows: &mut Rows) {
    rows.add("engine::choices_are_taken_all_or_none", all_or_none);
    rows.add("engine::choices_have_their_own_seeds", own_seeds);
    rows.add("engine::choices_share_and_are_cancelled_as_one", shared_and_cancelled);
    rows.add("engine::cached_tokens_are_told", cached_tokens_are_told);
    rows.add("engine::check_finds_nothing", check_finds_nothing);
}

fn request(n: u32, prompt: usize) -> GenerateRequest {
    let prompt = (0..prompt as u32).map(|at| 300 + at).collect();
    GenerateRequest { prompt, max_tokens: Some(6), n: Some(n), ..GenerateRequest::default() }
}

fn all_or_none() {
    let world = World::new(Limits { queue_max: 5, ..limits() }, hashed());
    for n in [0, CHOICES_MAX + 1, 6] {
        match world.handle.submit_choices(request(n, 20)) {
            Err(SubmitError::Invalid(error)) => assert_eq!(error.field, "n"),
            other => panic!("{n}: {other:?}"),
        }
    }
    let mut world = world;
    let first = world.handle.submit_choices(request(3, 20)).expect("room");
    let second = world.handle.submit_choices(request(3, 20)).expect("on its way");
    world.settle();
    let collect = |g: Generation| pollster::block_on(g.collect());
    assert!(first.into_iter().map(collect).all(|answer| answer.is_ok()));
    for answer in second.into_iter().map(collect) {
        let refused =
            GenerateError::Refused(SubmitError::QueueFull { waiting: 3, max: 5, retry_seconds: 1 });
        assert_eq!(answer, Err(refused));
    }
    assert!(world.handle.submit(request(2, 20)).is_err(), "one choice is what `submit` gives");
}

/// The first has the request's seed; no two of many are alike.
fn own_seeds() {
    assert_eq!(choice_seed(7, 0), 7);
    let seeds: BTreeSet<u64> = (0..CHOICES_MAX).map(|n| choice_seed(7, n)).collect();
    assert_eq!(seeds.len() as u32, CHOICES_MAX);
    assert_ne!(choice_seed(7, 1), choice_seed(8, 1));
}

fn shared_and_cancelled() {
    let mut world = World::new(limits(), hashed());
    let choices = world.handle.submit_choices(request(4, 50)).expect("room");
    for _ in 0..2 {
        world.step();
    }
    let status = world.handle.status();
    // Three full blocks and a last one each; the fourth block holds the rest of the prompt.
    assert_eq!((status.running, status.blocks_shared, status.blocks_used), (4, 3, 7));
    world.handle.cancel(choices[2].id());
    world.step();
    assert_eq!(world.handle.status().open, 0, "all of it");
    for choice in choices {
        assert_eq!(pollster::block_on(choice.collect()), Err(GenerateError::Cancelled));
    }
    assert_eq!(world.handle.status().blocks_used, 0);
}

fn cached_tokens_are_told() {
    let mut world = World::new(limits(), hashed());
    let mut cached = |request: GenerateRequest| {
        let generation = world.handle.submit(request).expect("room");
        world.settle();
        pollster::block_on(generation.collect()).expect("an answer").usage.cached_tokens
    };
    let salted =
        |salt: &str| GenerateRequest { cache_salt: Some(salt.to_string()), ..request(1, 50) };
    assert_eq!(cached(request(1, 50)), 0);
    assert_eq!(cached(request(1, 50)), 48);
    assert_eq!(cached(request(1, 49)), 48);
    assert_eq!(cached(request(1, 48)), 32, "the last token is computed");
    // Nobody finds what is under another's salt, not even under none.
    assert_eq!(cached(salted("a")), 0);
    assert_eq!(cached(salted("b")), 0);
    assert_eq!(cached(salted("a")), 48);
    assert_eq!(cached(request(1, 50)), 48);
    let empty = GenerateRequest { cache_salt: Some(String::new()), ..request(1, 50) };
    let refused = world.handle.submit(empty).map(|_| ());
    let right = |e| matches!(e, SubmitError::Invalid(e) if e.field == "cache_salt");
    assert!(refused.is_err_and(right));
}

fn check_finds_nothing() {
    let mut world = World::new(limits(), hashed());
    let choices = world.handle.submit_choices(request(2, 50)).expect("room");
    for _ in 0..2 {
        world.step();
    }
    let handle = world.handle.clone();
    let asked = std::thread::spawn(move || pollster::block_on(handle.check()));
    let mut checked = None;
    for _ in 0..1000 {
        world.step();
        if asked.is_finished() {
            checked = Some(asked.join().expect("no panic"));
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let checked = checked.flatten().expect("an answer");
    assert_eq!((checked.fault, checked.status.blocks_total), (None, 256));
    drop(choices);
}
