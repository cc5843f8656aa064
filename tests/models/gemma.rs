//! Rows over Gemma 3 270m, a real model that `models/fetch` brings: windows of 512 keys in five of
//! six layers, an embedding of 262,144 rows that no binding of 128 MiB holds, formats mixed by
//! row length, activations beyond half precision's range.

use super::limits::limited;
use super::{REAL_MARGIN, json, pairs, sure, table};
use crate::support::{Decoder, On, Rows, Watched, real_model, shared};
use crate::text::HARD;
use serde_json::Value;
use std::path::Path;
use tilewright::engine::{LoadOptions, convert, read_card};
use tilewright::model::Options;
use tilewright::weights::Weights;

const MODEL: &str = "gemma-3-270m-q4_k_m.gguf";

/// The binding that WebGPU promises.
const BINDING: u64 = 128 << 20;

/// Prompts longer than this are continued by a few ids only: their point is the prompt.
const LONG: usize = 256;

pub fn rows(rows: &mut Rows) {
    let golden = real_model(MODEL).and_then(|m| Ok((m, shared("models/gemma3-golden.json")?)));
    rows.add_if(golden.clone(), "models::gemma3_270m_activations", |(model, golden)| {
        activations(&model, &golden);
    });
    rows.add_if(golden, "models::gemma3_270m_as_folder", |(model, golden)| {
        as_folder(&model, &golden);
    });
    for (on, present) in On::all() {
        let model = present.and_then(|()| real_model(MODEL));
        let golden = model.and_then(|m| Ok((m, shared("models/gemma3-golden.json")?)));
        rows.add_if(
            golden,
            format!("models::gemma3_270m.{}", on.name()),
            move |(model, golden)| {
                gemma3(&model, &golden, on);
            },
        );
    }
}

fn gemma3(model: &Path, golden: &Path, on: On) {
    let reference = json(golden);
    let weights = Weights::open(model).unwrap_or_else(|e| panic!("{e}"));
    let embedding = weights.tensor("token_embd.weight").expect("an embedding");
    assert!(embedding.bytes > BINDING, "one binding holds it");
    let sizes = Options { step_tokens_max: 128, sequences_max: 4, ..Decoder::options(1280) };
    let decoder = Decoder::sized(&weights, limited(on, BINDING), sizes);
    let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
    let mut longest = 0;
    for case in reference["cases"].as_array().expect("cases") {
        let ids = ids_of(case);
        longest = longest.max(ids.len());
        let logits = decoder.prefill(&ids, 128, &table(80));
        assert!(logits.iter().all(|l| l.is_finite()), "{}", case["prompt"]);
        for (id, want) in pairs(&case["first_logits_top10"]) {
            let got = f64::from(logits[id as usize]);
            assert!((got - want).abs() <= 2e-2, "logit of {id}: {got}, reference {want}");
        }
        let mut expected = sure(&pairs(&case["greedy_id_and_margin"]), REAL_MARGIN);
        expected.truncate(if ids.len() > LONG { 8 } else { 32 });
        let Some((first, rest)) = expected.split_first() else { continue };
        let best = (0..logits.len()).fold(0, |b, i| if logits[i] > logits[b] { i } else { b });
        assert_eq!(best as u32, *first, "{}", case["prompt"]);
        let known = [&ids[..], &[*first]].concat();
        let got = decoder.extend(known, ids.len(), rest.len(), 1, &table(80));
        assert_eq!(got, rest, "{}", case["prompt"]);
    }
    assert!(longest > 512 + 128, "no prompt leaves the window: {longest}");
}

fn ids_of(case: &Value) -> Vec<u32> {
    serde_json::from_value(case["prompt_ids"].clone()).expect("ids")
}

/// Case 45: what every launch of a step writes is finite, and some of it beyond half precision;
/// keys and values are within, so that they may be stored as halves.
fn activations(model: &Path, golden: &Path) {
    let weights = Weights::open(model).unwrap_or_else(|e| panic!("{e}"));
    let sizes = Options { step_tokens_max: 16, sequences_max: 4, ..Decoder::options(64) };
    let (device, seen) = Watched::new(On::Cpu.device());
    let decoder = Decoder::sized(&weights, Box::new(device), sizes);
    let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
    let reference = json(golden);
    let cases = reference["cases"].as_array().expect("cases");
    let long = cases.iter().map(ids_of).max_by_key(Vec::len).expect("a case");
    for count in [1, 64] {
        decoder.prefill(&long[..count], 16, &table(4));
    }
    let seen = seen.lock().expect("one thread");
    println!("largest magnitudes: {seen:?}");
    assert!(seen.values().all(|top| top.is_finite()), "{seen:?}");
    let half = f32::from(half::f16::MAX);
    assert!(seen.values().any(|top| *top > half), "{seen:?}");
    assert!(seen["rope_kv"] < half, "{seen:?}");
}

/// The GGUF file as a Hugging Face folder: the same tokenizer, template and logits, up to what
/// halves lose of its blocks.
fn as_folder(model: &Path, golden: &Path) {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("gemma");
    let file = Weights::open(model).unwrap_or_else(|e| panic!("{e}"));
    convert(&file, &folder).unwrap_or_else(|e| panic!("{e}"));
    let weights = Weights::open(&folder).unwrap_or_else(|e| panic!("{e}"));
    let card = |weights| {
        let card = read_card(weights, 262_144, &LoadOptions::default(), &mut Vec::new());
        card.unwrap_or_else(|e| panic!("{e}"))
    };
    let (one, other) = (card(&file), card(&weights));
    assert_eq!(one.stop_ids, other.stop_ids);
    assert_eq!(one.template.is_some(), other.template.is_some());
    for text in HARD {
        assert_eq!(
            one.tokenizer.encode(text).unwrap(),
            other.tokenizer.encode(text).unwrap(),
            "{text:?}"
        );
    }
    let reference = json(golden);
    let cases = reference["cases"].as_array().expect("cases");
    let case = cases.iter().min_by_key(|case| ids_of(case).len()).expect("a case");
    let prompt = case["prompt"].as_str().expect("a prompt");
    assert_eq!(other.tokenizer.encode_prompt(prompt).unwrap(), ids_of(case));
    let sizes = Options { step_tokens_max: 16, sequences_max: 4, ..Decoder::options(64) };
    let decoder = Decoder::sized(&weights, On::Cpu.device(), sizes);
    let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
    let logits = decoder.prefill(&ids_of(case), 16, &table(4));
    for (id, want) in pairs(&case["first_logits_top10"]) {
        let got = f64::from(logits[id as usize]);
        assert!((got - want).abs() <= 5e-2, "logit of {id}: {got}, reference {want}");
    }
}
