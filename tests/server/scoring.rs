//! Scoring over the socket as evaluation harnesses do it: many prompts a request, in pieces, among
//! each other. Each log-likelihood must have the bits that the same device gives for that prompt by
//! itself, computed in one step, by hand.

use crate::fable_http::{Served, ask};
use crate::support::{Decoder, On, Rows};
use serde_json::{Value, json};
use tilewright::engine::fable;
use tilewright::model::SampleRow;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let name = format!("server::scores_equal_log_likelihoods.{}", on.name());
        rows.add_if(present, name, move |()| scores(on));
    }
}

fn prompts() -> Vec<Vec<u32>> {
    let id = |n: u32, i: u32| 300 + (i * i * 11 + i * 89 + n * 401) % 1200;
    [40, 3, 61, 17, 2]
        .into_iter()
        .zip(0..)
        .map(|(len, n)| (0..len).map(|i| id(n, i)).collect())
        .collect()
}

/// Log-likelihoods of the tokens of `prompt` from the second on, unchunked.
fn by_hand(decoder: &mut Decoder, prompt: &[u32]) -> Vec<f32> {
    let table: Vec<u32> = (0..prompt.len().div_ceil(16) as u32).collect();
    decoder.batch.clear();
    decoder.batch.push_row(prompt, 0, &table);
    let given = |id: &u32| SampleRow { given: id + 1, top: 1, ..SampleRow::default() };
    decoder.batch.samples.extend((0..).zip(prompt[1..].iter().map(given)));
    let bytes = decoder.run();
    decoder.model.results(&decoder.batch, &bytes).iter().map(|r| r.logprob).collect()
}

fn scores(on: On) {
    let weights = fable().expect("fable");
    let mut decoder = Decoder::of(&weights, on, 128);
    let served = Served::new(move || on.device(), 16);
    let prompts = prompts();
    let body = json!({
        "prompt": prompts, "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0,
    });
    let (status, answer) = ask(served.address, "POST", "/v1/completions", &body.to_string());
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    for (n, (choice, prompt)) in
        answer["choices"].as_array().expect("choices").iter().zip(&prompts).enumerate()
    {
        let list = choice["logprobs"]["token_logprobs"].as_array().expect("a list");
        let scored = &list[1..prompt.len()];
        // The reader's last bit of an f64 is not exact; that of the f32 it stands for is.
        let score = |v: &Value| v.as_f64().expect("a number") as f32;
        let found: Vec<f32> = scored.iter().map(score).collect();
        assert_eq!(found, by_hand(&mut decoder, prompt), "prompt {n}");
        let sum: f32 = found.iter().sum();
        assert!(sum < 0.0 && sum.is_finite());
    }
    assert_ne!(by_hand(&mut decoder, &prompts[0]), by_hand(&mut decoder, &prompts[2]));
}
