//! Typed metadata: what getters read, and what they say of what they cannot read.

use super::build::*;
use crate::support::Rows;
use tilewright::weights::{GgufMeta, GgufValue, HfMeta, Meta, Weights, WeightsError};

pub fn rows(rows: &mut Rows) {
    rows.add("weights::gguf_getters", gguf_getters);
    rows.add("weights::gguf_head_count_as_files_write_it", gguf_head_count);
    rows.add("weights::hf_getters", hf_getters);
    rows.add("weights::hf_values_that_must_parse", hf_values_that_must_parse);
    rows.add("weights::expected_tensors", expected_tensors);
}

fn gguf(weights: &Weights) -> &GgufMeta {
    match weights.meta() {
        Meta::Gguf(meta) => meta,
        Meta::Hf(_) => panic!("a GGUF file"),
    }
}

fn hf(weights: &Weights) -> &HfMeta {
    match weights.meta() {
        Meta::Hf(meta) => meta,
        Meta::Gguf(_) => panic!("a folder"),
    }
}

fn gguf_getters() {
    let weights = opens(good_gguf().open());
    let meta = gguf(&weights);
    assert_eq!(meta.architecture().ok(), Some("llama"));
    assert_eq!(meta.keys().count(), 17);
    assert_eq!(meta.get("bool"), Some(&GgufValue::Bool(true)));
    assert_eq!(meta.get("absent"), None);
    let integers = ["u8", "u16", "i32", "u64"].map(|key| meta.u64(key).expect(key));
    assert_eq!(integers, [200, 60000, 9, u64::MAX]);
    for negative in ["i8", "i16", "i64"] {
        fails(meta.u64(negative), &["t.gguf", negative, "integer"]);
    }
    assert_eq!(meta.f32("f32").ok(), Some(1e-5));
    assert_eq!(meta.f32("f64").ok(), Some(0.5));
    assert_eq!(meta.f32("u8").ok(), Some(200.0));
    assert_eq!(meta.bool("bool").ok(), Some(true));
    assert_eq!(meta.strs("tokens").ok(), Some(vec!["a", "Ġ"]));
    assert_eq!(meta.u32s("types").ok(), Some(vec![1, 3, 1]));
    assert_eq!(meta.u32s("u16").ok(), Some(vec![60000]));
    assert_eq!(meta.u32s("none").ok(), Some(vec![]));
    assert_eq!(meta.f32s("scores").ok(), Some(vec![0.0, 0.0]));
    let Some(GgufValue::Array(tokens)) = meta.get("tokens") else { panic!("tokens") };
    assert_eq!((tokens.len(), tokens.texts().map(<[_]>::len)), (2, Some(2)));
    fails(meta.u32s("u64"), &["key `u64`", "4294967295"]);
    fails(meta.u64("nested"), &["key `nested`"]);
    fails(meta.u64("none"), &["key `none`"]);
    fails(meta.str("u8"), &["key `u8`", "200", "string"]);
    fails(meta.bool("u8"), &["key `u8`", "bool"]);
    fails(meta.f32("tokens"), &["key `tokens`", "number"]);
    fails(meta.strs("types"), &["key `types`", "strings"]);
    fails(meta.str("absent"), &["t.gguf", "key `absent`", "missing"]);
    assert_eq!(meta.find_str("absent").ok(), Some(None));
    fails(meta.find_str("u8"), &["key `u8`"]);
    let nan = opens(Gguf::new().key("k", 6, &f32::NAN.to_le_bytes()).open());
    fails(gguf(&nan).f32("k"), &["key `k`", "finite"]);
    let huge = opens(Gguf::new().key("k", 12, &1e300f64.to_le_bytes()).open());
    fails(gguf(&huge).f32("k"), &["key `k`", "finite"]);
    fails(gguf(&huge).architecture(), &["general.architecture", "missing"]);
}

/// Case 07 (iii).
fn gguf_head_count() {
    const KEY: &str = "llama.attention.head_count";
    let read = |kind: u32, value: &[u8]| -> Result<u64, WeightsError> {
        gguf(&opens(Gguf::new().key(KEY, kind, value).open())).positive(KEY)
    };
    assert_eq!(read(4, &9u32.to_le_bytes()).ok(), Some(9));
    assert_eq!(read(5, &9i32.to_le_bytes()).ok(), Some(9));
    assert_eq!(read(0, &[9]).ok(), Some(9));
    assert_eq!(read(10, &9u64.to_le_bytes()).ok(), Some(9));
    assert_eq!(read(9, &array(4, 3, &[9, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0])).ok(), Some(9));
    fails(read(9, &array(4, 2, &[9, 0, 0, 0, 8, 0, 0, 0])), &[KEY, "a list of 2: 9, 8"]);
    fails(read(9, &array(4, 0, &[])), &[KEY]);
    fails(read(4, &[0; 4]), &[KEY, "found 0; expected an integer from 1"]);
    fails(read(5, &(-9i32).to_le_bytes()), &[KEY]);
    fails(read(8, &text("9")), &[KEY, "found the text `9`"]);
    fails(gguf(&opens(Gguf::new().open())).positive(KEY), &[KEY, "missing"]);
}

fn config(text: &'static str) -> Weights {
    let weights = safetensors(r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 8);
    opens(Weights::from_folder_bytes(
        "f",
        vec![("model.safetensors", weights.into()), ("config.json", text.as_bytes().into())],
    ))
}

fn hf_getters() {
    let weights = config(
        r#"{"model_type":"llama","hidden_size":576,"rms_norm_eps":1e-05,"tie_word_embeddings":false,
        "rope_parameters":{"rope_theta":100000,"rope_type":"default"},"head_dim":null,
        "original":8192.0,"bad":-1,"eos_token_id":[2,0],"pad_token_id":2,"layer_types":["a","b"]}"#,
    );
    let meta = hf(&weights);
    assert_eq!(meta.architecture().ok(), Some("llama"));
    assert_eq!(meta.positive("hidden_size").ok(), Some(576));
    assert_eq!(meta.f32("rms_norm_eps").ok(), Some(1e-5));
    assert_eq!(meta.f32("rope_parameters.rope_theta").ok(), Some(100_000.0));
    assert_eq!(meta.str("rope_parameters.rope_type").ok(), Some("default"));
    assert_eq!(meta.u64("original").ok(), Some(8192));
    assert_eq!(meta.bool("tie_word_embeddings").ok(), Some(false));
    assert_eq!(meta.find_u64("head_dim").ok(), Some(None));
    assert_eq!(meta.find_f32("rope_theta").ok(), Some(None));
    assert_eq!(meta.u32s("eos_token_id").ok(), Some(vec![2, 0]));
    assert_eq!(meta.u32s("pad_token_id").ok(), Some(vec![2]));
    assert_eq!(meta.strs("layer_types").ok(), Some(vec!["a", "b"]));
    fails(meta.u64("head_dim"), &["f/config.json", "head_dim", "missing"]);
    fails(meta.u64("bad"), &["f/config.json", "bad", "-1"]);
    fails(meta.u64("rms_norm_eps"), &["rms_norm_eps", "integer"]);
    fails(meta.str("rope_parameters"), &["rope_parameters", "found an object; expected a string"]);
}

/// Case 07 (vii).
fn hf_values_that_must_parse() {
    let tensors = r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let open = |eos: &'static str, max: &'static str| {
        let config = format!(r#"{{"eos_token_id":{eos}}}"#);
        let tokenizer = format!(r#"{{"model_max_length":{max}}}"#);
        opens(Weights::from_folder_bytes(
            "f",
            vec![
                ("model.safetensors", safetensors(tensors, 8).into()),
                ("config.json", config.clone().into_bytes().into()),
                ("generation_config.json", config.into_bytes().into()),
                ("tokenizer_config.json", tokenizer.into_bytes().into()),
            ],
        ))
    };
    let long = "1000000000000000019884624838656";
    let weights = open("[2,0]", long);
    let meta = hf(&weights);
    assert_eq!(meta.u32s("eos_token_id").ok(), Some(vec![2, 0]));
    let number = |value: &Option<serde_json::Value>, key: &str| {
        value.as_ref().and_then(|value| value.get(key)?.as_f64())
    };
    assert_eq!(number(&meta.tokenizer, "model_max_length"), Some(1e30));
    assert!(meta.generation.as_ref().is_some_and(|g| g["eos_token_id"][0] == 2));
    let weights = open("null", "1e30");
    assert_eq!(hf(&weights).find_u32s("eos_token_id").ok(), Some(None));
    assert_eq!(number(&hf(&weights).tokenizer, "model_max_length"), Some(1e30));
}

/// Case 07 (iv): a missing tensor and one of another shape, before anything is uploaded.
fn expected_tensors() {
    let weights = opens(good_gguf().open());
    assert_eq!(weights.expect("t", &[3, 4]).ok(), weights.tensor("t"));
    fails(
        weights.expect("blk.7.ffn_up.weight", &[1]),
        &["t.gguf", "`blk.7.ffn_up.weight`", "missing"],
    );
    fails(weights.expect("t", &[4, 3]), &["`t`", "shape", "expected [4, 3], found [3, 4]"]);
    let header = r#"{"w":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}"#;
    let eights = opens(open_safetensors(safetensors(header, 8)));
    fails(eights.expect("w", &[8]), &["`w`", "F8_E4M3", "supported: F32, F16, BF16"]);
    assert!(eights.tensor("w").is_none());
}
