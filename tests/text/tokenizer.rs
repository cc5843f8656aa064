//! Encoding, `pre` kinds, BOS, end ids, and files that must be refused.

use super::{CONTROL, USER_DEFINED, asset, built, bytes, chatml, fable, panics_at_z, vocab};
use crate::support::Rows;
use serde_json::json;
use tilewright::text::{
    Message, RenderOptions, TextError, Tokenizer, TokenizerExtra, Vocab, token_ids,
};

pub fn rows(rows: &mut Rows) {
    rows.add("text::fable_encodes_as_hugging_face", fable_encodes_as_hugging_face);
    rows.add("text::fable_prompts_have_the_expected_length", fable_prompt_lengths);
    rows.add("text::pre_kinds_split_as_written_by_hand", pre_kinds_split);
    rows.add("text::unknown_pre_is_an_error_naming_it", unknown_pre);
    rows.add("text::unknown_model_is_an_error_naming_it", unknown_model);
    rows.add("text::broken_vocabularies_are_refused", broken_vocabularies);
    rows.add("text::whole_pieces_skip_merging_only_for_tiktoken_kinds", whole_pieces);
    rows.add("text::user_defined_pieces_are_single_tokens", user_defined_pieces);
    rows.add("text::added_token_flags_are_kept", added_token_flags);
    rows.add("text::bos_comes_exactly_once", bos_once);
    rows.add("text::bos_default_follows_the_kind", bos_default);
    rows.add("text::tokenizer_json_bos_comes_from_its_post_processor", json_bos);
    rows.add("text::nothing_to_encode_is_no_ids", nothing_to_encode);
    rows.add("text::stop_ids_are_the_union", stop_ids);
    rows.add("text::config_values_of_any_shape_parse", config_shapes);
    rows.add("text::broken_tokenizer_json_is_refused", broken_json);
    rows.add("text::panics_of_the_library_are_errors", panics_of_the_library);
    rows.add("text::panics_of_the_library_at_a_text_are_errors", panics_at_a_text);
    rows.add("text::token_text_and_bytes", token_text);
}

fn fable_encodes_as_hugging_face() {
    let table: &[(&str, &[u32])] = &[
        ("", &[]),
        ("Hello world", &[1049, 578, 529]),
        ("  42", &[1413, 22, 20]),
        ("\n\n7", &[201, 201, 25]),
        (" ²", &[223, 129, 113]),
        ("x 😀 y", &[90, 223, 175, 256, 249, 225, 332]),
        ("a<|im_end|>b", &[67, 265, 262, 65, 278, 266, 68]),
        ("\t\ttabs\r\nline", &[200, 200, 86, 850, 85, 204, 201, 1162, 71]),
        ("don't I'll WE'RE", &[70, 309, 9, 86, 351, 9, 289, 223, 57, 39, 9, 52, 39]),
        ("\0\u{1}", &[191, 192]),
        ("1234567 3.14", &[19, 20, 21, 22, 23, 24, 25, 223, 21, 16, 19, 22]),
    ];
    let tokenizer = fable();
    for (text, ids) in table {
        assert_eq!(tokenizer.encode(text).unwrap(), *ids, "{text:?}");
        assert_eq!(tokenizer.decode(ids), *text);
    }
    assert_eq!(tokenizer.encode_prompt("a<|im_end|>b").unwrap(), [67, 2, 68]);
    assert_eq!(tokenizer.vocab_size(), 1551);
    assert_eq!(tokenizer.token_id("<|im_end|>"), Some(2));
    assert_eq!(tokenizer.eos_text(), "<|im_end|>");
}

fn fable_prompt_lengths() {
    let tokenizer = fable();
    let source = String::from_utf8(asset("assets/fable/chat_template.jinja")).expect("utf-8");
    let template = tokenizer.template(&source).expect("template");
    let expected: serde_json::Value =
        serde_json::from_slice(&asset("assets/fable/expected.json")).expect("json");
    let options = super::template::prompt();
    let cases = expected["cases"].as_array().expect("cases");
    assert!(cases.len() >= 40);
    for case in cases {
        let user = Message::new("user", case["user"].as_str().expect("user"));
        let rendered = template.render(&[user], &options).expect("rendered");
        let ids = tokenizer.encode_rendered(&rendered).unwrap();
        assert_eq!(ids.len() as u64, case["prompt_tokens"].as_u64().expect("count"));
        let answer: Vec<u32> = case["ids_and_margins"]
            .as_array()
            .expect("ids")
            .iter()
            .map(|pair| u32::try_from(pair[0].as_u64().expect("id")).expect("u32"))
            .collect();
        assert_eq!(tokenizer.decode(&answer), case["answer"].as_str().expect("answer"));
    }
}

/// What each kind makes of `SPLIT_TEXT`, by hand from the regular expressions; pieces between `·`.
const SPLITS: &[(&str, &str)] = &[
    ("gpt2", "I·'ll· PAY· · 1234· don·'·T·\n\n· x·²·!?·\r·\n·AbCd·\u{301}·日本"),
    ("smollm", "I·'ll· PAY·  ·1·2·3·4· don·'·T·\n\n· x·²·!?·\r·\n·AbCd·\u{301}·日本"),
    ("llama-bpe", "I·'ll· PAY· · ·123·4· don·'T·\n\n· x·²·!?\r\n·AbCd·\u{301}日本"),
    ("qwen2", "I·'ll· PAY· · ·1·2·3·4· don·'T·\n\n· x·²·!?\r\n·AbCd·\u{301}日本"),
    ("gpt-4o", "I'll· PAY· · ·123·4· don'T·\n\n· x·²·!?\r\n·Ab·Cd\u{301}日本"),
    ("tekken", "I·'ll· PAY· · ·1·2·3·4· don·'T·\n\n· x·²·!?\r\n·Ab·Cd\u{301}日本"),
    ("deepseek-llm", "I·'·ll· PAY·  ·1234· don·'·T·\n·\n· x·²·!?·\r·\n·AbCd·\u{301}·日本"),
    ("deepseek-coder", "I·'·ll· PAY·  ·1·2·3·4· don·'·T·\n·\n· x·²·!?·\r·\n·AbCd·\u{301}·日本"),
    ("deepseek-v3", "I·'ll· PAY·  ·123·4· don·'T·\n\n· x·²·!?\r\n·AbCd\u{301}·日本"),
    ("default", "I·'·ll· PAY· · ·123·4· don·'·T·\n\n· x·²·!?·\r·\n·AbCd·\u{301}·日本"),
];
const SPLIT_TEXT: &str = "I'll PAY  1234 don'T\n\n x²!?\r\nAbCd\u{301}日本";

fn pre_kinds_split() {
    let text = SPLIT_TEXT;
    for (pre, expected) in SPLITS {
        let expected: Vec<&str> = expected.split('·').collect();
        assert_eq!(built(vocab(pre, &[], &[])).split(text), expected, "{pre}");
    }
    // The same kinds under the names that files use for them.
    for (name, same_as) in [
        ("gpt-2", "gpt2"),
        ("olmo", "gpt2"),
        ("refact", "smollm"),
        ("starcoder", "smollm"),
        ("llama3", "llama-bpe"),
        ("llama-v3", "llama-bpe"),
        ("dbrx", "llama-bpe"),
        ("smaug-bpe", "llama-bpe"),
        ("llama4", "gpt-4o"),
    ] {
        let split = |pre| built(vocab(pre, &[], &[])).split(text);
        assert_eq!(split(name), split(same_as), "{name}");
    }
    // gpt-4o takes slashes with a run of line ends and punctuation; llama-bpe does not.
    assert_eq!(built(vocab("gpt-4o", &[], &[])).split("a!\n/b"), ["a", "!\n/", "b"]);
    assert_eq!(built(vocab("llama-bpe", &[], &[])).split("a!\n/b"), ["a", "!\n", "/b"]);
    // qwen2 composes characters first, as its own tokenizer does.
    assert_eq!(built(vocab("qwen2", &[], &[])).encode("e\u{301}").unwrap(), bytes("é"));
    assert_eq!(built(vocab("llama-bpe", &[], &[])).encode("e\u{301}").unwrap(), bytes("e\u{301}"));
}

fn error(vocab: Vocab) -> TextError {
    Tokenizer::from_vocab(vocab).expect_err("must be refused")
}

fn unknown_pre() {
    let message = error(vocab("nonsense", &[], &[])).to_string();
    assert!(message.contains("`nonsense`") && message.contains("smollm"), "{message}");
    let missing = error(Vocab { pre: None, ..vocab("gpt2", &[], &[]) }).to_string();
    assert!(missing.contains("tokenizer.ggml.pre"), "{missing}");
}

fn unknown_model() {
    for model in ["t5", "bert", ""] {
        let found = error(Vocab { model: model.into(), ..vocab("gpt2", &[], &[]) });
        assert_eq!(found, TextError::Model { found: model.into() });
        assert!(found.to_string().contains(&format!("`{model}`")));
    }
}

fn broken_vocabularies() {
    let fault = |change: fn(&mut Vocab), part: &str| {
        let mut vocab = vocab("gpt2", &["a b"], &[("<|x|>", CONTROL)]);
        change(&mut vocab);
        let message = error(vocab).to_string();
        assert!(message.contains(part), "{message}");
    };
    fault(|v| v.tokens.clear(), "tokenizer.ggml.tokens");
    fault(|v| v.token_types.truncate(3), "tokenizer.ggml.token_type");
    fault(|v| v.merges.push("ab".into()), "tokenizer.ggml.merges: entry 1");
    fault(|v| v.merges.push(String::new()), "tokenizer.ggml.merges: entry 1");
    fault(|v| v.merges.push("a ".into()), "tokenizer.ggml.merges: entry 1");
    fault(|v| v.merges.push("a zz".into()), "tokenizer.ggml.merges");
    fault(|v| v.merges.clear(), "tokenizer.ggml.merges: is missing or empty");
    fault(|v| v.token_types[7] = 99, "tokenizer.ggml.token_type: token 7 is of type 99");
    fault(|v| v.token_types[0] = 0, "tokenizer.ggml.token_type: token 0 is of type 0");
    fault(|v| v.bos = Some(258), "bos_token_id = 258");
    fault(|v| v.eos = Some(u32::MAX), "eos_token_id = 4294967295");
}

/// "abc" is a token that no merge reaches.
fn whole_pieces() {
    for (pre, ids) in [("llama-bpe", vec![257]), ("gpt-4o", vec![257]), ("gpt2", vec![256, 99])] {
        let mut vocab = vocab(pre, &["a b"], &[]);
        vocab.tokens.push("abc".into());
        vocab.token_types.push(1);
        assert_eq!(built(vocab).encode("abc").unwrap(), ids, "{pre}");
    }
}

fn user_defined_pieces() {
    let added = [("  ", USER_DEFINED), ("    ", USER_DEFINED), ("<code>", USER_DEFINED)];
    let tokenizer = built(vocab("gpt2", &[], &added));
    let ids = tokenizer.encode("a  b and    c<code>").unwrap();
    let mut expected = bytes("a");
    expected.push(256);
    expected.extend(bytes("b and"));
    expected.push(257);
    expected.extend([99, 258]);
    assert_eq!(ids, expected);
    assert_eq!(tokenizer.decode(&ids), "a  b and    c<code>");
}

fn added_token_flags() {
    let mut json: serde_json::Value =
        serde_json::from_slice(&asset("assets/fable/tokenizer.json")).expect("json");
    let token = |id: u32, content: &str, lstrip: bool, rstrip: bool, single_word: bool| {
        json!({"id": id, "content": content, "lstrip": lstrip, "rstrip": rstrip,
               "single_word": single_word, "normalized": false, "special": false})
    };
    let list = json["added_tokens"].as_array_mut().expect("list");
    list.push(token(1551, "[L]", true, false, false));
    list.push(token(1552, "[R]", false, true, false));
    list.push(token(1553, "word", false, false, true));
    let tokenizer =
        Tokenizer::from_json(json.to_string().as_bytes(), TokenizerExtra::default()).expect("ok");
    let plain = fable();
    let cat = |parts: &[&[u32]]| parts.concat();
    let (a, b) = (plain.encode("a").unwrap(), plain.encode("b").unwrap());
    assert_eq!(tokenizer.encode("a  [L]b").unwrap(), cat(&[&a, &[1551], &b]));
    assert_eq!(tokenizer.encode("a[R] \n b").unwrap(), cat(&[&a, &[1552], &b]));
    assert_eq!(tokenizer.encode("a[R] [L]b").unwrap(), cat(&[&a, &[1552, 1551], &b]));
    assert_eq!(tokenizer.encode("word").unwrap(), [1553]);
    assert_eq!(tokenizer.encode("words").unwrap(), plain.encode("words").unwrap());
    assert_eq!(tokenizer.encode("_word").unwrap(), plain.encode("_word").unwrap());
}

fn bos_once() {
    let vocab = vocab("gpt2", &[], &[("<bos>", CONTROL), ("<eos>", CONTROL)]);
    let vocab = Vocab { bos: Some(256), eos: Some(257), add_bos: Some(true), ..vocab };
    let with = built(vocab.clone());
    let without = built(Vocab { add_bos: Some(false), ..vocab });
    let chat = |tokenizer: &Tokenizer, source: &str| {
        let template = tokenizer.template(source).expect("template");
        let message = Message::new("user", "<bos>");
        let rendered = template.render(&[message], &super::template::prompt()).expect("rendered");
        tokenizer.encode_rendered(&rendered).unwrap()
    };
    let text = bytes("<bos>");
    let expected = [&[256][..], &text].concat();
    // Both print one; only the tokenizer; only the template; neither.
    assert_eq!(chat(&with, "{{ bos_token }}{{ messages[0].content }}"), expected);
    assert_eq!(chat(&with, "{{ messages[0].content }}"), expected);
    assert_eq!(chat(&without, "{{ bos_token }}{{ messages[0].content }}"), expected);
    assert_eq!(chat(&without, "{{ messages[0].content }}"), text);
    assert_eq!(with.encode_prompt("a").unwrap(), [256, 97]);
    assert_eq!(with.encode_prompt("<bos>a").unwrap(), [256, 97]);
    assert_eq!(with.encode_prompt("").unwrap(), [256]);
    assert_eq!(without.encode_prompt("a").unwrap(), [97]);
    assert_eq!(with.encode("a").unwrap(), [97]);
}

fn bos_default() {
    for (pre, adds) in [("gpt2", false), ("smollm", false), ("qwen2", false), ("llama-bpe", true)] {
        let vocab = vocab(pre, &[], &[("<|bos|>", CONTROL)]);
        let tokenizer = built(Vocab { bos: Some(256), ..vocab });
        assert_eq!(tokenizer.adds_bos(), adds, "{pre}");
    }
}

fn json_bos() {
    let mut json: serde_json::Value =
        serde_json::from_slice(&asset("assets/fable/tokenizer.json")).expect("json");
    let of = |json: &serde_json::Value, add_bos| {
        let extra = TokenizerExtra { add_bos, ..TokenizerExtra::default() };
        Tokenizer::from_json(json.to_string().as_bytes(), extra).expect("tokenizer")
    };
    assert!(!of(&json, None).adds_bos());
    assert!(!of(&json, Some(true)).adds_bos(), "there is no BOS to add");
    json["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]},
            "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}}
    });
    let tokenizer = of(&json, None);
    assert_eq!(tokenizer.bos(), Some(1));
    // No EOS: a prompt is there to be continued.
    assert_eq!(tokenizer.encode_prompt("a").unwrap(), [1, 67]);
    assert_eq!(tokenizer.encode_prompt("<|im_start|>a").unwrap(), [1, 67]);
    assert_eq!(of(&json, Some(false)).encode_prompt("a").unwrap(), [67]);
}

fn nothing_to_encode() {
    let tokenizer = chatml(&[]);
    assert_eq!(tokenizer.encode("").unwrap(), [0_u32; 0]);
    assert_eq!(tokenizer.encode_prompt("").unwrap(), [0_u32; 0]);
    assert_eq!(tokenizer.decode(&[]), "");
    // An empty message is still a turn; no message is only what the template writes.
    let template = tokenizer.template(super::template::CHATML).expect("template");
    let options = Default::default();
    let turn = template.render(&[Message::new("user", "")], &options).expect("rendered");
    let expected = [&[256][..], &bytes("user\n"), &[257, 10]].concat();
    assert_eq!(tokenizer.encode_rendered(&turn).unwrap(), expected);
    let none = template.render(&[], &options).expect("rendered");
    assert_eq!(tokenizer.encode_rendered(&none).unwrap(), [0_u32; 0]);
}

fn stop_ids() {
    // Gemma's ids in small: <eos> in the file, <end_of_turn> by name, a third from a config.
    let added = [("<eos>", CONTROL), ("<end_of_turn>", USER_DEFINED), ("<|x|>", CONTROL)];
    let gemma = vocab("gpt2", &[], &added);
    let gemma = built(Vocab { eos: Some(256), ..gemma });
    assert_eq!(gemma.stop_ids(&[]), [256, 257]);
    assert_eq!(gemma.stop_ids(&[258, 256]), [256, 257, 258]);
    // eos and eot keys of one file, whose names say nothing.
    let two = vocab("gpt2", &[], &[("<|a|>", CONTROL), ("<|b|>", CONTROL)]);
    let two = built(Vocab { eos: Some(256), eot: vec![257], ..two });
    assert_eq!(two.stop_ids(&[]), [256, 257]);
    // pad = eos masks nothing out.
    let chat = vocab("gpt2", &[], &[("<|endoftext|>", CONTROL), ("<|im_end|>", CONTROL)]);
    let chat = built(Vocab { eos: Some(257), pad: Some(257), ..chat });
    assert_eq!(chat.stop_ids(&[]), [256, 257]);
    // `<|end|>` ends an answer, except where answers are several messages.
    let phi = built(vocab("gpt2", &[], &[("<|end|>", CONTROL)]));
    assert_eq!(phi.stop_ids(&[]), [256]);
    let harmony = [("<|end|>", CONTROL), ("<|return|>", CONTROL), ("<|call|>", CONTROL)];
    assert_eq!(built(vocab("gpt2", &[], &harmony)).stop_ids(&[]), [257, 258]);
    // A normal token that reads like a marker is none.
    let plain = vocab("gpt2", &["a b"], &[("<|im_end|>", 1)]);
    assert_eq!(built(plain).stop_ids(&[]), [0_u32; 0]);
    assert_eq!(fable().stop_ids(&[]), [0, 2]);
    // The marker's text is not in the answer, also where the file forgot its flag.
    assert_eq!(gemma.decode(&[104, 105, 257]), "hi");
}

fn config_shapes() {
    let ids = |value| token_ids(&json!({"eos_token_id": value}), "config.json", "eos_token_id");
    assert_eq!(ids(json!([2, 0])), Ok(vec![2, 0]));
    assert_eq!(ids(json!(106)), Ok(vec![106]));
    assert_eq!(ids(json!(null)), Ok(vec![]));
    assert_eq!(ids(json!(-1)), Ok(vec![]));
    assert_eq!(token_ids(&json!({}), "config.json", "eos_token_id"), Ok(vec![]));
    for wrong in [json!("x"), json!(-3), json!(2.5), json!([2, "x"]), json!(4_294_967_296u64)] {
        let error = ids(wrong).expect_err("no ids").to_string();
        assert!(error.starts_with("config.json: `eos_token_id` is "), "{error}");
    }
    let config = br#"{"model_max_length": 1000000000000000019884624838656, "bos_token": null,
        "eos_token": {"content": "<|im_end|>", "special": true}, "add_bos_token": false}"#;
    let extra = TokenizerExtra::from_config(Some(config)).expect("parses");
    assert_eq!(extra.eos_token.as_deref(), Some("<|im_end|>"));
    assert_eq!((extra.bos_token, extra.add_bos), (None, Some(false)));
    assert!(TokenizerExtra::from_config(None).expect("parses").eos_token.is_none());
    let broken = TokenizerExtra::from_config(Some(b"{")).expect_err("refused").to_string();
    assert!(broken.contains("tokenizer_config.json"), "{broken}");
}

fn broken_json() {
    let refused = |json: &[u8]| {
        Tokenizer::from_json(json, TokenizerExtra::default()).expect_err("refused").to_string()
    };
    for json in [&b""[..], b"{", b"[]", b"{}", b"\xff", br#"{"model": {"type": "BPE"}}"#] {
        assert!(refused(json).contains("tokenizer.json"), "{}", refused(json));
    }
    let good: serde_json::Value =
        serde_json::from_slice(&asset("assets/fable/tokenizer.json")).expect("json");
    let mut decoder = good.clone();
    decoder["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    assert!(refused(decoder.to_string().as_bytes()).contains("WordPiece"));
    let mut none = good.clone();
    none["decoder"] = json!(null);
    assert!(refused(none.to_string().as_bytes()).contains("decoder"));
    let mut unknown = good.clone();
    unknown["model"]["unk_token"] = json!("<nowhere>");
    unknown["pre_tokenizer"] = json!(null);
    assert!(refused(unknown.to_string().as_bytes()).contains("cannot encode"));
    let mut unmerged = good.clone();
    unmerged["model"]["merges"] = json!([]);
    assert!(refused(unmerged.to_string().as_bytes()).contains("merges"));
    // Bytes and added tokens need none.
    let vocab = unmerged["model"]["vocab"].as_object_mut().expect("a table");
    vocab.retain(|piece, _| piece.chars().count() == 1);
    unmerged["model"]["unk_token"] = json!(null);
    let bytes = Tokenizer::from_json(unmerged.to_string().as_bytes(), TokenizerExtra::default());
    assert!(bytes.is_ok(), "{bytes:?}");
    let mut huge = good.clone();
    huge["model"]["vocab"]["<huge>"] = json!(4294967295u32);
    assert!(refused(huge.to_string().as_bytes()).contains("4294967295"));
    let extra = TokenizerExtra { eos: vec![1551], ..TokenizerExtra::default() };
    let out = Tokenizer::from_json(good.to_string().as_bytes(), extra).expect_err("refused");
    assert_eq!(out, TextError::TokenId { field: "eos_token_id", id: 1551, vocab_size: 1551 });
}

/// Files that the tokenizers crate reads, and panics on when they are used.
fn panics_of_the_library() {
    let sequence = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let processor = |single: serde_json::Value| {
        json!({"type": "TemplateProcessing", "single": single, "special_tokens": {},
               "pair": [sequence("A"), sequence("B")]})
    };
    let special = json!({"SpecialToken": {"id": "<nope>", "type_id": 0}});
    let charsmap = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
    for (at, value) in [
        ("/post_processor", processor(json!([special, sequence("A")]))),
        ("/post_processor", processor(json!([sequence("B")]))),
        ("/normalizer", charsmap),
        ("/model/continuing_subword_prefix", json!("\u{e9}\u{e9}\u{e9}")),
    ] {
        let mut json: serde_json::Value =
            serde_json::from_slice(&asset("assets/fable/tokenizer.json")).expect("json");
        *json.pointer_mut(at).expect(at) = value;
        let json = json.to_string();
        let error = Tokenizer::from_json(json.as_bytes(), TokenizerExtra::default());
        let error = error.expect_err(at).to_string();
        assert!(error.starts_with("tokenizer.json: "), "{at}: {error}");
    }
}

/// The same at a later text than the loader tries.
fn panics_at_a_text() {
    let json = panics_at_z().to_string();
    let tokenizer = Tokenizer::from_json(json.as_bytes(), TokenizerExtra::default()).expect("ok");
    let tokenizer = std::sync::Arc::new(tokenizer);
    assert_eq!(tokenizer.encode("a").unwrap().len(), 1);
    let template = tokenizer.template("{{ messages[0].content }}").expect("a template");
    let rendered = template.render(&[Message::new("user", "zoo")], &RenderOptions::default());
    for wrong in [
        tokenizer.encode("a zoo"),
        tokenizer.encode_prompt("zoo"),
        tokenizer.encode_rendered(&rendered.expect("renders")),
    ] {
        assert!(matches!(wrong, Err(TextError::Encode(ref why)) if !why.is_empty()), "{wrong:?}");
    }
    assert_eq!(tokenizer.encode("a").unwrap().len(), 1, "it goes on");
}

fn token_text() {
    let tokenizer = chatml(&[]);
    assert_eq!(tokenizer.token_text(257), "<|im_end|>");
    assert_eq!(tokenizer.token_bytes(257), b"<|im_end|>");
    assert_eq!(tokenizer.token_text(0xF0), "\u{FFFD}");
    assert_eq!(tokenizer.token_bytes(0xF0), [0xF0]);
    assert_eq!(tokenizer.token_text(9999), "");
    assert_eq!(tokenizer.logit_rows(), 259);
}
