//! What the small files beside the weights, and the keys that take their place in GGUF files, say
//! wrongly: an error or a warning that names file and field, never silence.

use super::craft::{Checkpoint, EMBEDDING, STRING};
use crate::support::{Rows, root};
use crate::weights::build::{array, text};
use serde_json::{Value, json};
use tilewright::base::MonotonicClock;
use tilewright::cpu::CpuDevice;
use tilewright::engine::{LoadOptions, ModelCard, Sizes, load, read_card};
use tilewright::record::Device;
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    rows.add("models::side_files_of_wrong_types_are_refused", wrong_types);
    rows.add("models::side_files_that_say_too_much_are_told", too_much);
    rows.add("models::side_files_as_models_have_them", as_models_have_them);
    rows.add("models::gguf_keys_of_the_tokenizer_of_wrong_types", gguf_keys);
    rows.add("models::blank_matrices_are_told", blank_matrices);
}

const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer_config.json";

fn card(weights: &Weights) -> Result<(ModelCard, Vec<String>), String> {
    let mut warnings = Vec::new();
    let card = read_card(weights, 1551, &LoadOptions::default(), &mut warnings);
    card.map(|card| (card, warnings)).map_err(|error| error.to_string())
}

fn with(name: &'static str, value: Value) -> Result<(ModelCard, Vec<String>), String> {
    let weights = match name {
        "config.json" => {
            let mut checkpoint = Checkpoint::fable(1);
            checkpoint.config["eos_token_id"] = value;
            checkpoint.folder_with(&[])
        }
        _ => Checkpoint::fable(1).folder_with(&[(name, value)]),
    };
    card(&weights.map_err(|error| error.to_string())?)
}

fn wrong_types() {
    for (file, value, field) in [
        (GENERATION, json!([]), "no object"),
        (GENERATION, json!({"temperature": "hot"}), "temperature"),
        (GENERATION, json!({"top_k": -5}), "top_k"),
        (GENERATION, json!({"top_k": 1.5}), "top_k"),
        (GENERATION, json!({"top_p": [0.9]}), "top_p"),
        (GENERATION, json!({"do_sample": "no"}), "do_sample"),
        (GENERATION, json!({"eos_token_id": "x"}), "eos_token_id"),
        (GENERATION, json!({"eos_token_id": -3}), "eos_token_id"),
        (GENERATION, json!({"eos_token_id": [2, 1.5]}), "eos_token_id"),
        ("config.json", json!("x"), "eos_token_id"),
        ("config.json", json!({"id": 2}), "eos_token_id"),
        (TOKENIZER, json!([]), "no object"),
        (TOKENIZER, json!({"eos_token": 5}), "eos_token"),
        (TOKENIZER, json!({"bos_token": {"id": 1}}), "bos_token"),
        (TOKENIZER, json!({"add_bos_token": "yes"}), "add_bos_token"),
    ] {
        let Err(error) = with(file, value.clone()) else { panic!("{file} of {value} loads") };
        assert!(error.contains(file) && error.contains(field), "{value}: {error}");
    }
}

/// Models in use do this, so they load; the operator is told.
fn too_much() {
    for (file, value, field) in [
        (GENERATION, json!({"eos_token_id": [2, 99999]}), "eos_token_id 99999"),
        ("config.json", json!(1551), "eos_token_id 1551"),
        (GENERATION, json!({"temperature": 99}), "temperature"),
        (GENERATION, json!({"top_p": 7}), "top_p"),
    ] {
        let (card, warnings) = with(file, value).unwrap_or_else(|e| panic!("{e}"));
        assert!(warnings.iter().any(|w| w.contains(field)), "{field}: {warnings:?}");
        assert!(card.stop_ids.iter().all(|id| *id < 1551), "{:?}", card.stop_ids);
    }
    // chat_template.jinja would be taken before it.
    for template in [json!(5), json!([{"name": "x"}]), json!({"default": 5})] {
        let wrong = json!({"chat_template": template});
        let files = [(TOKENIZER, wrong), ("chat_template.jinja", Value::Null)];
        let weights = without_template(&files);
        let (card, warnings) = card(&weights).unwrap_or_else(|e| panic!("{e}"));
        assert!(card.template.is_none());
        let told = |w: &String| w.contains(TOKENIZER) && w.contains("chat_template");
        assert!(warnings.iter().any(told), "{template}: {warnings:?}");
    }
}

/// Fable's folder with `files`, of which the jinja file is empty.
fn without_template(files: &[(&'static str, Value)]) -> Weights {
    let mut all = Checkpoint::fable(1).files();
    for (name, value) in files {
        all.retain(|(there, _)| there != name);
        let text = if value.is_null() { String::new() } else { value.to_string() };
        all.push((name, text.into_bytes().into()));
    }
    Weights::from_folder_bytes("crafted", all).unwrap_or_else(|e| panic!("{e}"))
}

fn as_models_have_them() {
    let generation = json!({"temperature": 0.6, "top_k": -1, "top_p": null, "do_sample": true,
                            "eos_token_id": [2, 0], "transformers_version": "4"});
    let (card, warnings) = with(GENERATION, generation).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((card.defaults.temperature, card.defaults.top_k), (Some(0.6), Some(0)));
    assert_eq!((card.defaults.top_p, card.stop_ids), (None, vec![0, 2]));
    assert_eq!(warnings, Vec::<String>::new());
    for value in [json!(null), json!(-1), json!([0])] {
        let (_, warnings) = with("config.json", value).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(warnings, Vec::<String>::new());
    }
}

/// A small vocabulary of bytes in a GGUF file, with one more key.
fn gguf(key: &str, kind: u32, value: &[u8]) -> Weights {
    let json: Value = serde_json::from_slice(
        &std::fs::read(root().join("assets/fable/tokenizer.json")).expect("a tokenizer"),
    )
    .expect("json");
    let table = json["model"]["vocab"].as_object().expect("a table");
    let bytes = table.keys().filter(|piece| piece.chars().count() == 1);
    let tokens: Vec<&str> = bytes.map(String::as_str).chain(["<|im_start|>", "</x>"]).collect();
    let mut list = Vec::new();
    tokens.iter().for_each(|token| list.extend(text(token)));
    let mut types = vec![1i32; tokens.len() - 2];
    types.extend([3, 3]);
    let types: Vec<u8> = types.iter().flat_map(|kind| kind.to_le_bytes()).collect();
    let count = tokens.len() as u64;
    let mut file = Checkpoint::fable(1).gguf(true);
    for (name, kind, value) in [
        ("model", STRING, text("gpt2")),
        ("pre", STRING, text("gpt2")),
        ("tokens", 9, array(STRING, count, &list)),
        ("token_type", 9, array(5, count, &types)),
        ("eos_token_id", 4, (count as u32 - 1).to_le_bytes().to_vec()),
    ] {
        if format!("tokenizer.ggml.{name}") != key {
            file = file.key(&format!("tokenizer.ggml.{name}"), kind, &value);
        }
    }
    if !value.is_empty() {
        file = file.key(key, kind, value);
    }
    file.open().unwrap_or_else(|e| panic!("{e}"))
}

fn gguf_keys() {
    let (_, warnings) = card(&gguf("none", 0, &[])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(warnings, Vec::<String>::new());
    // No types: what ids name, and what is written as a marker, is none of the text.
    let untyped = gguf("tokenizer.ggml.token_type", 0, &[]);
    let (found, warnings) = card(&untyped).unwrap_or_else(|e| panic!("{e}"));
    assert!(warnings.iter().any(|w| w.contains("tokenizer.ggml.token_type")), "{warnings:?}");
    let tokenizer = &found.tokenizer;
    let last = tokenizer.vocab_size() - 1;
    assert_eq!(tokenizer.encode_prompt("<|im_start|></x>").unwrap(), [last - 1, last]);
    assert!(tokenizer.encode("<|im_start|></x>").unwrap().iter().all(|id| *id < last - 1));
    assert!(tokenizer.is_special(last) && found.stop_ids == [last]);
    let eos = "tokenizer.ggml.eos_token_id";
    let Err(error) = card(&gguf(eos, 10, &u64::MAX.to_le_bytes())) else { panic!("loads") };
    assert!(error.contains(eos), "{error}");
    let template = "tokenizer.chat_template";
    let (_, warnings) = card(&gguf(template, 4, &[5, 0, 0, 0])).unwrap_or_else(|e| panic!("{e}"));
    assert!(warnings.iter().any(|w| w.contains(template)), "{warnings:?}");
}

/// What a download has reserved and not filled.
fn blank_matrices() {
    let told = |blank: &[&str]| {
        let mut checkpoint = Checkpoint::fable(1);
        for name in blank {
            checkpoint.tensors.get_mut(*name).expect(name).bytes.fill(0);
        }
        let (weights, device) = (checkpoint.folder(), CpuDevice::default());
        let wanted = LoadOptions {
            kv_memory: Some(4 << 20),
            step_tokens: Some(16),
            ..LoadOptions::default()
        };
        let sizes = Sizes::choose(&weights, device.facts(), &wanted).expect("sizes");
        let clock = MonotonicClock::default();
        let device = Box::new(device);
        let loaded = load(&weights, device, &sizes, &wanted, &clock, &mut |_, _| {});
        loaded.unwrap_or_else(|e| panic!("{e}")).warnings
    };
    assert_eq!(told(&[]), Vec::<String>::new());
    // A norm may be zero where one is added to it, and a bias anywhere.
    assert_eq!(told(&["model.norm.weight"]), Vec::<String>::new());
    let (up, q) = ("model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight");
    for (blank, says) in [(vec![EMBEDDING], EMBEDDING), (vec![up, q], up), (vec![up, q], "1 more")]
    {
        let warnings = told(&blank);
        assert!(warnings.iter().any(|w| w.contains(says)), "{says}: {warnings:?}");
        assert!(warnings.iter().any(|w| w.contains("download")), "{warnings:?}");
    }
}
