//! Bodies that are broken, wrong or random; case 32. Never a 5xx, never a hang, always told in
//! the API's shape.

use super::host::{CHAT, Host, Refused, Setup, TEXT, ask};
use crate::engine::fake::{hashed, ids, script};
use crate::support::Rows;
use axum::body::Body;
use axum::http::Request;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Map, Value, json};
use std::time::Duration;

pub fn rows(rows: &mut Rows) {
    rows.add("server::broken_bodies_are_told", broken_bodies);
    rows.add("server::content_type_is_required", content_type);
    rows.add("server::large_bodies_are_413", large_bodies);
    rows.add("server::late_bodies_are_408", late_bodies);
    rows.add("server::unknown_routes_and_methods", unknown_routes);
    rows.add("server::random_bodies_never_break_it", random_bodies);
}

const JSON: Option<&str> = Some("application/json");

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn broken_bodies() {
    let host = Host::says("Hello.");
    let broken: Vec<Vec<u8>> = vec![
        b"{:".to_vec(),
        b"".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"5".to_vec(),
        b"\"x\"".to_vec(),
        b"{} {}".to_vec(),
        b"{\"prompt\":\"x\",}".to_vec(),
        b"{\"prompt\":NaN}".to_vec(),
        b"{\"prompt\":1e999}".to_vec(),
        "[".repeat(100_000).into_bytes(),
        "{\"a\":".repeat(100_000).into_bytes(),
        format!("{{\"prompt\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes(),
        b"{\"prompt\":\"\xff\"}".to_vec(),
        b"{\"prompt\":\"\\ud83d\"}".to_vec(),
        b"{\"prompt\":\"\\udc00\\ud83d\"}".to_vec(),
        utf16("{\"prompt\":\"x\"}"),
        // "你好" in GBK.
        b"{\"prompt\":\"\xc4\xe3\xba\xc3\"}".to_vec(),
        b"\xef\xbb\xbf{\"prompt\":\"x\"}".to_vec(),
        b"{\"prompt\":\"a\0b\"}".to_vec(),
    ];
    for body in broken {
        for path in [CHAT, TEXT] {
            let Refused { status, code, message, .. } =
                host.post_bytes(path, JSON, body.clone()).refused();
            assert_eq!((status, code.as_str()), (400, "invalid_json"), "{message}");
        }
    }
    assert_eq!(host.post(TEXT, &json!({"prompt": "x"})).status, 200, "the next one is served");
}

fn content_type() {
    let host = Host::says("Hello.");
    let body = || json!({"prompt": "x"}).to_string().into_bytes();
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("")] {
        let refused = host.post_bytes(TEXT, kind, body()).refused();
        assert_eq!((refused.status, refused.code.as_str()), (415, "unsupported_media_type"));
        assert!(refused.message.contains("application/json"));
    }
    for kind in ["application/json; charset=utf-8", "Application/JSON", "application/x+json"] {
        assert_eq!(host.post_bytes(TEXT, Some(kind), body()).status, 200, "{kind}");
    }
}

fn large_bodies() {
    let host = Host::says("Hello.");
    let large = format!("{{\"prompt\":\"{}\"}}", "x".repeat(50_000_000));
    let refused = host.post_bytes(TEXT, JSON, large.into_bytes()).refused();
    assert_eq!((refused.status, refused.code.as_str()), (413, "request_too_large"));
    let mut setup = Setup::new(script(ids("Hello.")));
    setup.server.body_max = 40;
    let host = setup.start();
    let body = |size: usize| format!("{{\"prompt\":\"{}\"}}", "x".repeat(size - 13)).into_bytes();
    assert_eq!(host.post_bytes(TEXT, JSON, body(40)).status, 200);
    assert_eq!(host.post_bytes(TEXT, JSON, body(41)).refused().status, 413);
}

fn late_bodies() {
    let mut setup = Setup::new(script(ids("Hello.")));
    setup.server.body_timeout = Duration::from_millis(20);
    let host = setup.start();
    let never =
        Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::post(TEXT).header("content-type", "application/json").body(never);
    let refused = host.send(request.unwrap()).refused();
    assert_eq!((refused.status, refused.code.as_str()), (408, "body_timeout"));
}

fn unknown_routes() {
    let host = Host::says("Hello.");
    for path in ["/", "/v1", "/v2/models", "/v1/chat", "/v1/chat/completions/", "/%ff", "//"] {
        let refused = host.get(path).refused();
        assert_eq!((refused.status, refused.code.as_str()), (404, "unknown_route"), "{path}");
        assert_eq!(host.post(path, &json!({})).refused().status, 404, "{path}");
    }
    let refused = host.get("/v1/models/%ff").refused();
    assert_eq!((refused.status, refused.param.as_str()), (400, "model"));
    for (method, path) in
        [("GET", CHAT), ("PUT", TEXT), ("DELETE", "/v1/models"), ("POST", "/health")]
    {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        let reply = host.send(request.unwrap());
        let refused = reply.refused();
        assert_eq!((refused.status, refused.code.as_str()), (405, "method_not_allowed"));
        assert!(reply.headers.contains_key("allow"), "{method} {path}");
    }
}

/// Any JSON value, small.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3i64..30).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-3.0..3.0f64).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let key = prop_oneof!["[a-z]{1,8}", "[0-9]{1,5}", any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Something near a message.
fn message() -> impl Strategy<Value = Value> {
    let roles = prop::sample::select(vec!["system", "user", "assistant", "tool"]);
    let role = prop_oneof![
        8 => roles.prop_map(Value::from),
        1 => value(),
    ];
    let part =
        prop_oneof!["\\PC{0,20}".prop_map(|text| json!({"type": "text", "text": text})), value(),];
    let content = prop_oneof![
        4 => any::<String>().prop_map(Value::from),
        2 => prop::collection::vec(part, 0..3).prop_map(Value::from),
        1 => value(),
    ];
    let more = (prop::sample::select(vec!["name", "tool_calls", "tool_call_id", "x"]), value());
    (role, content, prop::option::weighted(0.3, more)).prop_map(|(role, content, more)| {
        let mut message = json!({"role": role, "content": content});
        if let Some((key, value)) = more {
            message[key] = value;
        }
        message
    })
}

/// A body with known names and values that are often wrong.
fn body() -> impl Strategy<Value = Value> {
    let names = "n best_of seed tools tool_choice functions logit_bias stream stream_options \
        response_format max_tokens max_completion_tokens min_tokens top_p top_k min_p temperature \
        presence_penalty frequency_penalty repetition_penalty logprobs top_logprobs ignore_eos \
        stop_token_ids return_token_ids user suffix echo chat_template_kwargs stop model wibble \
        structured_outputs guided_json guided_regex guided_choice json_schema parallel_tool_calls";
    let names: Vec<&'static str> = names.split_whitespace().collect();
    let field = (prop::sample::select(names), value());
    let prompt = prop_oneof![
        4 => any::<String>().prop_map(Value::from),
        2 => prop::collection::vec(0..1600u32, 0..9).prop_map(Value::from),
        1 => value(),
    ];
    let messages = prop_oneof![
        6 => prop::collection::vec(message(), 0..4).prop_map(Value::from),
        1 => value(),
    ];
    (prompt, messages, prop::collection::vec(field, 0..4)).prop_map(|(prompt, messages, fields)| {
        let mut map = Map::new();
        map.insert("prompt".to_string(), prompt);
        map.insert("messages".to_string(), messages);
        map.extend(fields.into_iter().map(|(name, value)| (name.to_string(), value)));
        Value::Object(map)
    })
}

fn random_bodies() {
    let mut setup = Setup::new(hashed());
    setup.limits.context_max = 128;
    let host = setup.start();
    let config = Config {
        cases: 600,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..Config::default()
    };
    let (mut good, mut bad) = (0, 0);
    let check = |path: &str, body: &Value| {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from(body.to_string())).unwrap();
        let asked = async {
            tokio::time::timeout(Duration::from_secs(60), ask(host.router.clone(), request)).await
        };
        let reply = host.runtime.block_on(asked).expect("an answer");
        assert!(reply.status < 500, "{}: {}", reply.status, reply.body);
        if reply.status >= 400 {
            reply.refused();
            bad += 1;
        } else {
            if reply.headers["content-type"] == "text/event-stream" {
                assert!(reply.frames().1, "{}", reply.body);
            } else {
                assert!(reply.json()["choices"][0]["finish_reason"].is_string());
            }
            good += 1;
        }
    };
    let check = std::cell::RefCell::new(check);
    TestRunner::new(config)
        .run(&body(), |body| {
            check.borrow_mut()(CHAT, &body);
            check.borrow_mut()(TEXT, &body);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let _ = check;
    assert!(good > 100 && bad > 100, "both kinds are met: {good} and {bad}");
    let status = host.engine.status();
    assert_eq!((status.open, status.blocks_used), (0, 0));
}
