//! Streamed text never holds half a character and equals the decode of all ids.

use super::{built, bytes, chatml, fable, vocab};
use crate::support::Rows;
use serde_json::json;
use std::sync::Arc;
use tilewright::base::unit_from_seed;
use tilewright::text::{Tokenizer, TokenizerExtra};

pub fn rows(rows: &mut Rows) {
    rows.add("text::stream_waits_for_the_whole_character", whole_character);
    rows.add("text::stream_flushes_one_replacement_at_the_end", flush_at_the_end);
    rows.add("text::stream_goes_on_after_bad_bytes", bad_bytes);
    rows.add("text::stream_equals_decode_on_random_ids", random_ids);
    rows.add("text::byte_fallback_decodes_as_hugging_face", byte_fallback);
    rows.add("text::byte_fallback_text_is_encoded_with_word_marks", byte_fallback_encodes);
    rows.add("text::metaspace_decoder_drops_the_first_mark", metaspace);
    rows.add("text::special_and_unknown_ids_have_no_text", no_text);
}

fn pushes(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> Vec<String> {
    let mut stream = tokenizer.stream();
    let mut out: Vec<String> = ids.iter().map(|id| stream.push(*id)).collect();
    out.push(stream.finish());
    assert_eq!(out.concat(), tokenizer.decode(ids), "{ids:?}");
    out
}

fn whole_character() {
    let tokenizer = built(vocab("gpt2", &["ð Ł"], &[]));
    assert_eq!(pushes(&tokenizer, &[256, 0x98, 0x80]), ["", "", "😀", ""]);
    let ids = tokenizer.encode("x 😀 y").unwrap();
    let expected = ["x", " ", "", "", "😀", " ", "y", ""];
    assert_eq!(pushes(&tokenizer, &ids), expected);
}

fn flush_at_the_end() {
    let tokenizer = built(vocab("gpt2", &[], &[]));
    assert_eq!(pushes(&tokenizer, &[0xF0, 0x9F]), ["", "", "\u{FFFD}"]);
    assert_eq!(pushes(&tokenizer, &[97, 0xF0, 0x9F, 0x98]), ["a", "", "", "", "\u{FFFD}"]);
    // A second finish adds nothing.
    let mut stream = tokenizer.stream();
    assert_eq!(
        (stream.push(0xE5), stream.finish(), stream.finish()),
        (String::new(), "\u{FFFD}".into(), String::new())
    );
}

fn bad_bytes() {
    let tokenizer = built(vocab("gpt2", &[], &[]));
    let bad = "\u{FFFD}";
    assert_eq!(pushes(&tokenizer, &[0xF0, 0x9F, 97]), ["", "", "\u{FFFD}a", ""]);
    // Overlong NUL; a surrogate: no byte of them begins a character.
    assert_eq!(pushes(&tokenizer, &[0xC0, 0x80, 97]), [bad, bad, "a", ""]);
    assert_eq!(pushes(&tokenizer, &[0xED, 0xA0, 0x80, 97]), ["", "\u{FFFD}\u{FFFD}", bad, "a", ""]);
    assert_eq!(pushes(&tokenizer, &[0x80]), [bad, ""]);
    assert_eq!(pushes(&tokenizer, &[0xFF, 0xE6, 0x97, 0xA5]), [bad, "", "", "日", ""]);
    assert_eq!(pushes(&tokenizer, &[0]), ["\0", ""]);
}

fn random_ids() {
    let mut fallback = fallback_json();
    fallback["decoder"]["decoders"] = json!([
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]);
    let tokenizers = [fable(), chatml(&[]), from(&fallback_json()), from(&fallback)];
    for (which, tokenizer) in tokenizers.iter().enumerate() {
        let size = f64::from(tokenizer.vocab_size() + 2);
        for seed in 0..400_u64 {
            let draw = |at: u64| f64::from(unit_from_seed(seed, u32::try_from(at).expect("small")));
            let length = 1 + seed % 40;
            // As many single bytes as other tokens, so that broken characters are common.
            let ids: Vec<u32> = (0..length)
                .map(|at| (draw(2 * at) * if draw(2 * at + 1) < 0.5 { 256.0 } else { size }) as u32)
                .collect();
            let pieces = pushes(tokenizer, &ids);
            assert_eq!(pieces.len(), ids.len() + 1, "tokenizer {which}, seed {seed}");
        }
    }
    let long: Vec<u32> = (0..1000).map(|i| (i * 7) % 300).collect();
    pushes(&tokenizers[0], &long);
}

/// A vocabulary in the manner of SentencePiece; ids 6.. are the bytes.
fn fallback_json() -> serde_json::Value {
    let mut vocab = json!({"<unk>": 0, "▁": 1, "a": 2, "▁a": 3, "é": 4, "<s>": 5});
    for byte in 0..256 {
        vocab[format!("<0x{byte:02X}>")] = json!(6 + byte);
    }
    json!({
        "version": "1.0",
        "added_tokens": [{"id": 5, "content": "<s>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true,
                  "vocab": vocab, "merges": [["▁", "a"]]},
    })
}

fn from(json: &serde_json::Value) -> Arc<Tokenizer> {
    let json = json.to_string();
    Arc::new(Tokenizer::from_json(json.as_bytes(), TokenizerExtra::default()).expect("tokenizer"))
}

fn byte_fallback() {
    let tokenizer = from(&fallback_json());
    let byte = |b: u32| 6 + b;
    let bad = "\u{FFFD}";
    // One replacement character a byte of the bad run.
    let cut = [byte(0xE5), byte(0x8F), 2];
    assert_eq!(pushes(&tokenizer, &cut), ["", "", "\u{FFFD}\u{FFFD}a", ""]);
    let whole = [byte(0xE5), byte(0x8F), byte(0xAB), 2];
    assert_eq!(pushes(&tokenizer, &whole), ["", "", "", "叫a", ""]);
    assert_eq!(pushes(&tokenizer, &[3, byte(0xF0), byte(0x9F)])[3], bad.repeat(2));
    // A good character in a bad run is lost with it: Hugging Face judges the run as one.
    let mixed = [byte(0xE5), byte(0x8F), byte(0xAB), byte(0xFF)];
    assert_eq!(tokenizer.decode(&mixed), bad.repeat(4));
    // A special token has no text and does not end a run.
    assert_eq!(tokenizer.decode(&[byte(0xE5), byte(0x8F), 5, byte(0xAB)]), "叫");
    // The first space goes, no other; it may come as a byte.
    assert_eq!(pushes(&tokenizer, &[3, 3]), ["a", " a", ""]);
    assert_eq!(tokenizer.decode(&[1, 1, 2]), " a");
    assert_eq!(tokenizer.decode(&[byte(0x20), byte(0x20), 2]), " a");
    assert_eq!(tokenizer.decode(&[2, 3]), "a a");
}

fn byte_fallback_encodes() {
    let tokenizer = from(&fallback_json());
    assert_eq!(tokenizer.encode("a a").unwrap(), [3, 3]);
    assert_eq!(tokenizer.encode("é").unwrap(), [1, 4]);
    assert_eq!(tokenizer.encode("日").unwrap(), [1, 236, 157, 171]);
    assert_eq!(tokenizer.encode_prompt("<s>a a<s> a").unwrap(), [5, 3, 3, 5, 1, 3]);
}

fn metaspace() {
    let mut json = fallback_json();
    json["decoder"] =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true});
    let tokenizer = from(&json);
    assert_eq!(pushes(&tokenizer, &[3, 3, 1, 2]), ["a", " a", " ", "a", ""]);
    json["decoder"]["prepend_scheme"] = json!("never");
    assert_eq!(pushes(&from(&json), &[3, 3]), [" a", " a", ""]);
}

fn no_text() {
    let tokenizer = chatml(&[]);
    assert_eq!(pushes(&tokenizer, &[104, 257, 105, 9999]), ["h", "", "i", "", ""]);
    // A special token inside a character does not break it, as in the whole decode.
    let ids = [&bytes("é")[..1], &[256], &bytes("é")[1..]].concat();
    assert_eq!(pushes(&tokenizer, &ids), ["", "", "é", ""]);
}
