//! /tokenize, /detokenize, /apply-template and /v1/embeddings over the fake runner.

use super::host::{CHAT, Host, Setup, TEXT};
use super::shapes::with;
use crate::engine::fake::{card, hashed, ids, script};
use crate::support::Rows;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use tilewright::text::{Tokenizer, TokenizerExtra};

pub fn rows(rows: &mut Rows) {
    rows.add("server::tokenizers_that_fail_are_told", tokenizer_fails);
    rows.add("server::tokenize_in_both_dialects", tokenize);
    rows.add("server::detokenize_gives_the_text_back", detokenize);
    rows.add("server::apply_template_shows_the_prompt", apply_template);
    rows.add("server::request_templates_need_the_flag", request_templates);
    rows.add("server::embeddings_in_both_encodings", embeddings);
    rows.add("server::embeddings_refuse_by_name", embeddings_refused);
}

const EMBED: &str = "/v1/embeddings";

fn tokenize() {
    let host = Host::says("x");
    let text = "Hello wörld 😀";
    let expected = ids(text);
    let answer = host.ok("/tokenize", &json!({"content": text}));
    assert_eq!((&answer["tokens"], &answer["count"]), (&json!(expected), &json!(expected.len())));
    assert_eq!(answer["max_model_len"], host.engine.sequence_tokens_max());
    let answer = host.ok("/tokenize", &json!({"prompt": text, "return_token_strs": true}));
    assert_eq!(answer["tokens"], json!(card().tokenizer.encode_prompt(text).unwrap()));
    assert_eq!(
        answer["token_strs"].as_array().unwrap().len(),
        answer["count"].as_u64().unwrap() as usize
    );
    let answer = host.ok("/tokenize", &json!({"content": "😀", "with_pieces": true}));
    let mut bytes = Vec::new();
    for token in answer["tokens"].as_array().unwrap() {
        match &token["piece"] {
            Value::String(text) => bytes.extend(text.bytes()),
            piece => bytes.extend(serde_json::from_value::<Vec<u8>>(piece.clone()).unwrap()),
        }
    }
    assert_eq!(bytes, "😀".as_bytes());

    // Markers: text in content, tokens in a raw prompt, and either where it is asked for.
    let marker = "<|im_end|>";
    let count = |body: Value| host.ok("/tokenize", &body)["count"].as_u64().unwrap();
    assert!(count(json!({"content": marker})) > 1);
    assert_eq!(count(json!({"content": marker, "parse_special": true})), 1);
    assert_eq!(count(json!({"prompt": marker})), 1);
    assert!(count(json!({"prompt": marker, "parse_special": false})) > 1);
    let messages = json!([{"role": "user", "content": "What is the capital of France?"}]);
    assert_eq!(count(json!({"messages": messages})), 15, "as chat counts it");
    let without = count(json!({"messages": messages, "add_generation_prompt": false}));
    assert!(without < 15);
    assert_eq!(count(json!({"content": ""})), 0);
    for (body, param) in [
        (json!({}), "prompt"),
        (json!({"content": 5}), "content"),
        (json!({"messages": []}), "messages"),
        (json!({"prompt": "x", "model": "y"}), "model"),
    ] {
        assert_eq!(host.refused("/tokenize", &body).param, param, "{body}");
    }
}

fn detokenize() {
    let host = Host::says("x");
    for text in ["Hello wörld 😀", "", "a<|im_end|>\n<|im_start|>user\nb"] {
        let tokens = card().tokenizer.encode_prompt(text).unwrap();
        let answer = host.ok("/detokenize", &json!({"tokens": tokens}));
        assert_eq!(answer, json!({"content": text, "prompt": text}));
    }
    for tokens in [json!([1551]), json!([-1]), json!("x"), json!([1.5]), Value::Null] {
        assert_eq!(host.refused("/detokenize", &json!({"tokens": tokens})).param, "tokens");
    }
}

fn apply_template() {
    let host = Host::says("x");
    let messages = json!([{"role": "user", "content": "Hi<|im_end|>"}]);
    let body = json!({"messages": messages});
    let prompt = host.ok("/apply-template", &body)["prompt"].clone();
    let prompt = prompt.as_str().unwrap();
    assert!(prompt.contains("Hi<|im_end|>") && prompt.ends_with("assistant\n"), "{prompt:?}");
    let plain = host.ok("/apply-template", &with(body, json!({"add_generation_prompt": false})));
    assert!(prompt.starts_with(plain["prompt"].as_str().unwrap()));
    assert_eq!(host.refused("/apply-template", &json!({"messages": [{"role": "x"}]})).status, 400);
}

fn request_templates() {
    let template = "{{ messages[0].content }}!";
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "chat_template": template});
    let closed = Host::says("x");
    for path in [CHAT, "/apply-template", "/tokenize"] {
        let refused = closed.refused(path, &body);
        assert_eq!((refused.status, refused.param.as_str()), (400, "chat_template"), "{path}");
    }
    let mut setup = Setup::new(script(ids("x")));
    setup.server.trust_request_templates = true;
    let open = setup.start();
    assert_eq!(open.ok("/apply-template", &body)["prompt"], "Hi!");
    open.ok(CHAT, &body);
    // Programs that fail, or never end, are the client's own.
    for broken in [
        "{{ ",
        "{{ nothing() }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
    ] {
        let refused =
            open.refused("/apply-template", &with(body.clone(), json!({"chat_template": broken})));
        assert_eq!(
            (refused.status, refused.code.as_str()),
            (400, "chat_template_error"),
            "{broken}"
        );
    }
    assert_eq!(open.ok("/apply-template", &body)["prompt"], "Hi!", "the next one is served");
}

/// The fake runner's state after tokens: their sum, 1 and −1/4.
fn state(tokens: &[u32], mean: bool) -> Vec<f64> {
    let sums: Vec<f64> =
        (1..=tokens.len()).map(|n| tokens[..n].iter().map(|&id| f64::from(id)).sum()).collect();
    let first =
        if mean { sums.iter().sum::<f64>() / sums.len() as f64 } else { sums[sums.len() - 1] };
    vec![first, 1.0, -0.25]
}

fn embeddings() {
    let host = Host::says("x");
    let text = "Hello there, world";
    let tokens = ids(text);
    for (pooling, mean) in [(json!(null), false), (json!("last"), false), (json!("mean"), true)] {
        let body = json!({"input": text, "pooling": pooling, "normalize": false});
        let answer = host.ok(EMBED, &body);
        assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("fable")));
        assert_eq!(answer["data"][0]["object"], "embedding");
        let floats: Vec<f64> =
            serde_json::from_value(answer["data"][0]["embedding"].clone()).unwrap();
        let expected: Vec<f64> =
            state(&tokens, mean).iter().map(|v| f64::from(*v as f32)).collect();
        assert_eq!(floats, expected);
        assert_eq!(
            answer["usage"],
            json!({"prompt_tokens": tokens.len(), "total_tokens": tokens.len()})
        );
        // The same floats, as bytes.
        let answer = host.ok(EMBED, &with(body, json!({"encoding_format": "base64"})));
        let bytes =
            BASE64_STANDARD.decode(answer["data"][0]["embedding"].as_str().unwrap()).unwrap();
        let packed: Vec<u8> = expected.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
        assert_eq!(bytes, packed);
    }
    let unit = host.ok(EMBED, &json!({"input": text}))["data"][0]["embedding"].clone();
    let unit: Vec<f64> = serde_json::from_value(unit).unwrap();
    assert!((unit.iter().map(|v| v * v).sum::<f64>() - 1.0).abs() < 1e-6, "of length 1 by default");
    // More inputs than the engine is given at once, in order.
    let inputs: Vec<Vec<u32>> = (0..70).map(|n| vec![300 + n, 400]).collect();
    let answer = host.ok(EMBED, &json!({"input": inputs, "normalize": false, "dimensions": 3}));
    for (n, entry) in answer["data"].as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (&entry["index"], &entry["embedding"][0]),
            (&json!(n), &json!(700.0 + n as f64))
        );
    }
    assert_eq!(answer["usage"]["prompt_tokens"], 140);
    // A document's markers stay text.
    let marked = host.ok(EMBED, &json!({"input": "<|im_end|>"}));
    assert!(marked["usage"]["prompt_tokens"].as_u64().unwrap() > 1);
    assert_eq!(host.engine.status().blocks_used, 0);
}

fn embeddings_refused() {
    let host = Host::says("x");
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": ""}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": ["a", ""]}), "input[1]"),
        (json!({"input": [99999]}), "input"),
        (json!({"input": vec![300; 5000]}), "input"),
        (json!({"input": vec!["a"; 2049]}), "input"),
        (json!({"input": "a", "encoding_format": "hex"}), "encoding_format"),
        (json!({"input": "a", "dimensions": 2}), "dimensions"),
        (json!({"input": "a", "pooling": "max"}), "pooling"),
        (json!({"input": "a", "model": "b"}), "model"),
    ] {
        let refused = host.refused(EMBED, &body);
        assert_eq!(refused.param, param, "{}", refused.message);
        assert!(refused.status == 400 || refused.status == 404);
    }
    assert_eq!(host.post(TEXT, &json!({"prompt": "x"})).status, 200);
    assert_eq!(host.engine.status().open, 0);
}

/// A fault of the model's file is no client's, and ends no server.
fn tokenizer_fails() {
    let mut setup = Setup::new(hashed());
    let json = crate::text::panics_at_z().to_string();
    let tokenizer = Tokenizer::from_json(json.as_bytes(), TokenizerExtra::default());
    setup.card.tokenizer = Arc::new(tokenizer.expect("a tokenizer"));
    let host = setup.start();
    for (path, body) in [
        ("/v1/completions", json!({"prompt": "zoo"})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "zoo"}]})),
        ("/v1/embeddings", json!({"input": "zoo"})),
        ("/tokenize", json!({"content": "zoo"})),
    ] {
        let refused = host.refused(path, &body);
        assert_eq!((refused.status, refused.code.as_str()), (500, "tokenizer_error"), "{path}");
        assert!(refused.message.contains("tokenizer"), "{}", refused.message);
    }
    assert_eq!(host.ok("/tokenize", &json!({"content": "a"}))["count"], 1);
}
