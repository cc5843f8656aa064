//! What a request may ask about its prompt: scores and pooled states, in pieces, under pressure.

use super::fake::{World, hashed, ids, limits, script};
use crate::support::Rows;
use tilewright::base::Limits;
use tilewright::engine::{Completion, GenerateRequest, Pooling, Question, SubmitError};
use tilewright::trace::FinishReason;

pub fn rows(rows: &mut Rows) {
    rows.add("engine::prompt_is_scored_in_pieces", scored_in_pieces);
    rows.add("engine::prompt_is_pooled_in_pieces", pooled_in_pieces);
    rows.add("engine::asked_prompts_survive_preemption", survive_preemption);
    rows.add("engine::nothing_generated_only_when_asked", nothing_generated);
}

fn prompt(n: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| 300 + (i * 7 + n * 31) % 1000).collect()
}

fn asks(prompt: Vec<u32>, question: Question, max_tokens: u32) -> GenerateRequest {
    let (question, max_tokens) = (Some(question), Some(max_tokens));
    GenerateRequest { prompt, question, max_tokens, ..GenerateRequest::default() }
}

fn run(limits: Limits, requests: Vec<GenerateRequest>) -> Vec<Completion> {
    let mut world = World::new(limits, hashed());
    let open: Vec<_> = requests.into_iter().map(|r| world.handle.submit(r).unwrap()).collect();
    world.settle();
    assert_eq!(world.handle.status().blocks_used, 0);
    open.into_iter().map(|g| pollster::block_on(g.collect()).unwrap()).collect()
}

fn step(tokens: u32) -> Limits {
    Limits { step_tokens_max: tokens, ..limits() }
}

fn scored_in_pieces() {
    let prompt = prompt(1, 100);
    let ask = |max| asks(prompt.clone(), Question::Logprobs(2), max);
    let whole = &run(step(256), vec![ask(3)])[0];
    assert_eq!(whole.prompt_logprobs.len(), 99, "of the second token and on");
    for (at, scored) in whole.prompt_logprobs.iter().enumerate() {
        let sum: f32 = prompt[..=at].iter().map(|&id| id as f32).sum();
        assert_eq!(scored.chosen, -sum / 1024.0 - prompt[at + 1] as f32, "position {at}");
        assert_eq!(scored.top.len(), 2);
    }
    assert_eq!(whole.tokens.len(), 3);
    for tokens in [1, 7, 16, 99] {
        assert_eq!(&run(step(tokens), vec![ask(3)])[0], whole, "{tokens} tokens a step");
    }
    // What others left in the cache is no answer: every row is computed.
    for scored in run(step(16), vec![ask(3), ask(3), ask(3)]) {
        assert_eq!(scored.prompt_logprobs, whole.prompt_logprobs);
    }
    let only = &run(step(16), vec![ask(0)])[0];
    assert_eq!(only.prompt_logprobs, whole.prompt_logprobs);
    assert_eq!((only.tokens.len(), only.reason), (0, Some(FinishReason::Length)));
    assert_eq!((only.usage.prompt_tokens, only.usage.completion_tokens), (100, 0));
    let one = &run(step(16), vec![asks(vec![300], Question::Logprobs(0), 0)])[0];
    assert!(one.prompt_logprobs.is_empty() && one.reason.is_some());
}

fn pooled_in_pieces() {
    let prompt = prompt(2, 90);
    let sums: Vec<f64> =
        (0..90).map(|at| prompt[..=at].iter().map(|&id| f64::from(id)).sum()).collect();
    let mean = (sums.iter().sum::<f64>() / 90.0) as f32;
    for tokens in [1, 13, 64, 256] {
        for (pooling, first) in [(Pooling::Mean, mean), (Pooling::Last, sums[89] as f32)] {
            let asked = asks(prompt.clone(), Question::Pooled(pooling), 5);
            let found = &run(step(tokens), vec![asked])[0];
            assert_eq!(found.pooled, [first, 1.0, -0.25], "{pooling:?}, {tokens} tokens a step");
            assert_eq!((found.tokens.len(), found.usage.prompt_tokens), (0, 90));
        }
    }
}

/// A prompt that is computed twice is told once.
fn survive_preemption() {
    let requests = || {
        let ask = |n: u32| match n % 3 {
            0 => asks(prompt(n, 40 + n), Question::Logprobs(1), 40),
            1 => asks(prompt(n, 60 + n), Question::Pooled(Pooling::Mean), 0),
            _ => GenerateRequest {
                prompt: prompt(n, 30),
                max_tokens: Some(60),
                ..GenerateRequest::default()
            },
        };
        (0..9).map(ask).collect::<Vec<_>>()
    };
    let roomy = run(step(16), requests());
    let tight = Limits { blocks: 14, ..step(16) };
    assert_eq!(run(tight, requests()), roomy);
}

fn nothing_generated() {
    let mut world = World::new(limits(), script(ids("Hello.")));
    let bare =
        GenerateRequest { prompt: vec![300], max_tokens: Some(0), ..GenerateRequest::default() };
    let refused = world.handle.submit(bare).unwrap_err();
    assert!(matches!(&refused, SubmitError::Invalid(f) if f.field == "max_tokens"), "{refused}");
    let many = asks(vec![300, 301], Question::Logprobs(21), 1);
    assert!(matches!(world.handle.submit(many), Err(SubmitError::Invalid(_))));
    let gone = world.handle.submit(asks(prompt(1, 80), Question::Logprobs(0), 0)).unwrap();
    world.step();
    drop(gone);
    world.settle();
    assert_eq!(world.handle.status().blocks_used, 0);
}
