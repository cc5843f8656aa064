//! SentencePiece vocabularies from GGUF keys, on one small enough to follow by hand.

use super::{CONTROL, HARD, USER_DEFINED, built, fable, long_texts};
use crate::support::Rows;
use std::sync::Arc;
use tilewright::text::{TextError, Tokenizer, TokenizerExtra, Vocab};

pub fn rows(rows: &mut Rows) {
    rows.add("text::sentence_pieces_join_by_score", join_by_score);
    rows.add("text::sentence_bytes_stand_in_for_characters", byte_fallback);
    rows.add("text::sentence_space_prefix", space_prefix);
    rows.add("text::sentence_markers_stay_text", markers);
    rows.add("text::sentence_markers_that_strip", markers_that_strip);
    rows.add("text::sentence_bos_default", bos_default);
    rows.add("text::sentence_broken_vocabularies", broken);
    rows.add("text::sentence_as_tokenizer_json_and_back", as_json_and_back);
    rows.add("text::long_texts_are_quick", long);
}

const UNKNOWN: u32 = 2;
const BYTE: u32 = 6;
/// First id after `<unk>`, `<s>`, `</s>` and the bytes.
const FIRST: u32 = 3 + 256;
const PIECES: &[(&str, f32)] = &[
    ("▁", -1.0),
    ("a", -2.0),
    ("b", -3.0),
    ("c", -4.0),
    ("ab", -5.0),
    ("bc", -6.0),
    ("▁a", -7.0),
    ("abc", -8.0),
    ("▁▁", -9.0),
    ("aa", -10.0),
    ("b▁", -4.5),
];

fn vocab() -> Vocab {
    let mut tokens = vec!["<unk>".to_string(), "<s>".into(), "</s>".into()];
    let mut token_types = vec![UNKNOWN, CONTROL, CONTROL];
    tokens.extend((0..=255).map(|b| format!("<0x{b:02X}>")));
    token_types.resize(tokens.len(), BYTE);
    let mut scores = vec![0.0; tokens.len()];
    for (piece, score) in PIECES {
        tokens.push((*piece).into());
        token_types.push(1);
        scores.push(*score);
    }
    tokens.push("<code>".into());
    token_types.push(USER_DEFINED);
    scores.push(0.0);
    Vocab {
        model: "llama".into(),
        tokens,
        token_types,
        scores,
        bos: Some(1),
        eos: Some(2),
        unk: Some(0),
        add_space_prefix: Some(false),
        ..Vocab::default()
    }
}

fn id(piece: &str) -> u32 {
    let at = PIECES.iter().position(|p| p.0 == piece).unwrap_or_else(|| panic!("no {piece}"));
    FIRST + at as u32
}

fn ids(pieces: &[&str]) -> Vec<u32> {
    pieces.iter().map(|p| id(p)).collect()
}

fn join_by_score() {
    let tokenizer = built(vocab());
    for (text, pieces) in [
        // `ab` comes before `bc`, then `abc`.
        ("abc", &["abc"][..]),
        ("bc", &["bc"]),
        // `b▁` beats `ab`; nothing joins what is left.
        ("ab a", &["a", "b▁", "a"]),
        // Equal scores: the leftmost pair first.
        ("aaa", &["aa", "a"]),
        ("aaaaa", &["aa", "aa", "a"]),
        (" abc", &["▁", "abc"]),
        ("   ", &["▁▁", "▁"]),
        (" a", &["▁a"]),
    ] {
        assert_eq!(tokenizer.encode(text).unwrap(), ids(pieces), "{text:?}");
        assert_eq!(tokenizer.decode(&ids(pieces)), text);
    }
}

fn byte_fallback() {
    let tokenizer = built(vocab());
    let expected = [&ids(&["a"])[..], &[3 + 0xC3, 3 + 0xA9], &ids(&["b"])].concat();
    assert_eq!(tokenizer.encode("aéb").unwrap(), expected);
    assert_eq!(tokenizer.decode(&expected), "aéb");
    // What a byte's token is called is no way to write it.
    let spelled = tokenizer.encode("<0x41>").unwrap();
    assert_eq!(spelled.len(), 6);
    assert_eq!(tokenizer.decode(&spelled), "<0x41>");
    for text in HARD {
        // The mark itself reads as a space.
        let expected = text.replace('▁', " ");
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), expected, "{text:?}");
    }
    // Without byte tokens a character that is no piece is unknown, once.
    let mut plain = vocab();
    plain.tokens[3] = "nothing".into();
    assert_eq!(built(plain).encode("aé").unwrap(), [id("a"), 0]);
}

fn space_prefix() {
    let tokenizer = built(Vocab { add_space_prefix: None, ..vocab() });
    assert_eq!(tokenizer.encode("a").unwrap(), ids(&["▁a"]));
    assert_eq!(tokenizer.decode(&ids(&["▁a", "b"])), "ab");
    assert_eq!(tokenizer.decode(&ids(&["▁", "▁a"])), " a");
    let code = FIRST + PIECES.len() as u32;
    // A piece of text after a marker begins anew.
    assert_eq!(tokenizer.encode("a<code>a").unwrap(), [id("▁a"), code, id("▁a")]);
    assert!(tokenizer.encode("").unwrap().is_empty());
}

fn markers() {
    let tokenizer = built(vocab());
    let plain = tokenizer.encode("a</s>b").unwrap();
    assert!(!plain.contains(&2), "{plain:?}");
    assert_eq!(tokenizer.decode(&plain), "a</s>b");
    assert_eq!(tokenizer.encode_prompt("a</s>b").unwrap(), [1, id("a"), 2, id("b")]);
    assert_eq!(tokenizer.encode_prompt("<s>a").unwrap(), [1, id("a")]);
    assert_eq!(tokenizer.token_id("</s>"), Some(2));
    assert_eq!(tokenizer.token_id("abc"), Some(id("abc")));
    assert_eq!(tokenizer.split("a<code>b"), ["a", "b"]);
}

/// Phi 3: what follows a control token loses its leading whitespace, but for three of them; in a
/// tokenizer.json made of it, too.
fn markers_that_strip() {
    let vocab = Vocab { markers_strip: true, ..vocab() };
    let extra = TokenizerExtra { bos: Some(1), add_bos: Some(true), ..TokenizerExtra::default() };
    let json = vocab.to_json().expect("a tokenizer.json");
    let tokenizers =
        [built(vocab), Arc::new(Tokenizer::from_json(&json, extra).expect("a tokenizer"))];
    for tokenizer in tokenizers {
        let ids = |text| tokenizer.encode_prompt(text).unwrap();
        assert_eq!(ids("a</s> \n b"), [1, id("a"), 2, id("b")]);
        assert_eq!(ids("a</s>b"), ids("a</s>  b"));
        assert_eq!(ids("a<s> b"), [1, id("a"), 1, id("▁"), id("b")]);
        assert_eq!(ids("a<code> b"), [1, id("a"), FIRST + PIECES.len() as u32, id("▁"), id("b")]);
        assert!(!tokenizer.encode("a</s> b").unwrap().contains(&2), "text stays text");
    }
    let plain = built(self::vocab());
    assert_eq!(plain.encode_prompt("a</s> b").unwrap(), [1, id("a"), 2, id("▁"), id("b")]);
}

/// Case 15 (v).
fn bos_default() {
    assert!(built(vocab()).adds_bos());
    assert!(!built(Vocab { add_bos: Some(false), ..vocab() }).adds_bos());
}

fn broken() {
    let fault = |change: fn(&mut Vocab), part: &str| {
        let mut vocab = vocab();
        change(&mut vocab);
        let error: TextError = Tokenizer::from_vocab(vocab).expect_err(part);
        assert!(error.to_string().contains(part), "{error}");
    };
    fault(|v| v.scores.truncate(5), "tokenizer.ggml.scores: 5 scores for");
    fault(|v| v.scores.clear(), "tokenizer.ggml.scores");
    fault(|v| v.tokens.clear(), "tokenizer.ggml.tokens");
    fault(
        |v| (v.tokens[9], v.unk) = ("x".into(), None),
        "tokenizer.ggml.tokens: there are neither",
    );
}

/// Hugging Face's form of a vocabulary encodes alike, and comes back as what it was.
fn as_json_and_back() {
    for space_prefix in [false, true] {
        let vocab = Vocab { add_space_prefix: Some(space_prefix), ..vocab() };
        let ours = built(vocab.clone());
        let json = vocab.to_json().expect("a tokenizer.json");
        let extra = TokenizerExtra {
            bos: Some(1),
            eos: vec![2],
            add_bos: Some(true),
            ..TokenizerExtra::default()
        };
        let theirs = Tokenizer::from_json(&json, extra.clone()).expect("a tokenizer");
        let back = Vocab::from_json(&json, &extra).expect("a vocabulary");
        assert_eq!((&back.model[..], back.add_space_prefix), ("llama", Some(space_prefix)));
        assert_eq!((&back.tokens, back.unk), (&vocab.tokens, Some(0)));
        assert_eq!(back.token_types, vocab.token_types);
        let back = built(back);
        // Markers begin text anew in one form and not in the other: none here.
        for text in HARD.iter().filter(|text| !text.contains('<')) {
            let ids = ours.encode(text).unwrap();
            assert_eq!(theirs.encode(text).unwrap(), ids, "{text:?}");
            assert_eq!(back.encode(text).unwrap(), ids, "{text:?}");
            assert_eq!(theirs.decode(&ids), ours.decode(&ids), "{text:?}");
        }
    }
}

/// A quadratic algorithm would take hours over these.
fn long() {
    let small: [Arc<Tokenizer>; 2] = [built(vocab()), fable()];
    for (tokenizer, text) in small.iter().flat_map(|t| long_texts().map(|text| (t, text))) {
        let ids = tokenizer.encode(&text).unwrap();
        assert!(ids.len() > 1000, "{} ids of {:?}", ids.len(), &text[..8]);
        assert!(tokenizer.decode(&ids) == text, "{:?}", &text[..8]);
    }
}
