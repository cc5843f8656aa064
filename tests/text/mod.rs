//! Rows of `text`. Expected values come from Hugging Face `tokenizers` and `transformers`, or are
//! written by hand where the row says so.

mod answer;
mod choose;
mod gemma;
#[cfg(feature = "grammar")]
mod grammar;
mod marks;
#[cfg(feature = "grammar")]
pub mod schemas;
mod sentence;
mod smollm;
mod stops;
mod stream;
mod template;
mod tokenizer;

use crate::support::{Rows, root};
use std::sync::Arc;
use tilewright::text::{ChatTemplate, StopMatcher, TextStream, Tokenizer, TokenizerExtra, Vocab};

pub fn rows(rows: &mut Rows) {
    tokenizer::rows(rows);
    answer::rows(rows);
    #[cfg(feature = "grammar")]
    grammar::rows(rows);
    stream::rows(rows);
    stops::rows(rows);
    template::rows(rows);
    marks::rows(rows);
    choose::rows(rows);
    gemma::rows(rows);
    sentence::rows(rows);
    smollm::rows(rows);
    rows.add("text::values_cross_threads", || {
        fn crosses<T: Send + Sync>() {}
        crosses::<Tokenizer>();
        crosses::<TextStream>();
        crosses::<StopMatcher>();
        crosses::<ChatTemplate>();
    });
}

fn asset(path: &str) -> Vec<u8> {
    let path = root().join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn fable() -> Arc<Tokenizer> {
    let extra = TokenizerExtra::from_config(Some(&asset("assets/fable/tokenizer_config.json")));
    let json = asset("assets/fable/tokenizer.json");
    Arc::new(Tokenizer::from_json(&json, extra.expect("config")).expect("tokenizer"))
}

/// The character that stands for a byte in byte-level vocabularies.
fn byte_char(byte: u8) -> char {
    let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !plain(*b)).count();
    char::from_u32(256 + u32::try_from(before).expect("small")).expect("a character")
}

const CONTROL: u32 = 3;
const USER_DEFINED: u32 = 4;

/// A vocabulary of the 256 bytes (id = byte), then `merges`' results, then `added` tokens.
fn vocab(pre: &str, merges: &[&str], added: &[(&str, u32)]) -> Vocab {
    let mut tokens: Vec<String> = (0..=255).map(|b| byte_char(b).to_string()).collect();
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let mut token_types = vec![1; tokens.len()];
    for (token, kind) in added {
        tokens.push((*token).to_string());
        token_types.push(*kind);
    }
    Vocab {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        tokens,
        token_types,
        merges: merges.iter().map(|m| (*m).to_string()).collect(),
        ..Vocab::default()
    }
}

fn built(vocab: Vocab) -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_vocab(vocab).expect("a tokenizer"))
}

/// ChatML markers 256, 257, 258 (`<|im_start|>`, `<|im_end|>`, `<|endoftext|>`), then `more`.
fn chatml(more: &[(&str, u32)]) -> Arc<Tokenizer> {
    let mut added =
        vec![("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<|endoftext|>", CONTROL)];
    added.extend(more);
    let vocab = vocab("gpt2", &[], &added);
    built(Vocab { bos: Some(256), eos: Some(257), ..vocab })
}

/// Texts that tokenizers have got wrong: scripts, emoji, digits, code, runs, control characters.
pub const HARD: &[&str] = &[
    "",
    " ",
    "   ",
    "\n\n7",
    "  42",
    " ²½Ⅷ",
    "x 😀 y",
    "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪",
    "don't I'll WE'RE l'été",
    "naïve café e\u{301} \u{1F1E6}",
    "Ελλάδα Україна עברית العربية हिन्दी ไทย 日本語テスト 中文 한국어",
    "\u{FEFF}\u{200B}\u{200D}\u{2028}\u{A0}x\u{3000}y",
    "\0\u{1}\u{7F}\u{85}\t\r\n\u{FFFD}",
    "fn main() { let x: Vec<u8> = vec![0; 1_000]; } // 1234567890.25e-3",
    "\tif a == b:\r\n\t\treturn {\"k\": [1, 2, 3]}\n",
    "a  b and    c          d",
    "▁▁ already ▁marked",
    "<0x0A><0xFF> </s> <unk>",
    "https://example.org/a%20b?c=d&e=f#g",
    "\u{10FFFF}\u{E000}\u{1F9FF}\u{2603}\u{FE0F}",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
];

/// A million bytes that are hard for quadratic algorithms.
fn long_texts() -> [String; 4] {
    let repeat = |piece: &str| piece.repeat(1_000_000 / piece.len());
    [repeat(" "), repeat("a"), repeat("ab \n"), repeat("😀 ")]
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Fable's tokenizer.json with a map of characters in which all is in order but what follows a `z`,
/// which lies far outside of it: four bytes of length, 256 units, of which that of `z` is not 0.
pub fn panics_at_z() -> serde_json::Value {
    let mut json: serde_json::Value =
        serde_json::from_slice(&asset("assets/fable/tokenizer.json")).expect("json");
    let map = format!("AAQA{}egFA{}AAA=", "A".repeat(652), "A".repeat(708));
    json["normalizer"] = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": map});
    json
}
