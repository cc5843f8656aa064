//! What clients may say about scheduling, and what operators may change while requests run.

use super::host::{Host, Reply, Setup, TEXT, ask};
use super::shapes::with;
use crate::engine::fake::{Answer, END, hashed};
use crate::support::Rows;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tilewright::base::{FairUnit, Limits, Order, Policies};

const POLICIES: &str = "/v1/engine/policies";

pub fn rows(rows: &mut Rows) {
    rows.add("server::priority_goes_first", priority_goes_first);
    rows.add("server::users_and_keys_are_tenants", users_and_keys_are_tenants);
    rows.add("server::timeout_is_408", timeout);
    rows.add("server::queue_timeout_is_429", queue_timeout);
    rows.add("server::cache_salt_isolates", cache_salt_isolates);
    rows.add("server::policies_change_while_requests_run", policies_change);
    rows.add("server::policies_are_refused_by_field", policies_are_refused);
}

/// One request at a time; the first token of each prompt is noted when its answer begins.
fn one_by_one(order: Order) -> (Setup, Arc<Mutex<Vec<u32>>>) {
    let noted: Arc<Mutex<Vec<u32>>> = Arc::default();
    let note = noted.clone();
    let answer: Answer = Box::new(move |history, prompt| {
        if history.len() == prompt {
            note.lock().unwrap().push(history[0]);
        }
        END
    });
    let mut setup = Setup::new(answer);
    setup.limits = Limits { sequences_max: 1, ..setup.limits };
    setup.policies = Policies { order, ..Policies::default() };
    (setup, noted)
}

fn post(path: &str, key: Option<&str>, body: &Value) -> Request<Body> {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    request.body(Body::from(body.to_string())).unwrap()
}

/// Asks in this order while the engine is held, does `meanwhile`, and lets it go on.
fn queued(host: &Host, requests: Vec<Request<Body>>, meanwhile: Option<Request<Body>>) {
    host.engine.hold(true);
    host.runtime.block_on(async {
        let (mut watch, mut open) = (host.engine.watch(), Vec::new());
        for (n, request) in (1..).zip(requests) {
            open.push(tokio::spawn(ask(host.router.clone(), request)));
            let arrived = watch.wait_for(|s| s.open == n);
            drop(tokio::time::timeout(Duration::from_secs(60), arrived).await.unwrap().unwrap());
        }
        if let Some(request) = meanwhile {
            let reply = ask(host.router.clone(), request).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
        host.engine.hold(false);
        for reply in open {
            let reply: Reply = reply.await.unwrap();
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
    });
}

/// Prompts 300, 301, … with these fields each.
fn asks(fields: &[Value]) -> Vec<Request<Body>> {
    let body = |(id, more): (u32, &Value)| with(json!({"prompt": [id]}), more.clone());
    (300..).zip(fields).map(body).map(|body| post(TEXT, None, &body)).collect()
}

fn priority_goes_first() {
    let fields = [json!({"priority": 5}), json!({"priority": 0}), json!({"priority": null})];
    for (order, expected) in [(Order::Priority, [301, 302, 300]), (Order::Fcfs, [300, 301, 302])] {
        let (setup, noted) = one_by_one(order);
        let host = setup.start();
        queued(&host, asks(&fields), None);
        assert_eq!(*noted.lock().unwrap(), expected, "{order}");
    }
    let host = Host::says("x");
    for wrong in [json!(8), json!(-1), json!("high")] {
        let refused = host.refused(TEXT, &json!({"prompt": "x", "priority": wrong}));
        assert_eq!((refused.status, refused.param.as_str()), (400, "priority"));
    }
}

fn users_and_keys_are_tenants() {
    let fair = Order::Fair { unit: FairUnit::Requests };
    let users = ["a", "a", "a", "b"].map(|user| json!({"user": user}));
    for (order, expected) in [(fair, [300, 303, 301, 302]), (Order::Fcfs, [300, 301, 302, 303])] {
        let (setup, noted) = one_by_one(order);
        let host = setup.start();
        queued(&host, asks(&users), None);
        assert_eq!(*noted.lock().unwrap(), expected, "{order}");
    }
    // Where keys tell clients apart, nobody gets more by inventing users.
    let (mut setup, noted) = one_by_one(fair);
    setup.server.api_keys = vec!["first".into(), "second".into()];
    let host = setup.start();
    let asked = [("first", "a"), ("first", "b"), ("first", "c"), ("second", "a")];
    let body = |(id, (key, user)): (u32, (&str, &str))| {
        post(TEXT, Some(key), &json!({"prompt": [id], "user": user}))
    };
    queued(&host, (300..).zip(asked).map(body).collect(), None);
    assert_eq!(*noted.lock().unwrap(), [300, 303, 301, 302]);
}

/// Never an end, a millisecond a token.
fn slow() -> Setup {
    let hashed = hashed();
    Setup::new(Box::new(move |history, prompt| {
        std::thread::sleep(Duration::from_millis(1));
        hashed(history, prompt)
    }))
}

fn timeout() {
    let host = slow().start();
    let body = |timeout: Value| json!({"prompt": "x", "max_tokens": 900, "timeout": timeout});
    let refused = host.refused(TEXT, &body(json!(0.02)));
    let told = (refused.status, refused.code.as_str(), refused.param.as_str());
    assert_eq!(told, (408, "timeout", "timeout"));
    assert!(refused.message.contains("20 ms"), "{}", refused.message);
    for wrong in [json!(0), json!(-1), json!("soon")] {
        let refused = host.refused(TEXT, &body(wrong));
        assert_eq!((refused.status, refused.param.as_str()), (400, "timeout"));
    }
    host.ok(TEXT, &with(body(json!(60)), json!({"max_tokens": 2})));
    // A stream that has begun ends with the error, and without [DONE].
    let reply = host.post(TEXT, &with(body(json!(0.05)), json!({"stream": true})));
    let (frames, done) = reply.frames();
    assert_eq!((reply.status, done), (200, false));
    assert_eq!(frames.last().unwrap()["error"]["code"], "timeout");
    let status = host.engine.status();
    assert_eq!((status.open, status.blocks_used), (0, 0));
}

fn queue_timeout() {
    let mut setup = slow();
    setup.limits = Limits { sequences_max: 1, queue_timeout_ms: 20, ..setup.limits };
    let host = setup.start();
    let running = tilewright::engine::GenerateRequest {
        prompt: vec![300],
        max_tokens: Some(900),
        ..tilewright::engine::GenerateRequest::default()
    };
    let running = host.engine.submit(running).unwrap();
    let reply = host.post(TEXT, &json!({"prompt": "x"}));
    let error = reply.refused();
    assert_eq!((error.status, error.code.as_str()), (429, "queue_timeout"));
    let seconds: u32 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    drop(running);
    host.ok(TEXT, &json!({"prompt": "x", "max_tokens": 1}));
}

/// Two tenants with salts of their own, and nobody in particular: each finds its own prompt only.
fn cache_salt_isolates() {
    let host = Setup::new(hashed()).start();
    let prompt: Vec<u32> = (300..350).collect();
    let body = |salt: Value| json!({"prompt": prompt, "max_tokens": 2, "cache_salt": salt});
    let cached = |salt: Value| {
        let usage = host.ok(TEXT, &body(salt.clone()))["usage"].clone();
        assert_eq!(usage["prompt_tokens"], 50, "what is cached counts as well");
        let options = json!({"stream": true, "stream_options": {"include_usage": true}});
        let frames = host.stream(TEXT, &with(body(salt), options));
        let streamed = &frames.last().unwrap()["usage"];
        assert_eq!(streamed["prompt_tokens_details"]["cached_tokens"], 48);
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let salts = || [Value::Null, json!("a"), json!("b"), json!("a\u{0}b")];
    assert_eq!(salts().map(cached), [0; 4]);
    assert_eq!(salts().map(cached), [48; 4]);
    let refused = host.refused(TEXT, &body(json!("")));
    assert_eq!((refused.status, refused.param.as_str()), (400, "cache_salt"));
}

fn policies_change() {
    let (mut setup, noted) = one_by_one(Order::Fcfs);
    setup.server.allow_control = true;
    let host = setup.start();
    let before = host.get(POLICIES).json();
    assert_eq!(before["policies"], json!(host.engine.status().policies));
    assert_eq!(before["limits"], json!(host.engine.status().limits));
    let change = json!({
        "policies": {"order": "priority", "aging": null, "victim": "least-lost"},
        "limits": {"queue_max": 7},
    });
    // Those that wait already are placed anew.
    let fields = [json!({"priority": 5}), json!({"priority": 0}), json!({"priority": 2})];
    queued(&host, asks(&fields), Some(post(POLICIES, None, &change)));
    assert_eq!(*noted.lock().unwrap(), [301, 302, 300]);
    let after = host.get(POLICIES).json();
    let mut expected = before;
    expected["policies"]["order"] = json!("priority");
    expected["policies"]["aging"] = Value::Null;
    expected["policies"]["victim"] = json!("least-lost");
    expected["limits"]["queue_max"] = json!(7);
    assert_eq!(after, expected);
    // Nothing named, nothing changed.
    assert_eq!(host.ok(POLICIES, &json!({"policies": null, "limits": {}})), expected);
    let told = host.engine.status();
    assert_eq!((told.policies.order, told.limits.queue_max), (Order::Priority, 7));
}

fn policies_are_refused() {
    let change = json!({"policies": {"order": "priority"}});
    let closed = Host::says("x");
    let refused = closed.refused(POLICIES, &change);
    assert_eq!((refused.status, refused.code.as_str()), (403, "control_not_allowed"));
    assert!(refused.message.contains("--allow-control"), "{}", refused.message);
    let mut setup = Setup::new(hashed());
    setup.server.allow_control = true;
    let host = setup.start();
    let before = host.get(POLICIES).json();
    for (body, param, word) in [
        (json!({"policies": {"order": "lifo"}}), "policies.order", "fair:tokens"),
        (json!({"policies": {"prefill": "chunked", "victim": 3}}), "policies.victim", "string"),
        (json!({"policies": {"order": null}}), "policies.order", "null"),
        (json!({"policies": {"colour": "red"}}), "policies.colour", "not known"),
        (json!({"policies": "fcfs"}), "policies", "object"),
        (json!({"policy": {}}), "policy", "not known"),
        (json!({"limits": {"blocks": 7}}), "limits.blocks", "fixed"),
        (json!({"limits": {"step_tokens_max": 0}}), "limits.step_tokens_max", "1 to"),
        (json!({"limits": {"queue_max": -1}}), "limits.queue_max", "u32"),
        // What flags refuse, too.
        (json!({"limits": {"watermark_permille": 5000}}), "limits.watermark_permille", "0 to 1000"),
        (json!({"limits": {"queue_max": u32::MAX}}), "limits.queue_max", "0 to"),
        (json!({"policies": {"itl_target_micros": 0}}), "policies.itl_target_micros", "1 to"),
        (json!({"policies": {"batching": "dynamic:8:3600001"}}), "policies.batching", "an hour"),
        // All or nothing.
        (
            json!({"policies": {"itl_target_micros": 0}, "limits": {"queue_max": 7}}),
            "policies.itl_target_micros",
            "1 to",
        ),
        (json!({"policies": {"order": "priority"}, "limits": {"window": 3}}), "limits.window", ""),
    ] {
        let refused = host.refused(POLICIES, &body);
        assert_eq!((refused.status, refused.param.as_str()), (400, param), "{body}");
        assert!(refused.message.contains(word), "{body}: {}", refused.message);
        assert_eq!(host.get(POLICIES).json(), before, "{body}");
    }
}
