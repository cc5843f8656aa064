//! Real files: the fixtures, and SmolLM2 where it is at hand.

use super::build::opens;
use crate::support::{Rows, real_model, root, shared};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use tilewright::base::Format;
use tilewright::weights::blocks::decode;
use tilewright::weights::{Meta, Weights};

pub fn rows(rows: &mut Rows) {
    rows.add("weights::fixtures_in_the_tree", fixtures_in_the_tree);
    rows.add_if(shared("fixtures"), "weights::all_safetensors_fixtures", all_folders);
    rows.add_if(shared("fixtures/gguf"), "weights::all_gguf_fixtures", all_ggufs);
    let smollm = real_model("smollm2-135m-instruct-q4_1.gguf");
    rows.add_if(smollm, "weights::smollm2_facts", smollm2_facts);
    let gemma = real_model("gemma-3-270m-q4_k_m.gguf");
    rows.add_if(gemma, "weights::gemma3_facts", gemma3_facts);
}

/// Every tensor and every byte against the safetensors crate's own reader.
fn matches_crate(dir: &std::path::Path) {
    let weights = opens(Weights::open(dir));
    let mut seen = 0;
    for entry in fs::read_dir(dir).expect("folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("model") || !name.ends_with(".safetensors") {
            continue;
        }
        let bytes = fs::read(entry.path()).expect("shard");
        let theirs = safetensors::SafeTensors::deserialize(&bytes).expect("the crate's reader");
        for (name, view) in theirs.iter() {
            let tensor = weights.tensor(name).unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(format!("{:?}", view.dtype()), format!("{:?}", tensor.format));
            let shape: Vec<u64> = view.shape().iter().map(|n| *n as u64).collect();
            assert_eq!(tensor.shape, shape);
            assert!(weights.read_rows(tensor, 0, tensor.rows()).expect("rows") == view.data());
            seen += 1;
        }
    }
    assert_eq!(weights.tensors().len(), seen);
    let Meta::Hf(meta) = weights.meta() else { panic!("a folder") };
    assert!(meta.positive("vocab_size").is_ok() && meta.architecture().is_ok());
    let golden = opens(Weights::open(&dir.join("golden.safetensors")));
    let (shape, ids) = golden.read_ints("input_ids").expect("ids");
    assert_eq!(shape, [ids.len() as u64]);
    let vocab = meta.u64("vocab_size").expect("vocab_size");
    assert!(ids.iter().all(|id| u64::try_from(*id).is_ok_and(|id| id < vocab)));
    golden.expect("logits", &[ids.len() as u64, vocab]).expect("logits");
}

fn fixtures_in_the_tree() {
    matches_crate(&root().join("tests/data/llama-mqa-bias"));
    matches_crate(&root().join("tests/data/llama3-rope"));
    let weights = opens(Weights::open(&root().join("tests/data/gguf/tiny-q4_1.gguf")));
    assert_eq!(weights.tensors().len(), 20);
    weights.expect("token_embd.weight", &[640, 256]).expect("embedding");
    weights.expect("blk.0.attn_k.weight", &[128, 256]).expect("keys");
    weights.expect("output_norm.weight", &[256]).expect("norm");
    opens(Weights::open(&root().join("tests/data/gguf/tiny-q4_1.golden.safetensors")));
}

fn all_folders(dir: PathBuf) {
    let mut count = 0;
    for entry in fs::read_dir(dir).expect("fixtures").flatten() {
        if entry.path().join("config.json").exists() {
            matches_crate(&entry.path());
            count += 1;
        }
    }
    assert!(count >= 17, "{count} folders");
}

fn all_ggufs(dir: PathBuf) {
    for name in crate::models::FORMATS {
        let weights = opens(Weights::open(&dir.join(format!("tiny-{name}.gguf"))));
        let embedding = weights.expect("token_embd.weight", &[640, 256]).expect("embedding");
        assert!(name.starts_with(embedding.format.name()), "{name}: {}", embedding.format);
        let Meta::Gguf(meta) = weights.meta() else { panic!("a GGUF file") };
        assert_eq!(meta.architecture().ok(), Some("llama"));
        assert_eq!(meta.positive("llama.block_count").ok(), Some(2));
        assert_eq!(meta.strs("tokenizer.ggml.tokens").expect("tokens").len(), 640);
    }
}

/// The facts that cases.md measured on this file.
fn smollm2_facts(path: PathBuf) {
    let weights = opens(Weights::open(&path));
    let mut formats: BTreeMap<Format, usize> = BTreeMap::new();
    weights.tensors().values().for_each(|t| *formats.entry(t.format).or_default() += 1);
    let expected = [(Format::F32, 61), (Format::Q4_1, 210), (Format::Q8_0, 1)];
    assert_eq!(formats.into_iter().collect::<Vec<_>>(), expected);
    let embedding = weights.expect("token_embd.weight", &[49152, 576]).expect("embedding");
    assert_eq!(embedding.format, Format::Q8_0);
    assert!(weights.tensor("output.weight").is_none());
    weights.expect("blk.29.ffn_down.weight", &[576, 1536]).expect("ffn_down");
    weights.expect("blk.0.attn_k.weight", &[192, 576]).expect("keys");
    let Meta::Gguf(meta) = weights.meta() else { panic!("a GGUF file") };
    assert_eq!(meta.str("tokenizer.ggml.pre").ok(), Some("smollm"));
    assert_eq!(meta.bool("tokenizer.ggml.add_bos_token").ok(), Some(false));
    let ids = ["bos", "eos", "unknown", "padding"];
    let ids = ids.map(|id| meta.u64(&format!("tokenizer.ggml.{id}_token_id")).expect("an id"));
    assert_eq!(ids, [1, 2, 0, 2]);
    assert_eq!(meta.positive("llama.attention.head_count").ok(), Some(9));
    assert_eq!(meta.f32("llama.rope.freq_base").ok(), Some(100_000.0));
    assert_eq!(
        meta.strs("tokenizer.ggml.tokens").map(|t| t[2].to_string()).ok(),
        Some("<|im_end|>".into())
    );
    assert_eq!(meta.u32s("tokenizer.ggml.token_type").map(|t| t.len()).ok(), Some(49152));
    assert!(meta.str("tokenizer.chat_template").is_ok_and(|t| t.contains("<|im_start|>")));
    for tensor in weights.tensors().values() {
        let rows = tensor.rows().min(64);
        let bytes = weights.read_rows(tensor, tensor.rows() - rows, rows).expect("rows");
        let count = rows * tensor.shape[1..].iter().product::<u64>();
        let mut values = vec![0.0; count as usize];
        decode(tensor.format, &bytes, &mut values);
        let most = values.iter().fold(0f32, |most, v| most.max(v.abs()));
        assert!(most > 1e-4 && most < 100.0, "{}: {most}", tensor.name);
    }
}

/// Case 11: a file called Q4_K_M whose rows of 640 values cannot be K blocks.
fn gemma3_facts(path: PathBuf) {
    let weights = opens(Weights::open(&path));
    let mut formats: BTreeMap<Format, usize> = BTreeMap::new();
    weights.tensors().values().for_each(|t| *formats.entry(t.format).or_default() += 1);
    let expected = [
        (Format::F32, 109),
        (Format::Q5_0, 81),
        (Format::Q8_0, 10),
        (Format::Q4_K, 27),
        (Format::Q6_K, 9),
    ];
    assert_eq!(formats.into_iter().collect::<Vec<_>>(), expected);
    let embedding = weights.expect("token_embd.weight", &[262_144, 640]).expect("embedding");
    assert_eq!(embedding.format, Format::Q8_0);
}
