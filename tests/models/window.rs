//! Case 40: a sliding window against chunks, block edges and blocks that were given back.

use super::craft::Checkpoint;
use super::{golden, prompt, table};
use crate::support::{Decoder, On, Rows, World, shared};
use serde_json::json;
use std::path::Path;
use tilewright::base::{Limits, Preemption};
use tilewright::engine::{GenerateRequest, LoadOptions};
use tilewright::model::Spec;

const WINDOW: u32 = 16;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let device = on.name();
        let path = present.clone().and_then(|()| shared("fixtures/mistral-window"));
        rows.add_if(path, format!("models::window_edges.{device}"), move |p| edges(&p, on));
        rows.add_if(present, format!("models::window_blocks_expire.{device}"), move |()| {
            blocks_expire(on);
        });
    }
    rows.add("models::window_of_all_layers", window_of_all_layers);
}

/// Prompts around one, two and three windows: the last row has the same bits however the prompt
/// was cut, the values of the reference, and so have the tokens decoded after it.
fn edges(path: &Path, on: On) {
    let (ids, expected) = golden(&path.join("golden.safetensors"));
    let mut decoder = Decoder::open(path, on, 128);
    assert_eq!(decoder.model.spec.widest_window(), Some(WINDOW));
    assert!(ids.len() >= 48);
    let mut decoded = decoder.logits(&ids[..15], 15, &table(8));
    for at in 15..ids.len() {
        decoder.batch.clear();
        decoder.batch.push_row(&ids[at..=at], at as u32, &table(8));
        decoder.batch.samples.push((0, Default::default()));
        decoder.batch.logits = true;
        let bytes = decoder.run();
        decoded.extend(decoder.model.logits(&decoder.batch, &bytes));
    }
    for len in [15, 16, 17, 18, 31, 32, 33, 48] {
        for chunk in [1, 5, 16, len] {
            let last = decoder.prefill(&ids[..len], chunk, &table(8));
            assert!(last == decoded[len - 1], "{len} tokens in chunks of {chunk}");
        }
        let pairs = decoded[len - 1].iter().zip(&expected[len - 1]);
        let worst = pairs.fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
        assert!(worst <= super::LOGITS_TOLERANCE, "{len} tokens: {worst}");
    }
}

/// Fable with a window in all of its layers.
fn windowed(layers: u32) -> Checkpoint {
    let mut checkpoint = Checkpoint::fable(layers);
    checkpoint.config["model_type"] = json!("mistral");
    checkpoint.config["sliding_window"] = json!(WINDOW);
    checkpoint
}

/// Through the engine: sequences hold the blocks of their window, the others are written by
/// their neighbours, and every output is that of the sequence alone in a large pool.
fn blocks_expire(on: On) {
    let weights = windowed(2).folder();
    let options = LoadOptions {
        context: Some(192),
        sequences: Some(4),
        step_tokens: Some(32),
        kv_memory: Some(1 << 20),
        ..LoadOptions::default()
    };
    let world = World::open(&weights, on.device(), &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(world.limits.window, Some(WINDOW));
    let request = |n: u32| GenerateRequest {
        prompt: prompt(20 + 9 * n).split_off(n as usize),
        max_tokens: Some(90),
        ignore_eos: true,
        temperature: Some(0.0),
        ..GenerateRequest::default()
    };
    let requests: Vec<_> = (0..4).map(request).collect();
    let alone = |r: &GenerateRequest| {
        world.run(world.limits, std::slice::from_ref(r)).all().remove(0).tokens
    };
    let expected: Vec<_> = requests.iter().map(alone).collect();
    // Whole sequences would need 7 to 9 blocks each; prompts take up to 3, windows up to 2.
    let tiny = Limits { blocks: 14, watermark_permille: 0, ..world.limits };
    let outcome = world.run(tiny, &requests);
    assert_eq!(outcome.preempted, 0, "expired blocks are enough for everybody");
    let got: Vec<_> = outcome.all().into_iter().map(|c| c.tokens).collect();
    assert_eq!(got, expected);
    // Sent to host memory and back with what their windows still reach.
    let swapped = world.run_with(Limits { host_blocks: 40, ..tiny }, &requests, |config| {
        config.policies.preemption = Preemption::Swap;
        config.force_preemption_every = Some(3);
    });
    assert!(swapped.swapped > 20, "{}", swapped.swapped);
    let got: Vec<_> = swapped.all().into_iter().map(|c| c.tokens).collect();
    assert_eq!(got, expected);
}

/// One layer that sees everything keeps every block.
fn window_of_all_layers() {
    let mut spec = Spec::read(&windowed(3).folder()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(spec.windows, [Some(WINDOW); 3]);
    assert_eq!(spec.widest_window(), Some(WINDOW));
    spec.windows[1] = Some(40);
    assert_eq!(spec.widest_window(), Some(40));
    spec.windows[2] = None;
    assert_eq!(spec.widest_window(), None);
    let mut checkpoint = windowed(2);
    checkpoint.config["sliding_window"] = json!(null);
    let spec = Spec::read(&checkpoint.folder()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(spec.widest_window(), None);
}
