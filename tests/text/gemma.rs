//! Gemma 3's vocabulary from its GGUF file: the reference's prompt ids, and the merges of
//! Hugging Face's form of it as a second opinion on hard texts.

use super::{HARD, long_texts};
use crate::support::{Rows, real_model, shared};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use tilewright::engine::gguf_vocab;
use tilewright::text::{Tokenizer, Vocab};
use tilewright::weights::{Meta, Weights};
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::Replace;
use tokenizers::{AddedToken, Tokenizer as Pipeline};

const FILE: &str = "gemma-3-270m-q4_k_m.gguf";

pub fn rows(rows: &mut Rows) {
    let golden = real_model(FILE).and_then(|m| Ok((m, shared("models/gemma3-golden.json")?)));
    rows.add_if(golden, "text::gemma3_prompts_equal_the_golden_ids", |(model, golden)| {
        golden_prompts(&model, &golden);
    });
    rows.add_if(real_model(FILE), "text::gemma3_encodes_as_hugging_face", |model| {
        encodes_as_hugging_face(&model);
    });
}

fn vocab(path: &Path) -> Vocab {
    let weights = Weights::open(path).unwrap_or_else(|e| panic!("{e}"));
    let Meta::Gguf(meta) = weights.meta() else { panic!("a GGUF file") };
    gguf_vocab(meta).unwrap_or_else(|e| panic!("{e}"))
}

fn golden_prompts(model: &Path, golden: &Path) {
    let tokenizer = Tokenizer::from_vocab(vocab(model)).expect("a tokenizer");
    let golden: Value =
        serde_json::from_slice(&std::fs::read(golden).expect("golden")).expect("json");
    let ids = |value: &Value| -> Vec<u32> {
        let all = value.as_array().expect("ids").iter();
        all.map(|v| v.as_u64().or(v[0].as_u64()).expect("an id") as u32).collect()
    };
    for case in golden["cases"].as_array().expect("cases") {
        let prompt = case["prompt"].as_str().expect("a prompt");
        let expected = ids(&case["prompt_ids"]);
        assert_eq!(tokenizer.encode_prompt(prompt).unwrap(), expected, "{prompt:?}");
        // Case 15: one BOS, also where the text brings it.
        assert_eq!(tokenizer.encode_prompt(&format!("<bos>{prompt}")).unwrap(), expected);
        assert_eq!(tokenizer.decode(&expected), prompt);
        let answer = case["greedy_text"].as_str().expect("a text");
        assert_eq!(tokenizer.decode(&ids(&case["greedy_id_and_margin"])), answer);
    }
    // Case 17: runs of spaces and tags are single tokens.
    let text = tokenizer.encode("a  b and    c").unwrap();
    assert_eq!((text.len(), text[1], text[4]), (6, 138, 140), "{text:?}");
    assert_eq!(tokenizer.encode("<code></s>").unwrap().len(), 2);
}

/// The vocabulary as a tokenizer.json has it: every piece is the merge of any two pieces that
/// spell it, best score first.
fn hugging_face(vocab: &Vocab) -> Pipeline {
    let ids: HashMap<&str, u32> = vocab.tokens.iter().map(String::as_str).zip(0..).collect();
    let mut merges = Vec::new();
    for (at, piece) in vocab.tokens.iter().enumerate().filter(|(at, _)| vocab.token_types[*at] == 1)
    {
        for (cut, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(cut);
            if let (Some(l), Some(r)) = (ids.get(left), ids.get(right)) {
                merges.push((-vocab.scores[at], *l, *r));
            }
        }
    }
    merges.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let piece = |id: u32| vocab.tokens[id as usize].clone();
    let merges = merges.iter().map(|(_, l, r)| (piece(*l), piece(*r))).collect();
    let table: tokenizers::models::bpe::Vocab =
        ids.iter().map(|(piece, id)| (piece.to_string(), *id)).collect();
    let model = BPE::builder()
        .vocab_and_merges(table, merges)
        .byte_fallback(true)
        .fuse_unk(true)
        .unk_token("<unk>".into())
        .build()
        .expect("a model");
    let mut pipeline = Pipeline::new(model);
    pipeline.with_normalizer(Some(Replace::new(" ", "▁").expect("a normalizer")));
    let user = vocab.tokens.iter().zip(&vocab.token_types).filter(|(_, kind)| **kind == 4);
    let user: Vec<_> =
        user.map(|(t, _)| AddedToken::from(t.clone(), false).normalized(false)).collect();
    pipeline.add_tokens(&user);
    pipeline
}

fn encodes_as_hugging_face(model: &Path) {
    let vocab = vocab(model);
    let reference = hugging_face(&vocab);
    let tokenizer = Tokenizer::from_vocab(vocab).expect("a tokenizer");
    let long = long_texts().map(|text| text[..20_000].to_string());
    for text in HARD.iter().map(|text| text.to_string()).chain(long) {
        let expected = reference.encode_fast(text.as_str(), false).expect("encodes");
        let head: String = text.chars().take(80).collect();
        assert_eq!(tokenizer.encode(&text).unwrap(), expected.get_ids(), "{head:?}");
        let marked = text.replace('▁', " ");
        assert_eq!(tokenizer.decode(expected.get_ids()), marked, "{head:?}");
    }
}
