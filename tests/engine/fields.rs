//! Values that a request may not have; each error names its field.

use super::fake::{World, hashed, ids, limits};
use crate::support::Rows;
use tilewright::base::Limits;
use tilewright::engine::{GenerateRequest, SubmitError};

pub fn rows(rows: &mut Rows) {
    rows.add("engine::wrong_values_name_their_field", wrong_values_name_their_field);
    rows.add("engine::right_values_pass", right_values_pass);
    rows.add("engine::prompts_that_never_fit", prompts_that_never_fit);
}

fn base() -> GenerateRequest {
    GenerateRequest { prompt: ids("Hi"), max_tokens: Some(4), ..GenerateRequest::default() }
}

fn wrong_values_name_their_field() {
    let world = World::new(limits(), hashed());
    let s = |n: usize| vec!["x".to_string(); n];
    let wrong: Vec<(&str, GenerateRequest)> = vec![
        ("temperature", GenerateRequest { temperature: Some(-0.1), ..base() }),
        ("temperature", GenerateRequest { temperature: Some(2.1), ..base() }),
        ("temperature", GenerateRequest { temperature: Some(f32::NAN), ..base() }),
        ("temperature", GenerateRequest { temperature: Some(f32::INFINITY), ..base() }),
        ("top_p", GenerateRequest { top_p: Some(1.01), ..base() }),
        ("min_p", GenerateRequest { min_p: Some(-0.01), ..base() }),
        ("repetition_penalty", GenerateRequest { repetition_penalty: Some(0.0), ..base() }),
        ("repetition_penalty", GenerateRequest { repetition_penalty: Some(f32::NAN), ..base() }),
        ("presence_penalty", GenerateRequest { presence_penalty: Some(2.5), ..base() }),
        ("frequency_penalty", GenerateRequest { frequency_penalty: Some(-2.5), ..base() }),
        ("logit_bias", GenerateRequest { logit_bias: vec![(1551, 1.0)], ..base() }),
        ("logit_bias", GenerateRequest { logit_bias: vec![(5, 101.0)], ..base() }),
        ("logit_bias", GenerateRequest { logit_bias: vec![(5, f32::INFINITY)], ..base() }),
        ("logit_bias", GenerateRequest { logit_bias: vec![(5, 1.0), (5, 2.0)], ..base() }),
        ("logit_bias", GenerateRequest { logit_bias: vec![(5, 1.0); 1025], ..base() }),
        ("stop", GenerateRequest { stop: s(5), ..base() }),
        ("stop", GenerateRequest { stop: vec![String::new()], ..base() }),
        ("stop_token_ids", GenerateRequest { stop_token_ids: vec![999_999], ..base() }),
        ("prompt", GenerateRequest { prompt: vec![5, 1551], ..base() }),
        ("max_tokens", GenerateRequest { max_tokens: Some(0), ..base() }),
        ("min_tokens", GenerateRequest { min_tokens: Some(5), ..base() }),
        ("top_logprobs", GenerateRequest { logprobs: Some(21), ..base() }),
    ];
    for (field, request) in wrong {
        match world.handle.submit(request.clone()) {
            Err(SubmitError::Invalid(error)) => {
                assert_eq!(error.field, field, "{error}: {request:?}");
                assert!(error.to_string().contains(field));
            }
            other => panic!("{field} was not refused: {other:?} for {request:?}"),
        }
    }
}

fn right_values_pass() {
    let mut world = World::new(limits(), hashed());
    let right = [
        GenerateRequest { temperature: Some(0.0), top_p: Some(0.0), min_p: Some(1.0), ..base() },
        GenerateRequest { temperature: Some(2.0), top_p: Some(1.0), top_k: Some(7), ..base() },
        GenerateRequest { logit_bias: vec![(1550, -100.0), (0, 100.0)], ..base() },
        GenerateRequest { stop: vec!["a".to_string(); 4], logprobs: Some(20), ..base() },
        GenerateRequest { seed: Some(u64::MAX), min_tokens: Some(4), ..base() },
    ];
    for request in right {
        let generation = world.handle.submit(request.clone());
        let generation = generation.unwrap_or_else(|e| panic!("{e}: {request:?}"));
        world.settle();
        pollster::block_on(generation.collect()).unwrap();
    }
    // The model's own default holds where a request is silent, 1.0 where both are.
    let card = super::fake::card();
    assert_eq!(base().sampling(&card).unwrap().temperature, 0.0);
    let mut silent = super::fake::card();
    silent.defaults.temperature = None;
    assert_eq!(base().sampling(&silent).unwrap().temperature, 1.0);
}

fn prompts_that_never_fit() {
    let tokens = |n: usize| GenerateRequest { prompt: vec![300; n], ..GenerateRequest::default() };
    let small = Limits { blocks: 8, ..limits() };
    let mut world = World::new(small, hashed());
    let refused = world.handle.submit(tokens(129)).unwrap_err();
    assert_eq!(refused, SubmitError::BeyondPool { prompt: 129, limit: 128 });
    assert!(refused.to_string().contains("129") && refused.to_string().contains("128"));
    world.handle.submit(tokens(128)).expect_err("no room for a first token");
    assert_eq!(world.handle.submit(tokens(0)).unwrap_err(), SubmitError::Empty);
    let fits = world.handle.submit(tokens(127)).unwrap();
    world.settle();
    assert_eq!(pollster::block_on(fits.collect()).unwrap().tokens.len(), 1);

    let world = World::new(limits(), hashed());
    let refused = world.handle.submit(tokens(2048)).unwrap_err();
    assert_eq!(refused, SubmitError::BeyondContext { prompt: 2048, limit: 2048 });
}
