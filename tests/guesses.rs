//! Rows of `guesses`: a real model says the same with guessed tokens as without, to the bit.

use crate::company::{options, requests};
use crate::models::craft::Checkpoint;
use crate::support::{On, Rows, World};
use std::sync::{Arc, Mutex};
use tilewright::base::{Limits, Speculate};
use tilewright::engine::GenerateRequest;
use tilewright::trace::{Event, RingSink};

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let row = format!("guesses::change_no_bit.{}", on.name());
        rows.add_if(present, row, move |()| guesses(on));
    }
}

/// Guessed tokens: the same bits, alone and together, in a tiny pool, retracted at will, and fewer
/// steps where a text repeats itself. How much faster that was is printed, not judged.
fn guesses(on: On) {
    let weights = Checkpoint::fable(2).folder();
    let world = World::open(&weights, on.device(), &options(512)).unwrap_or_else(|e| panic!("{e}"));
    let requests: Vec<_> = requests().drain(4..).map(repeating).collect();
    let roomy = Limits { blocks: 200, ..world.limits };
    let run = |limits, requests: &[GenerateRequest], speculate, every| {
        let events = Arc::new(Mutex::new(RingSink::new(1 << 16)));
        let began = std::time::Instant::now();
        let outcome = world.run_with(limits, requests, |config| {
            config.policies.speculate = speculate;
            config.force_preemption_every = every;
            config.sinks.push(Box::new(events.clone()));
        });
        let (mut steps, mut drafted, mut right) = (0, 0, 0);
        for stamped in events.lock().expect("events").events() {
            match stamped.event {
                Event::StepRan { .. } => steps += 1,
                Event::DraftsTried { drafted: n, right: m, .. } => {
                    (drafted, right) = (drafted + n, right + m);
                }
                _ => {}
            }
        }
        let preempted = outcome.preempted;
        (outcome.all(), (steps, drafted, right, preempted), began.elapsed())
    };
    let ngram = Speculate::ngram(4, 1, 4).expect("usable");
    let (expected, plain, _) = run(roomy, &requests, Speculate::Off, None);
    assert_eq!((plain.1, plain.2), (0, 0));
    for (limits, every) in [
        (roomy, None),
        (Limits { step_tokens_max: 24, ..roomy }, None),
        (Limits { blocks: 26, step_tokens_max: 64, ..roomy }, Some(5)),
    ] {
        let (answers, (_, drafted, right, preempted), _) = run(limits, &requests, ngram, every);
        assert!(right > 0 && drafted > right, "{right} of {drafted}, {limits:?}");
        assert!(every.is_none() || preempted > 0);
        assert!(answers == expected, "guesses changed an answer: {limits:?}");
    }
    // Alone and greedy, this one goes round after a while.
    let alone =
        GenerateRequest { max_tokens: Some(96), temperature: Some(0.0), ..requests[4].clone() };
    let alone = std::slice::from_ref(&alone);
    let (expected, plain, slow) = run(roomy, alone, Speculate::Off, None);
    let (answers, with, fast) = run(roomy, alone, ngram, None);
    assert!(answers == expected);
    println!("96 tokens: {} steps in {slow:?}, with guesses {with:?} in {fast:?}", plain.0);
    assert!(plain.0 == 96 && with.0 * 4 < plain.0 * 3, "{} steps, then {with:?}", plain.0);
}

/// A prompt that says its words again and again, and nothing that keeps guesses out.
fn repeating(request: GenerateRequest) -> GenerateRequest {
    let word = &request.prompt[..request.prompt.len().min(6)];
    GenerateRequest {
        prompt: word.iter().copied().cycle().take(request.prompt.len().min(90)).collect(),
        repetition_penalty: None,
        frequency_penalty: None,
        temperature: request.temperature.map(|t| t / 3.0),
        ..request
    }
}
