//! `response_format` and its extras: answers have the form they were asked for, faults of a form
//! are the client's, and what could cut an answer is refused.

use super::host::{CHAT, Host, Setup, TEXT};
use super::shapes::with;
use crate::engine::fake::hashed;
use crate::support::Rows;
use crate::text::schemas::valid;
use serde_json::{Value, json};
use std::sync::Arc;
use tilewright::text::{Tokenizer, TokenizerExtra};

pub fn rows(rows: &mut Rows) {
    rows.add("server::answers_have_the_form_asked_for", forms);
    rows.add("server::forms_stream_and_repeat_by_seed", streams);
    rows.add("server::bad_forms_are_refused", refused);
    rows.add("server::forms_refuse_what_would_cut_them", conflicts);
    rows.add("server::a_fault_on_the_way_names_the_field", on_the_way);
    rows.add("server::forms_come_after_thoughts", after_thoughts);
    rows.add("server::thoughts_between_control_tokens", between_control_tokens);
}

fn chat(more: Value) -> Value {
    with(json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400}), more)
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "kind": {"enum": ["cat", "dog"]},
            "ages": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99},
                "minItems": 1, "maxItems": 3},
        },
        "required": ["kind", "ages"],
        "additionalProperties": false,
    })
}

fn named() -> Value {
    json!({"type": "json_schema",
        "json_schema": {"name": "pet", "strict": true, "schema": schema()}})
}

fn text(answer: &Value) -> String {
    let choice = &answer["choices"][0];
    let found = choice["message"]["content"].as_str().or(choice["text"].as_str());
    found.unwrap_or_else(|| panic!("{answer}")).to_string()
}

fn is_pet(answer: &Value) {
    assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
    let value: Value =
        serde_json::from_str(&text(answer)).unwrap_or_else(|e| panic!("{e}: {answer}"));
    valid(&schema(), &schema(), &value).unwrap_or_else(|e| panic!("{e}"));
}

fn forms() {
    // What this model says of itself is never of any form.
    let host = Setup::new(hashed()).start();
    for more in [
        json!({"response_format": named()}),
        json!({"response_format": {"type": "json_object", "schema": schema()}}),
        json!({"structured_outputs": {"json": schema()}}),
        json!({"structured_outputs": {"json": schema().to_string()}}),
        json!({"guided_json": schema()}),
        json!({"json_schema": schema()}),
    ] {
        is_pet(&host.ok(CHAT, &chat(more.clone())));
        is_pet(&host.ok(TEXT, &with(json!({"prompt": "A pet: ", "max_tokens": 400}), more)));
    }
    for more in [
        json!({"structured_outputs": {"regex": "[ab]{3}-[0-9]{2}"}}),
        json!({"guided_regex": "[ab]{3}-[0-9]{2}"}),
        json!({"structured_outputs": {"grammar": "start: /[ab]{3}/ \"-\" /[0-9]{2}/"}}),
        json!({"guided_grammar": "start: /[ab]{3}/ \"-\" /[0-9]{2}/"}),
    ] {
        let answer = text(&host.ok(CHAT, &chat(more)));
        let (letters, digits) = answer.split_once('-').unwrap_or_else(|| panic!("{answer}"));
        assert!(letters.len() == 3 && letters.bytes().all(|b| b"ab".contains(&b)), "{answer}");
        assert!(digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()), "{answer}");
    }
    for field in ["guided_choice", "structured_outputs"] {
        let list = json!(["yes", "no", "it \"depends\""]);
        let value = if field == "guided_choice" { list } else { json!({"choice": list}) };
        let answer = text(&host.ok(CHAT, &chat(json!({field: value}))));
        assert!(["yes", "no", "it \"depends\""].contains(&answer.as_str()), "{answer}");
    }
    let none = host.ok(CHAT, &chat(json!({"response_format": {"type": "text"}, "max_tokens": 3})));
    assert_eq!(none["choices"][0]["finish_reason"], "length");
    let any = json!({"response_format": {"type": "json_object"}, "n": 5});
    for choice in host.ok(CHAT, &chat(any))["choices"].as_array().unwrap() {
        let content = choice["message"]["content"].as_str().unwrap();
        if choice["finish_reason"] == "stop" {
            assert!(serde_json::from_str::<Value>(content).unwrap().is_object(), "{content}");
        }
    }
}

fn streams() {
    let host = Setup::new(hashed()).start();
    let body = chat(json!({"response_format": named(), "seed": 4, "n": 2, "logprobs": true}));
    let whole = host.ok(CHAT, &body);
    let frames = host.stream(CHAT, &with(body.clone(), json!({"stream": true})));
    for index in 0..2 {
        let of = |frame: &&Value| frame["choices"][0]["index"] == index;
        let content: String = frames
            .iter()
            .filter(of)
            .filter_map(|f| f["choices"][0]["delta"]["content"].as_str())
            .collect();
        assert_eq!(content, whole["choices"][index]["message"]["content"].as_str().unwrap());
    }
    assert_eq!(host.ok(CHAT, &body)["choices"], whole["choices"], "the same seed, the same answer");
}

fn refused() {
    let host = Host::says("x");
    let remote = json!({"$ref": "https://example.org/pet.json"});
    let deep = (0..100).fold(json!({}), |inner, _| json!({"allOf": [inner, {"type": "object"}]}));
    let form = |schema: Value| {
        let named = json!({"name": "x", "schema": schema});
        json!({"response_format": {"type": "json_schema", "json_schema": named}})
    };
    for (more, param) in [
        (json!({"response_format": "json"}), "response_format"),
        (json!({"response_format": {}}), "response_format.type"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
            "response_format.json_schema.name",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}}),
            "response_format.json_schema.name",
        ),
        (form(json!(3)), "response_format.json_schema.schema"),
        (form(remote), "response_format.json_schema.schema"),
        (form(json!({"type": "pet"})), "response_format.json_schema.schema"),
        (form(json!({"type": "string", "pattern": "("})), "response_format.json_schema.schema"),
        (form(json!({"x-guidance": 3})), "response_format.json_schema.schema"),
        (json!({"guided_regex": "("}), "guided_regex"),
        (json!({"guided_choice": []}), "guided_choice"),
        (json!({"guided_choice": [1]}), "guided_choice"),
        (json!({"guided_json": "{"}), "guided_json"),
        (json!({"grammar": "root ::= \"a\""}), "grammar"),
        (json!({"structured_outputs": {"lua": "x"}}), "structured_outputs.lua"),
        (
            json!({"structured_outputs": {"regex": "a", "grammar": "start: \"a\""}}),
            "structured_outputs",
        ),
        (json!({"guided_regex": "a", "guided_json": {}}), "guided_regex"),
    ] {
        let error = host.refused(CHAT, &chat(more.clone()));
        assert_eq!((error.status, error.param.as_str()), (400, param), "{more}: {error:?}");
        assert!(error.message.contains(param), "{error:?}");
    }
    let reply = host.post(CHAT, &chat(form(deep)));
    assert!(reply.status == 400 || reply.status == 200, "{}", reply.body);
}

/// A form that can be begun and not gone on with, or whose readings become too many: told under
/// the field it came in.
fn on_the_way() {
    let many = crate::engine::fake::card().tokenizer.token_id("a").unwrap();
    let host = Setup::new(crate::engine::fake::script(vec![many; 1500])).start();
    let ambiguous = json!({"guided_grammar": "start: s\ns: s s | \"a\"", "max_tokens": 1500});
    let error = host.refused(CHAT, &chat(ambiguous));
    let found = (error.status, error.param.as_str(), error.code.as_str());
    assert_eq!(found, (400, "guided_grammar", "invalid_grammar"), "{error:?}");
    let told = |limit: &str| error.message.contains(limit);
    assert!(told("max is 2000") || told("limit is 1000 ms"), "{error:?}");
    let host = Setup::new(hashed()).start();
    let dead = json!({"guided_grammar": "start: \"a\" /[b&&c]/", "max_tokens": 20});
    for (path, body) in [(CHAT, chat(json!({}))), (TEXT, json!({"prompt": "A"}))] {
        let body = with(body, dead.clone());
        let error = host.refused(path, &body);
        let found = (error.status, error.param.as_str(), error.code.as_str());
        assert_eq!(found, (400, "guided_grammar", "invalid_grammar"), "{error:?}");
        let (frames, done) = host.post(path, &with(body, json!({"stream": true}))).frames();
        assert!(!done);
        assert_eq!(frames.last().unwrap()["error"]["param"], "guided_grammar", "{path}");
    }
}

fn conflicts() {
    let host = Host::says("x");
    for (field, value) in [
        ("stop", json!("}")),
        ("stop", json!(["a"])),
        ("stop_token_ids", json!([7])),
        ("ignore_eos", json!(true)),
        ("min_tokens", json!(4)),
    ] {
        let body = chat(json!({"response_format": named(), field: value}));
        let error = host.refused(CHAT, &body);
        assert_eq!((error.status, error.param.as_str()), (400, field), "{error:?}");
    }
    let harmless = json!({"response_format": named(), "stop": [], "ignore_eos": false});
    assert_eq!(host.post(CHAT, &chat(harmless)).status, 200);
}

/// A model whose template opens a thought thinks first, freely, and then answers in the form.
fn after_thoughts() {
    let card = crate::engine::fake::card();
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}<think>{# </think> #}";
    let template = Some(card.tokenizer.template(source).unwrap());
    let card = tilewright::engine::ModelCard { template, ..card };
    let says = crate::engine::fake::ids("Hm, a dog.</think>\n\n{\"kind\": \"dog\", \"ages\": [3]}");
    let host = Setup { card, ..Setup::new(crate::engine::fake::script(says)) }.start();
    let answer = host.ok(CHAT, &chat(json!({"response_format": named()})));
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "Hm, a dog.");
    assert_eq!(message["content"], "{\"kind\": \"dog\", \"ages\": [3]}");
}

/// The same where the vocabulary has control tokens for the markers, opened by the prompt or by
/// the model, and with a call after the thought.
fn between_control_tokens() {
    let fable = crate::engine::fake::card();
    let file = std::fs::read(crate::support::root().join("assets/fable/tokenizer.json")).unwrap();
    let mut file: Value = serde_json::from_slice(&file).unwrap();
    for (id, content) in [(1551, "<think>"), (1552, "</think>")] {
        file["added_tokens"].as_array_mut().unwrap().push(json!({"id": id, "content": content,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true}));
    }
    let bytes = serde_json::to_vec(&file).unwrap();
    let ids = crate::engine::fake::ids;
    let pet = "{\"kind\": \"dog\", \"ages\": [3]}";
    for (opened, tools) in [(false, false), (true, false), (false, true)] {
        let extra = TokenizerExtra::default();
        let tokenizer = Arc::new(Tokenizer::from_json(&bytes, extra).unwrap());
        let end = if opened { "<think>{# </think> #}" } else { "{# <think></think> #}" };
        let source = format!("{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}{end}");
        let template = Some(tokenizer.template(&source).unwrap());
        let card = tilewright::engine::ModelCard {
            template,
            tokenizer,
            logit_rows: 1553,
            tuned: 0,
            invariance: Default::default(),
            products: Default::default(),
            name: fable.name.clone(),
            defaults: fable.defaults,
            stop_ids: fable.stop_ids.clone(),
        };
        let call =
            format!("<tool_call>\n{{\"name\": \"pet\", \"arguments\": {pet}}}\n</tool_call>");
        let says = if tools { call } else { pet.to_string() };
        let opening = if opened { vec![] } else { vec![1551] };
        let says = [opening, ids("Hm, a dog."), vec![1552], ids("\n\n"), ids(&says)].concat();
        let host = Setup { card, ..Setup::new(crate::engine::fake::script(says)) }.start();
        let function = json!({"name": "pet", "parameters": schema()});
        let more = match tools {
            true => json!({"tools": [{"type": "function", "function": function}]}),
            false => json!({"response_format": named()}),
        };
        let answer = host.ok(CHAT, &chat(more));
        let message = &answer["choices"][0]["message"];
        assert_eq!(message["reasoning_content"], "Hm, a dog.", "{opened} {tools}: {answer}");
        match tools {
            true => assert_eq!(message["tool_calls"][0]["function"]["arguments"], pet),
            false => assert_eq!(message["content"], pet),
        }
    }
}
