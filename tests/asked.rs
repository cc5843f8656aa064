//! What is asked about prompts, on real devices: scores and pooled states of many requests in
//! pieces, among others and under pressure, against one request at a time, unchunked. Bits are
//! compared; the values themselves are held against the logits.

use crate::support::{Decoder, On, Rows, World};
use tilewright::base::Limits;
use tilewright::engine::{GenerateRequest, LoadOptions, Pooling, Question, TokenLogprobs, fable};
use tilewright::model::SampleRow;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let name = format!("asked::scores_are_those_of_one_alone.{}", on.name());
        rows.add_if(present.clone(), name, move |()| scores(on));
        let name = format!("asked::states_are_those_of_one_alone.{}", on.name());
        rows.add_if(present, name, move |()| states(on));
    }
}

const CONTEXT: u32 = 96;
const TOP: u32 = 2;

fn ids(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|i| 300 + (i * i * 13 + i * 97 + seed * 331) % 1200).collect()
}

fn prompts() -> Vec<Vec<u32>> {
    [70, 17, 1, 33, 41, 16, 2, 24].into_iter().zip(0..).map(|(n, s)| ids(s, n)).collect()
}

fn options() -> LoadOptions {
    LoadOptions {
        context: Some(CONTEXT),
        sequences: Some(8),
        step_tokens: Some(80),
        ..LoadOptions::default()
    }
}

/// The prompt in one step: the scores of its tokens, and every final hidden state.
fn alone(decoder: &mut Decoder, prompt: &[u32]) -> (Vec<TokenLogprobs>, Vec<Vec<f32>>) {
    let table: Vec<u32> = (0..prompt.len().div_ceil(16) as u32).collect();
    decoder.batch.clear();
    decoder.batch.push_row(prompt, 0, &table);
    let given = prompt[1..].iter().map(|id| SampleRow {
        given: id + 1,
        top: TOP + 1,
        ..SampleRow::default()
    });
    decoder.batch.samples.extend((0..).zip(given));
    decoder.batch.hidden.extend(0..prompt.len() as u32);
    decoder.batch.logits = prompt.len() <= 128;
    let bytes = decoder.run();
    let results = decoder.model.results(&decoder.batch, &bytes);
    let states = decoder.model.hidden(&decoder.batch, &bytes);
    let logits =
        if decoder.batch.logits { decoder.model.logits(&decoder.batch, &bytes) } else { vec![] };
    for ((result, logits), &id) in results.iter().zip(&logits).zip(&prompt[1..]) {
        let high = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
        let sum: f64 = logits.iter().map(|&l| (f64::from(l) - high).exp()).sum();
        let expected = f64::from(logits[id as usize]) - high - sum.ln();
        assert!(
            (f64::from(result.logprob) - expected).abs() < 1e-4,
            "{} {expected}",
            result.logprob
        );
        assert_eq!(result.token, id);
        assert!(result.top.iter().all(|(_, logprob)| f64::from(*logprob) < 1e-4));
        assert!(result.top[0].1 >= result.logprob);
    }
    let score =
        |r: tilewright::model::SampleResult| TokenLogprobs { chosen: r.logprob, top: r.top };
    (results.into_iter().map(score).collect(), states)
}

fn scores(on: On) {
    let weights = fable().expect("fable");
    let mut decoder = Decoder::of(&weights, on, CONTEXT);
    let world = World::open(&weights, on.device(), &options()).unwrap_or_else(|e| panic!("{e}"));
    let expected: Vec<_> = prompts().iter().map(|p| alone(&mut decoder, p).0).collect();
    let ask = |(n, prompt): (usize, Vec<u32>)| GenerateRequest {
        prompt,
        question: Some(Question::Logprobs(TOP)),
        max_tokens: Some(if n.is_multiple_of(2) { 1 } else { 24 }),
        ignore_eos: true,
        ..GenerateRequest::default()
    };
    let requests: Vec<_> = prompts().into_iter().enumerate().map(ask).collect();
    for (step_tokens_max, blocks) in [(80, 200), (24, 200), (24, 8)] {
        let limits = Limits { step_tokens_max, blocks, ..world.limits };
        let outcome = world.run(limits, &requests);
        assert_eq!(outcome.preempted > 0, blocks == 8);
        for (n, (answer, expected)) in outcome.all().iter().zip(&expected).enumerate() {
            assert!(answer.prompt_logprobs == *expected, "prompt {n}, {step_tokens_max} a step");
        }
    }
    // The comparison sees a difference: one other token in front.
    let mut other = prompts().remove(3);
    other[0] ^= 1;
    assert_ne!(alone(&mut decoder, &other).0[1..], expected[3][1..]);
}

fn states(on: On) {
    let weights = fable().expect("fable");
    let mut decoder = Decoder::of(&weights, on, CONTEXT);
    let world = World::open(&weights, on.device(), &options()).unwrap_or_else(|e| panic!("{e}"));
    for pooling in [Pooling::Last, Pooling::Mean] {
        let expected = prompts().into_iter().map(|prompt| {
            let states = alone(&mut decoder, &prompt).1;
            let dim = states[0].len();
            let mean = |at: usize| {
                let sum: f64 = states.iter().map(|s| f64::from(s[at])).sum();
                (sum / states.len() as f64) as f32
            };
            match pooling {
                Pooling::Last => states[states.len() - 1].clone(),
                Pooling::Mean => (0..dim).map(mean).collect(),
            }
        });
        let expected: Vec<Vec<f32>> = expected.collect();
        assert_eq!(expected[0].len(), decoder.model.spec.hidden as usize);
        assert_ne!(expected[0], expected[1]);
        let ask = |prompt| GenerateRequest {
            prompt,
            question: Some(Question::Pooled(pooling)),
            ..GenerateRequest::default()
        };
        let requests: Vec<_> = prompts().into_iter().map(ask).collect();
        for (step_tokens_max, blocks) in [(80, 200), (24, 8)] {
            let limits = Limits { step_tokens_max, blocks, ..world.limits };
            let answers = world.run(limits, &requests).all();
            let got: Vec<_> = answers.into_iter().map(|a| a.pooled).collect();
            assert!(got == expected, "{pooling:?}, {step_tokens_max} a step");
        }
    }
}
