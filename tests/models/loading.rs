//! Cases 07 and 11: heads tied and not, keys and tensors missing or mistyped, names, mixed formats.

use super::craft::{Checkpoint, EMBEDDING, F32, HEAD, STRING, Stored, U32};
use super::{prompt, table};
use crate::support::{Decoder, On, Rows, Wrapped};
use crate::weights::build::{Gguf, array, text};
use serde_json::json;
use std::sync::atomic::Ordering;
use tilewright::base::Format;
use tilewright::cpu::CpuDevice;
use tilewright::model::Spec;
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    rows.add("models::head_missing", head_missing);
    rows.add("models::head_count", head_count);
    rows.add("models::tensor_missing_or_misshapen", tensor_missing_or_misshapen);
    rows.add("models::other_architecture", other_architecture);
    rows.add("models::tensor_left_over", tensor_left_over);
    rows.add("models::keys_not_understood", keys_not_understood);
    rows.add("models::absurd_sizes", absurd_sizes);
    for (on, present) in On::all() {
        let device = on.name();
        rows.add_if(present.clone(), format!("models::same_bits_each_way.{device}"), move |()| {
            same_bits_each_way(on);
        });
        rows.add_if(present, format!("models::mixed_formats.{device}"), move |()| {
            mixed_formats(on);
        });
    }
}

fn logits(weights: &Weights, on: On) -> Vec<Vec<f32>> {
    let ids = prompt(40);
    Decoder::of(weights, on, 128).logits(&ids, ids.len(), &table(8))
}

/// The error of a load that must be refused, before anything is put on the device.
#[track_caller]
fn refused(weights: &Weights, needles: &[&str]) {
    let device = Wrapped::new(CpuDevice::default());
    let created = device.created.clone();
    let Err(error) = Decoder::on(weights, Box::new(device), 128) else {
        panic!("loaded, but {needles:?} is wrong with it")
    };
    let text = error.to_string();
    for needle in needles {
        assert!(text.contains(needle), "`{text}` does not say `{needle}`");
    }
    assert_eq!(created.load(Ordering::Relaxed), 0, "{text}: buffers were made before");
}

#[track_caller]
fn open(file: &Gguf) -> Weights {
    file.open().unwrap_or_else(|e| panic!("{e}"))
}

/// One checkpoint as a folder and as GGUF, head tied and copied, names with and without `model.`,
/// gives one set of bits; a GGUF whose q and k rows were not reordered (case 08) does not.
fn same_bits_each_way(on: On) {
    let tied = Checkpoint::fable(2);
    let expected = logits(&tied.folder(), on);
    assert!(logits(&tied.clone().untied().folder(), on) == expected, "a copy of the head");
    assert!(logits(&open(&tied.gguf(true)), on) == expected, "GGUF");
    assert!(logits(&open(&tied.clone().untied().gguf(true)), on) == expected, "GGUF with a head");
    let mut bare = tied.clone();
    bare.tensors = tied
        .tensors
        .iter()
        .map(|(name, t)| (name.trim_start_matches("model.").to_string(), t.clone()))
        .collect();
    assert!(logits(&bare.folder(), on) == expected, "names without `model.`");
    let wrong = logits(&open(&tied.gguf(false)), on);
    let worst = |at: usize| {
        let pairs = wrong[at].iter().zip(&expected[at]);
        pairs.fold(0f32, |worst, (a, b)| worst.max((a - b).abs()))
    };
    // Position 0 turns nothing and cannot tell.
    assert!(worst(0) < 1e-3, "{}", worst(0));
    assert!((8..40).all(|at| worst(at) > 0.05), "{:?}", (8..40).map(worst).collect::<Vec<_>>());
}

fn head_missing() {
    let mut checkpoint = Checkpoint::fable(1);
    checkpoint.config["tie_word_embeddings"] = json!(false);
    refused(&checkpoint.folder(), &["tie_word_embeddings", HEAD]);
    checkpoint.config.as_object_mut().expect("a table").remove("tie_word_embeddings");
    refused(&checkpoint.folder(), &["tie_word_embeddings", HEAD]);
    checkpoint.config["tie_word_embeddings"] = json!(null);
    refused(&checkpoint.folder(), &["tie_word_embeddings", HEAD]);
}

const HEADS: &str = "llama.attention.head_count";

fn head_count() {
    let good = Checkpoint::fable(1).gguf(true);
    let with = |kind: u32, value: &[u8]| {
        let mut file = good.clone();
        let key = file.keys.iter_mut().find(|k| k.0 == HEADS).expect("the key");
        (key.1, key.2) = (kind, value.to_vec());
        open(&file)
    };
    for (kind, value) in [
        (5, 3i32.to_le_bytes().to_vec()),
        (0, vec![3]),
        (10, 3u64.to_le_bytes().to_vec()),
        (9, array(U32, 1, &3u32.to_le_bytes())),
        (9, array(5, 2, &[3, 0, 0, 0, 3, 0, 0, 0])),
    ] {
        let spec = Spec::read(&with(kind, &value)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((spec.heads, spec.kv_heads, spec.head_dim), (3, 1, 64));
    }
    refused(&with(U32, &[0; 4]), &[HEADS, "from 1"]);
    refused(&with(5, &(-3i32).to_le_bytes()), &[HEADS]);
    refused(&with(STRING, &text("three")), &[HEADS]);
    refused(&with(9, &array(5, 2, &[3, 0, 0, 0, 2, 0, 0, 0])), &[HEADS]);
    let mut absent = good;
    absent.keys.retain(|k| k.0 != HEADS);
    refused(&open(&absent), &[HEADS, "missing"]);
}

fn tensor_missing_or_misshapen() {
    let last = "model.layers.1.mlp.up_proj.weight";
    let mut checkpoint = Checkpoint::fable(2);
    let up = checkpoint.tensors.remove(last).expect("it was there");
    refused(&checkpoint.folder(), &[last, "missing"]);
    refused(&open(&checkpoint.gguf(true)), &["blk.1.ffn_up.weight", "missing"]);
    let turned = Stored { shape: vec![192, 512], ..up };
    checkpoint.tensors.insert(last.into(), turned);
    refused(&checkpoint.folder(), &[last, "expected [512, 192]", "found [192, 512]"]);
    let mut checkpoint = Checkpoint::fable(2);
    let k = "model.layers.1.self_attn.k_proj.weight";
    checkpoint
        .tensors
        .insert(k.into(), checkpoint.tensors["model.layers.1.self_attn.q_proj.weight"].clone());
    refused(&checkpoint.folder(), &[k, "expected [64, 192]", "found [192, 192]"]);
    let mut checkpoint = Checkpoint::fable(2);
    let norm = checkpoint.tensors.get_mut("model.norm.weight").expect("a norm");
    (norm.shape, norm.bytes) = (vec![96], norm.bytes[..192].to_vec());
    refused(&checkpoint.folder(), &["model.norm.weight", "expected [192]", "found [96]"]);
}

/// An unknown family is named with those that are known; a family with another's keys or tensors
/// says which of its own it lacks.
fn other_architecture() {
    let mut file = Checkpoint::fable(1).gguf(true);
    file.keys[0].2 = text("mamba");
    refused(&open(&file), &["mamba", "not supported", "llama", "gemma3"]);
    file.keys[0].2 = text("gemma2");
    refused(&open(&file), &["gemma2.embedding_length", "missing"]);
    let mut checkpoint = Checkpoint::fable(1);
    checkpoint.config["model_type"] = json!("mamba");
    refused(&checkpoint.folder(), &["mamba", "not supported", "llama", "gemma3_text"]);
    checkpoint.config["model_type"] = json!("gemma2");
    refused(&checkpoint.folder(), &["pre_feedforward_layernorm", "missing"]);
    checkpoint.config["model_type"] = json!("qwen2");
    refused(&checkpoint.folder(), &["self_attn.q_proj.bias", "missing"]);
}

/// A tensor of a layer that would be left out is part of a model that is not this one.
fn tensor_left_over() {
    let mut checkpoint = Checkpoint::fable(2);
    let norm = checkpoint.tensors["model.layers.1.input_layernorm.weight"].clone();
    let extra = "model.layers.1.self_attn.q_norm.weight";
    checkpoint.tensors.insert(extra.into(), norm.clone());
    refused(&checkpoint.folder(), &[extra, "no place in a Llama model"]);
    checkpoint.tensors.remove(extra);
    // A factor of a matrix that is no eight-bit float would be left out, too; that of activations
    // which are not rounded here is not missed.
    let factor = "model.layers.1.mlp.up_proj.weight_scale";
    checkpoint.tensors.insert(factor.into(), norm.clone());
    refused(&checkpoint.folder(), &[factor, "no place in a Llama model"]);
    checkpoint.tensors.remove(factor);
    for ignored in ["self_attn.rotary_emb.inv_freq", "mlp.up_proj.input_scale", "self_attn.k_scale"]
    {
        checkpoint.tensors.insert(format!("model.layers.1.{ignored}"), norm.clone());
    }
    Decoder::of(&checkpoint.folder(), On::Cpu, 16);
}

/// Keys of config.json that would change the numbers and that nothing here understands.
fn keys_not_understood() {
    for (key, value, says) in [
        ("hidden_act", json!("relu2"), "`relu2` is not supported"),
        ("clip_qkv", json!(8.0), "8.0 is not supported"),
        ("residual_multiplier", json!(0.5), "Llama"),
        ("logits_scaling", json!(8), "Llama"),
        ("sliding_window", json!(4096), "no window"),
        ("layer_types", json!(["chunked_attention"]), "`chunked_attention` is not supported"),
        ("layer_types", json!(["full_attention", "full_attention"]), "2 entries for 1 layers"),
        ("no_rope_layers", json!([1, 0]), "2 entries for 1 layers"),
        ("partial_rotary_factor", json!(1.5), "1.5"),
    ] {
        let mut checkpoint = Checkpoint::fable(1);
        checkpoint.config[key] = value;
        refused(&checkpoint.folder(), &[key, says]);
    }
    for (key, value) in [
        ("clip_qkv", json!(null)),
        ("residual_multiplier", json!(1.0)),
        ("sliding_window", json!(null)),
        ("layer_types", json!(["full_attention"])),
        ("use_bidirectional_attention", json!(false)),
    ] {
        let mut checkpoint = Checkpoint::fable(1);
        checkpoint.config[key] = value;
        Spec::read(&checkpoint.folder()).unwrap_or_else(|e| panic!("{e}"));
    }
    for (key, kind, value) in
        [("llama.residual_scale", F32, 0.5f32), ("llama.attention.clamp_kqv", F32, 8.0)]
    {
        let file = Checkpoint::fable(1).gguf(true).key(key, kind, &value.to_le_bytes());
        refused(&open(&file), &[key, "not supported"]);
    }
}

/// Counts whose products leave 32 or 64 bits are refused, in debug and in release builds.
fn absurd_sizes() {
    for (key, value) in [
        ("llama.attention.head_count", (1u32 << 30) - 1),
        ("llama.attention.head_count", 1 << 24),
        ("llama.block_count", (1 << 30) - 1),
        ("llama.block_count", u32::MAX),
        ("llama.embedding_length", u32::MAX),
        ("llama.feed_forward_length", 1 << 29),
    ] {
        let mut file = Checkpoint::fable(1).gguf(true);
        for (key, value) in [(key, value), ("llama.attention.key_length", 256)] {
            let found = file.keys.iter_mut().find(|k| k.0 == key).expect(key);
            found.2 = value.to_le_bytes().to_vec();
        }
        let weights = open(&file);
        let facts = tilewright::record::Device::facts(&CpuDevice::default()).clone();
        let wanted = tilewright::engine::LoadOptions::default();
        let sizes = tilewright::engine::Sizes::choose(&weights, &facts, &wanted);
        if sizes.is_ok() {
            refused(&weights, &["blk.0."]);
        }
    }
}

/// Every tensor is read by its own type; the sums are those of the same values in f32.
fn mixed_formats(on: On) {
    let choose = |name: &str| match name {
        EMBEDDING => Format::Q8_0,
        _ if name.contains("q_proj") => Format::Q4_1,
        _ if name.contains("k_proj") => Format::BF16,
        _ if name.contains("v_proj") => Format::Q5_0,
        _ if name.contains("o_proj") => Format::F32,
        _ if name.contains("gate_proj") => Format::Q4_0,
        _ if name.contains("up_proj") => Format::Q5_1,
        _ => Format::F16,
    };
    let mixed = Checkpoint::fable(2).in_formats(choose);
    let plain = mixed.clone().in_formats(|_| Format::F32);
    let mut file = mixed.gguf(true);
    // What the file calls itself is a hint at most.
    file = file.key("general.file_type", U32, &3u32.to_le_bytes());
    assert!(logits(&open(&file), on) == logits(&plain.folder(), on));
}
