//! Tokenizer and chat template from one kind of file to the other.

use super::{ConvertError, cannot};
use crate::engine::load::{gguf_vocab, template_source};
use crate::text::{TokenizerExtra, Vocab, token_ids};
use crate::weights::{KeyValue, Meta, Weights};
use serde_json::json;

/// The `tokenizer.*` keys; none for a checkpoint without tokenizer.json.
pub(super) fn to_gguf(weights: &Weights) -> Result<Vec<(String, KeyValue)>, ConvertError> {
    let Some(json) = weights.side_file("tokenizer.json")? else { return Ok(Vec::new()) };
    let config = weights.side_file("tokenizer_config.json")?;
    let mut extra = TokenizerExtra::from_config(config.as_deref())?;
    if let Meta::Hf(meta) = weights.meta() {
        let ids = |key| token_ids(&meta.config, "config.json", key);
        extra.bos = ids("bos_token_id")?.first().copied();
        extra.eos = ids("eos_token_id")?;
    }
    let vocab = Vocab::from_json(&json, &extra)?;
    let mut out = Vec::new();
    let mut push = |key: &str, value| out.push((format!("tokenizer.ggml.{key}"), value));
    push("model", KeyValue::Text(vocab.model));
    vocab.pre.into_iter().for_each(|text| push("pre", KeyValue::Text(text)));
    push("tokens", KeyValue::Texts(vocab.tokens));
    push("token_type", KeyValue::I32s(vocab.token_types.iter().map(|t| *t as i32).collect()));
    if !vocab.scores.is_empty() {
        push("scores", KeyValue::F32s(vocab.scores));
    }
    if !vocab.merges.is_empty() {
        push("merges", KeyValue::Texts(vocab.merges));
    }
    for (key, id) in [("bos", vocab.bos), ("eos", vocab.eos), ("unknown", vocab.unk)] {
        id.into_iter().for_each(|id| push(&format!("{key}_token_id"), KeyValue::U32(id)));
    }
    for (key, flag) in
        [("add_bos_token", vocab.add_bos), ("add_space_prefix", vocab.add_space_prefix)]
    {
        flag.into_iter().for_each(|flag| push(key, KeyValue::Bool(flag)));
    }
    if let Some(template) = template_source(weights, None)? {
        out.push(("tokenizer.chat_template".into(), KeyValue::Text(template.source)));
    }
    Ok(out)
}

/// tokenizer.json, tokenizer_config.json and chat_template.jinja, where the GGUF file has them.
pub(super) fn to_folder(weights: &Weights) -> Result<Vec<(&'static str, Vec<u8>)>, ConvertError> {
    let Meta::Gguf(meta) = weights.meta() else {
        return Err(cannot(weights.name(), "is no GGUF file"));
    };
    if meta.get("tokenizer.ggml.model").is_none() {
        return Ok(Vec::new());
    }
    let vocab = gguf_vocab(meta)?;
    let token = |id: Option<u32>| id.and_then(|id| vocab.tokens.get(id as usize).cloned());
    let config = json!({
        "bos_token": token(vocab.bos),
        "eos_token": token(vocab.eos),
        "pad_token": token(vocab.pad),
        "unk_token": token(vocab.unk),
        "add_bos_token": vocab.adds_bos()?,
        "tokenizer_class": "PreTrainedTokenizerFast",
    });
    let mut out = vec![
        ("tokenizer.json", vocab.to_json()?),
        ("tokenizer_config.json", format!("{config:#}\n").into_bytes()),
    ];
    if let Some(template) = template_source(weights, None)? {
        out.push(("chat_template.jinja", template.source.into_bytes()));
    }
    Ok(out)
}
