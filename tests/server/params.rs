//! Parameters: types, nulls, ranges, limits; cases 25, 26, 34 and 37.

use super::host::{CHAT, Host, Setup, TEXT, logged};
use super::shapes::with;
use crate::engine::fake::hashed;
use crate::support::Rows;
use serde_json::{Value, json};
use tilewright::base::Limits;

pub fn rows(rows: &mut Rows) {
    rows.add("server::null_is_absent_everywhere", null_is_absent);
    rows.add("server::unknown_fields_are_told_once", unknown_fields);
    rows.add("server::wrong_types_and_values_name_the_field", wrong_values);
    rows.add("server::neutral_values_change_nothing", right_values);
    rows.add("server::token_ids_outside_the_vocabulary", outside_the_vocabulary);
    rows.add("server::limits_by_both_names", limits_by_both_names);
    rows.add("server::context_overflow_tells_both_numbers", context_overflow);
    rows.add("server::bias_and_stops_reach_the_engine", bias_and_stops);
    rows.add("server::full_queue_is_429", full_queue);
}

fn bodies() -> [(&'static str, Value); 2] {
    let messages = json!([{"role": "user", "content": "q"}]);
    [(CHAT, json!({"messages": messages})), (TEXT, json!({"prompt": "q"}))]
}

/// Case 25.
fn null_is_absent() {
    let host = Host::says("Hello.");
    let fields = "model stop n best_of seed tools tool_choice functions logit_bias stream \
        stream_options response_format max_tokens max_completion_tokens min_tokens top_p top_k \
        min_p temperature presence_penalty frequency_penalty repetition_penalty repeat_penalty \
        logprobs top_logprobs ignore_eos stop_token_ids return_token_ids user metadata store \
        suffix echo chat_template_kwargs parallel_tool_calls service_tier";
    for (path, body) in bodies() {
        let plain = host.ok(path, &body);
        let mut nulls = body.clone();
        for field in fields.split_whitespace() {
            nulls[field] = Value::Null;
        }
        let answer = host.ok(path, &nulls);
        assert_eq!(answer["choices"], plain["choices"]);
        assert_eq!(answer["usage"], plain["usage"]);
    }
}

fn unknown_fields() {
    let host = Host::says("Hello.");
    let lines = logged(|| {
        for _ in 0..3 {
            for (path, body) in bodies() {
                let more = json!({"wibble": {"deep": [1]}, "store": true, "metadata": {"a": "b"},
                    "parallel_tool_calls": false});
                host.ok(path, &with(body, more));
            }
        }
    });
    let told = |field: &str| lines.lines().filter(|line| line.contains(field)).count();
    assert_eq!(["wibble", "store", "metadata"].map(told), [1, 1, 1], "{lines}");
    assert_eq!(told("parallel_tool_calls"), 0, "it is no field without effect");
    assert!(!lines.contains("deep"), "values are the client's own");
}

fn wrong_values() {
    let host = Host::says("Hello.");
    let long = "x".repeat(20);
    let wrong = [
        ("n", json!("2")),
        ("n", json!(0)),
        ("n", json!(129)),
        ("n", json!(-1)),
        ("n", json!(1.5)),
        ("best_of", json!(2)),
        ("stream", json!("yes")),
        ("stream", json!(1)),
        ("temperature", json!("hot")),
        ("temperature", json!(-1)),
        ("temperature", json!(2.01)),
        ("temperature", json!(1e300)),
        ("top_p", json!(1.1)),
        ("top_p", json!([])),
        ("top_k", json!(-2)),
        ("top_k", json!(1.5)),
        ("min_p", json!(2)),
        ("seed", json!("x")),
        ("seed", json!(1.5)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-1)),
        ("max_tokens", json!("5")),
        ("max_completion_tokens", json!(0)),
        ("max_completion_tokens", json!(2.5)),
        ("min_tokens", json!(-3)),
        ("stop", json!("")),
        ("stop", json!([""])),
        ("stop", json!(["a", "b", "c", "d", "e"])),
        ("stop", json!([1])),
        ("stop", json!({"a": 1})),
        ("presence_penalty", json!(2.5)),
        ("frequency_penalty", json!(-2.5)),
        ("repetition_penalty", json!(0)),
        ("repetition_penalty", json!("1")),
        ("ignore_eos", json!("true")),
        ("return_token_ids", json!(1)),
        ("model", json!(5)),
        ("stream_options", json!(true)),
        ("best_of", json!(0)),
        ("response_format", json!("text")),
        ("structured_outputs", json!("json")),
        ("tools", json!(long)),
        // Of other servers, and not here.
        ("prompt_logprobs", json!(1)),
        ("use_beam_search", json!(true)),
        ("allowed_token_ids", json!([5])),
        ("bad_words", json!(["x"])),
        ("include_stop_str_in_output", json!(true)),
        ("skip_special_tokens", json!(false)),
        ("truncate_prompt_tokens", json!(8)),
        ("continue_final_message", json!(true)),
        ("n_probs", json!(2)),
        ("mirostat", json!(2)),
        ("typical_p", json!(0.5)),
        ("dry_multiplier", json!(0.8)),
        ("modalities", json!(["text", "audio"])),
    ];
    for (path, body) in bodies() {
        for (field, value) in &wrong {
            let refused = host.refused(path, &with(body.clone(), json!({*field: value})));
            let found = (refused.status, refused.param.as_str());
            assert_eq!(found, (400, *field), "{path} {field}={value}: {}", refused.message);
            assert!(refused.message.contains(field), "{}", refused.message);
        }
    }
}

fn right_values() {
    let host = Host::says("Hello.");
    for (field, value) in [("suffix", json!("x")), ("echo", json!(1))] {
        let refused = host.refused(TEXT, &json!({"prompt": "q", field: value}));
        assert_eq!((refused.status, refused.param.as_str()), (400, field));
    }
    for (path, body) in bodies() {
        let more = json!({"n": 2, "best_of": 3});
        assert_eq!(host.refused(path, &with(body.clone(), more)).param, "best_of");
        // Under these they change nothing.
        let neutral = json!({"n": 2, "best_of": 2, "prompt_logprobs": null,
            "use_beam_search": false,
            "length_penalty": 1, "skip_special_tokens": true, "bad_words": [], "typical_p": 1,
            "modalities": ["text"]});
        assert_eq!(host.ok(path, &with(body, neutral))["choices"].as_array().unwrap().len(), 2);
    }
    let right = json!({"n": 1, "best_of": 1, "seed": -5, "top_k": -1, "tools": [],
        "response_format": {"type": "text"}, "stop": ["a", "b", "c", "d"], "temperature": 2});
    for (path, body) in bodies() {
        host.ok(path, &with(body, right.clone()));
    }
}

/// Case 34.
fn outside_the_vocabulary() {
    let host = Host::says("Hello.");
    for (path, body) in bodies() {
        for bias in [
            json!({"1551": 5}),
            json!({"4294967296": 5}),
            json!({"-1": 5}),
            json!({"abc": 1}),
            json!({"": 1}),
            json!({"5": 1e39}),
            json!({"5": "x"}),
            json!({"5": null}),
            json!({"5": 101}),
            json!({"5": -100.5}),
            json!([[5, 1]]),
        ] {
            let refused = host.refused(path, &with(body.clone(), json!({"logit_bias": bias})));
            assert_eq!((refused.status, refused.param.as_str()), (400, "logit_bias"), "{bias}");
        }
        for ids in [json!([999_999]), json!([1551]), json!([-1]), json!(5)] {
            let refused = host.refused(path, &with(body.clone(), json!({"stop_token_ids": ids})));
            assert_eq!((refused.status, refused.param.as_str()), (400, "stop_token_ids"));
        }
    }
    for prompt in [
        json!([-1]),
        json!([1551]),
        json!([4_294_967_296u64]),
        json!([1.5]),
        json!([5, "x"]),
        json!([5, null]),
        json!([[5, -1]]),
        json!(5),
        json!({"a": 1}),
    ] {
        let refused = host.refused(TEXT, &json!({"prompt": prompt}));
        assert_eq!((refused.status, refused.param.as_str()), (400, "prompt"), "{prompt}");
    }
    for prompt in [json!([1550]), json!([[5, 6]]), json!(["one"]), json!([[5], [6]])] {
        host.ok(TEXT, &json!({"prompt": prompt}));
    }
}

fn limits_by_both_names() {
    let host = Setup::new(hashed()).start();
    for (path, body) in bodies() {
        for more in [
            json!({"max_tokens": 3}),
            json!({"max_completion_tokens": 3}),
            json!({"max_completion_tokens": 3, "max_tokens": 3}),
        ] {
            let answer = host.ok(path, &with(body.clone(), more));
            assert_eq!(answer["usage"]["completion_tokens"], 3);
            assert_eq!(answer["choices"][0]["finish_reason"], "length");
        }
        let both = json!({"max_completion_tokens": 3, "max_tokens": 4});
        let refused = host.refused(path, &with(body.clone(), both));
        assert_eq!((refused.status, refused.param.as_str()), (400, "max_completion_tokens"));
        // No limit, and one beyond all room, end with `length` where the room ends.
        for max in [json!(null), json!(1_000_000), json!(5_000_000_000u64)] {
            let answer = host.ok(path, &with(body.clone(), json!({"max_tokens": max})));
            match (path, max.is_null()) {
                // What the API has for plain completions.
                (TEXT, true) => assert_eq!(answer["usage"]["completion_tokens"], 16),
                _ => assert_eq!(answer["usage"]["total_tokens"], 2048),
            }
            assert_eq!(answer["choices"][0]["finish_reason"], "length");
        }
        let more = json!({"min_tokens": 9, "max_completion_tokens": 5});
        let refused = host.refused(path, &with(body, more));
        assert_eq!((refused.status, refused.param.as_str()), (400, "min_tokens"));
        assert!(refused.message.contains("max_completion_tokens"), "{}", refused.message);
    }
}

/// The numbers of case 37, and the context's.
fn context_overflow() {
    let host = Setup::new(hashed()).start();
    for stream in [false, true] {
        let body = json!({"prompt": vec![300; 2048], "stream": stream});
        let refused = host.refused(TEXT, &body);
        assert_eq!(refused.code, "context_length_exceeded");
        assert_eq!((refused.status, refused.param.as_str()), (400, "prompt"));
        assert_eq!(refused.message.matches("2048").count(), 2, "{}", refused.message);
    }
    let answer = host.ok(TEXT, &json!({"prompt": vec![300; 2047]}));
    assert_eq!(answer["usage"]["completion_tokens"], 1);
    let long = "word ".repeat(3000);
    let messages = json!([{"role": "user", "content": long}]);
    let refused = host.refused(CHAT, &json!({"messages": messages}));
    assert_eq!((refused.status, refused.param.as_str()), (400, "messages"));
    assert_eq!(refused.code, "context_length_exceeded");

    let mut setup = Setup::new(hashed());
    setup.limits = Limits { blocks: 8, context_max: 8192, ..setup.limits };
    let host = setup.start();
    let refused = host.refused(TEXT, &json!({"prompt": vec![300; 129]}));
    assert_eq!((refused.status, refused.code.as_str()), (400, "context_length_exceeded"));
    assert!(refused.message.contains("129") && refused.message.contains("128"));
    let answer = host.ok(TEXT, &json!({"prompt": vec![300; 100], "max_tokens": 100}));
    assert_eq!(answer["usage"]["completion_tokens"], 28);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

/// Case 26 through the API; the token texts are the engine rows' business.
fn bias_and_stops() {
    let host = Host::says("alpha beta gamma delta");
    for (path, body) in bodies() {
        let text = |answer: Value| match path {
            CHAT => answer["choices"][0]["message"]["content"].clone(),
            _ => answer["choices"][0]["text"].clone(),
        };
        for (stop, expected) in [
            (json!("beta gamma"), "alpha "),
            (json!(["ta g", "beta gamma"]), "alpha "),
            (json!(["zz"]), "alpha beta gamma delta"),
        ] {
            let answer = host.ok(path, &with(body.clone(), json!({"stop": stop})));
            assert_eq!(text(answer), expected);
        }
        let more = json!({"logit_bias": {"2": 100}, "min_tokens": 0});
        let answer = host.ok(path, &with(body.clone(), more));
        assert_eq!(
            (text(answer.clone()), &answer["usage"]["completion_tokens"]),
            (json!(""), &json!(1))
        );
    }
}

fn full_queue() {
    let mut setup = Setup::new(hashed());
    setup.limits = Limits { queue_max: 1, sequences_max: 1, ..setup.limits };
    let host = setup.start();
    // What the queue never holds is no matter of trying again.
    let error = host.post(TEXT, &json!({"prompt": ["x", "y"]})).refused();
    assert_eq!((error.status, error.param.as_str()), (400, "prompt"));
    host.knobs.pass(0);
    let request = || tilewright::engine::GenerateRequest {
        prompt: vec![300],
        ..tilewright::engine::GenerateRequest::default()
    };
    // One in a step that does not end, one on its way in.
    let running = host.engine.submit(request()).unwrap();
    host.knobs.until_held();
    let waiting = host.engine.submit(request()).unwrap();
    let reply = host.post(TEXT, &json!({"prompt": "x"}));
    let error = reply.refused();
    assert_eq!((error.status, error.code.as_str()), (429, "queue_full"));
    assert!(reply.headers.contains_key("retry-after"));
    host.knobs.pass(u64::MAX);
    for generation in [running, waiting] {
        host.runtime.block_on(generation.collect()).unwrap();
    }
}
