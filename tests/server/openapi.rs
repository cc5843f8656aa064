//! The OpenAPI document: it lists the routes there are and the fields they read, and requests made
//! from it, right and wrong, never break the server.

use super::host::{Host, Reply, Setup, ask};
use crate::engine::fake::hashed;
use crate::support::{Rows, root};
use axum::body::Body;
use axum::http::Request;
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub fn rows(rows: &mut Rows) {
    rows.add("server::openapi_lists_every_route", routes);
    rows.add("server::openapi_lists_every_field", fields);
    rows.add("server::openapi_lists_what_is_read", fields_read);
    rows.add("server::ten_thousand_requests_from_the_document", ten_thousand);
}

const POLICIES: &str = "/v1/engine/policies";

fn document() -> Value {
    let text = std::fs::read_to_string(root().join("assets/openapi.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn routes() {
    let host = Host::says("x");
    let document = document();
    assert_eq!(host.get("/openapi.json").json(), document);
    let mut listed = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let at = path.replace("{id}", "fable");
        for method in ["get", "post"] {
            if path == "/v1/engine/events" {
                continue;
            }
            let request = Request::builder().method(method.to_uppercase().as_str()).uri(&at);
            let status = host.send(request.body(Body::empty()).unwrap()).status;
            let there = operations.get(method).is_some();
            assert_eq!(status != 405, there, "{method} {path}: {status}");
            assert_ne!(status, 404, "{path}");
        }
        listed.push(path.replace("{id}", "{*id}"));
    }
    let source = std::fs::read_to_string(root().join("src/server/routes.rs")).unwrap();
    let mut served: Vec<_> = source
        .split(".route(\"")
        .skip(1)
        .map(|s| s.split('"').next().unwrap().to_string())
        .collect();
    served.sort();
    listed.sort();
    assert_eq!(served, listed);
}

/// A field of the document that a route does not read would be told as unknown.
fn fields() {
    let document = document();
    let host = Host::says("x");
    for (path, operations) in document["paths"].as_object().unwrap() {
        let Some(schema) = body_schema(&document, &operations["post"]) else { continue };
        let mut body = Map::new();
        let mut rng = Rng(1);
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            body.insert(name.to_string(), rng.valid(&document, &schema["properties"][name], 0));
        }
        if path == "/tokenize" {
            body.insert("content".to_string(), json!("x"));
        }
        let lines = super::host::logged(|| {
            let mut all = body.clone();
            for name in schema["properties"].as_object().unwrap().keys() {
                all.entry(name).or_insert(Value::Null);
            }
            host.post(path, &Value::Object(all));
        });
        assert!(!lines.contains("is not known"), "{path}: {lines}");
        assert!(lines.contains("http"), "something was logged");
    }
}

/// Read by routes only to refuse them.
const REFUSED: [&str; 3] = ["grammar", "functions", "function_call"];
/// The same in /v1/completions.
const CHAT_ONLY: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];

/// The other way round: of all names that the server's sources read, those that the document does
/// not list for a route are told as unknown there.
fn fields_read() {
    let names = names_read();
    assert!(names.len() > 50 && names.contains("cache_salt"), "{names:?}");
    let document = document();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let Some(schema) = body_schema(&document, &operations["post"]) else { continue };
        if path == POLICIES {
            continue;
        }
        let completions = path == "/v1/completions";
        let meant = |name: &&String| {
            let name = name.as_str();
            REFUSED.contains(&name) || (completions && CHAT_ONLY.contains(&name))
        };
        let listed = schema["properties"].as_object().unwrap();
        let all: Vec<_> = names.iter().filter(|n| !listed.contains_key(*n) && !meant(n)).collect();
        // A server tells so many names and no more.
        for some in all.chunks(40) {
            let lines = super::host::logged(|| {
                let mut body = smallest(path);
                some.iter().for_each(|name| body[name.as_str()] = Value::Null);
                let reply = Host::says("x").post(path, &body);
                assert_eq!(reply.status, 200, "{path}: {}", reply.body);
            });
            for name in some {
                let told = lines.contains(&format!(r#"\"{name}\""#));
                assert!(told, "{path} reads `{name}`, which the document does not list");
            }
        }
    }
}

/// A request that is right.
fn smallest(path: &str) -> Value {
    match path {
        "/v1/chat/completions" | "/apply-template" => {
            json!({"messages": [{"role": "user", "content": "x"}]})
        }
        "/v1/completions" => json!({"prompt": "x"}),
        "/v1/embeddings" => json!({"input": "x"}),
        "/tokenize" => json!({"content": "x"}),
        "/detokenize" => json!({"tokens": [1]}),
        other => panic!("what is a request to {other}?"),
    }
}

/// Every name that `Fields` is asked for.
fn names_read() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(root().join("src/server")).unwrap() {
        let path = file.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for call in text.split("fields.").skip(1) {
            let Some((method, rest)) = call.split_once("(\"") else { continue };
            if method.bytes().all(|c| c.is_ascii_lowercase()) && method != "wrong" {
                names.extend(rest.split('"').next().map(str::to_string));
            }
        }
    }
    names
}

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => {
            document.pointer(&reference[1..]).unwrap_or_else(|| panic!("{reference}"))
        }
        None => schema,
    }
}

fn body_schema<'a>(document: &'a Value, operation: &'a Value) -> Option<&'a Value> {
    let schema = operation.pointer("/requestBody/content/application~1json/schema")?;
    Some(resolve(document, schema))
}

/// Random numbers, the same in every run.
struct Rng(u64);

const TEXTS: &[&str] = &[
    "",
    "a",
    "Once upon a time",
    "😀",
    "\u{0}",
    "e\u{301}",
    "<|im_end|>",
    "{{ x }}",
    "\u{202e}x",
    "日本語",
    "stop",
    "-1",
    "text",
    "user",
    "null",
];

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn text(&mut self) -> Value {
        json!(TEXTS[self.below(TEXTS.len())])
    }

    /// Any JSON at all.
    fn junk(&mut self, depth: usize) -> Value {
        match self.below(if depth > 2 { 9 } else { 12 }) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(1.5),
            4 => json!(u64::MAX),
            5 => json!(i64::MIN),
            6 => json!(1e300),
            7 => json!(self.below(3000)),
            8 => self.text(),
            9 => json!([]),
            10 => (0..self.below(4)).map(|_| self.junk(depth + 1)).collect(),
            _ => json!({"type": self.junk(depth + 1), "x": self.junk(depth + 1)}),
        }
    }

    /// A value that the schema allows, as far as it tells.
    fn valid(&mut self, document: &Value, schema: &Value, depth: usize) -> Value {
        let schema = resolve(document, schema);
        if let Some(values) = schema["enum"].as_array() {
            return values[self.below(values.len())].clone();
        }
        if let Some(any) = schema["anyOf"].as_array() {
            let which = self.below(any.len());
            return self.valid(document, &any[which], depth);
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds[self.below(kinds.len())].as_str(),
            kind => kind.as_str(),
        };
        let bound = |name: &str| schema[name].as_f64();
        match kind.unwrap_or("object") {
            "null" => Value::Null,
            "boolean" => json!(self.chance(50)),
            "integer" => {
                let low = bound("minimum").unwrap_or(0.0) as i64;
                let high = bound("maximum").unwrap_or(low as f64 + 1500.0) as i64;
                json!(low + self.below((high - low + 1) as usize) as i64)
            }
            "number" => {
                let low = bound("minimum").unwrap_or(0.001);
                let high = bound("maximum").unwrap_or(low + 2.0);
                json!(low + (high - low) * self.below(1001) as f64 / 1000.0)
            }
            "string" if bound("maxLength") == Some(0.0) => json!(""),
            "string" => self.text(),
            "array" => {
                let least = bound("minItems").unwrap_or(0.0) as usize;
                let more = bound("maxItems").map_or(3, |most| most as usize - least);
                let count = least + self.below(more + 1);
                (0..count).map(|_| self.valid(document, &schema["items"], depth + 1)).collect()
            }
            _ => self.object(document, schema, depth),
        }
    }

    fn object(&mut self, document: &Value, schema: &Value, depth: usize) -> Value {
        let mut map = Map::new();
        let required: Vec<_> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let must = required.contains(&name.as_str());
            if must && self.chance(97) || !must && self.chance(if depth == 0 { 12 } else { 30 }) {
                let wrong = self.chance(if depth == 0 { 6 } else { 3 });
                let value =
                    if wrong { self.junk(0) } else { self.valid(document, schema, depth + 1) };
                map.insert(name.clone(), value);
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.below(3) {
                let value = self.valid(document, &schema["additionalProperties"], depth + 1);
                map.insert(self.below(1600).to_string(), value);
            }
        }
        if self.chance(2) {
            map.insert("wibble".to_string(), self.junk(0));
        }
        Value::Object(map)
    }
}

/// The document's word on an answer: required names are there, of the right kind.
fn conforms(document: &Value, schema: &Value, value: &Value) -> bool {
    let schema = resolve(document, schema);
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|schema| conforms(document, schema, value));
    }
    let of_kind = |kind: &Value| match kind.as_str().unwrap_or("") {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    let right = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(of_kind),
        kind => of_kind(kind),
    };
    let listed = schema["enum"].as_array().is_none_or(|values| values.contains(value));
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let complete = required.into_iter().all(|name| value.get(name).is_some());
    let parts = schema["properties"].as_object().into_iter().flatten();
    let mut parts = parts.filter_map(|(name, schema)| Some((schema, value.get(name)?)));
    let items = value.as_array().into_iter().flatten();
    right
        && listed
        && complete
        && parts.all(|(schema, part)| conforms(document, schema, part))
        && items.into_iter().all(|item| conforms(document, &schema["items"], item))
}

/// A request to `path`, and whether it is a GET.
fn request(document: &Value, rng: &mut Rng, path: &str, schema: Option<&Value>) -> Request<Body> {
    let Some(schema) = schema else {
        let id = ["fable", "gpt-4", "%ff", "a/b", "..", "%00"][rng.below(6)];
        let method = if rng.chance(95) { "GET" } else { "DELETE" };
        return Request::builder()
            .method(method)
            .uri(path.replace("{id}", id))
            .body(Body::empty())
            .unwrap();
    };
    let mut body = rng.object(document, schema, 0);
    // A few tokens each: this is about requests, not about text.
    if path.ends_with("completions") && rng.chance(98) {
        body["max_tokens"] = json!(rng.below(5));
        body["max_completion_tokens"] = Value::Null;
        if rng.chance(90) {
            body["min_tokens"] = Value::Null;
        }
    }
    let mut bytes = body.to_string().into_bytes();
    match rng.below(60) {
        0 => bytes.truncate(rng.below(bytes.len())),
        1 => bytes.insert(rng.below(bytes.len()), 0xff),
        2 => bytes = rng.junk(0).to_string().into_bytes(),
        _ => {}
    }
    let kind = ["application/json", "text/plain", "application/json; charset=utf-8"]
        [[0, 0, 0, 0, 0, 0, 0, 0, 1, 2][rng.below(10)]];
    Request::post(path).header("content-type", kind).body(Body::from(bytes)).unwrap()
}

fn ten_thousand() {
    let document = document();
    let mut setup = Setup::new(hashed());
    setup.limits.context_max = 128;
    let host = setup.start();
    let mut rng = Rng(20_240_607);
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        if let Some(schema) = body_schema(&document, &methods["post"]) {
            let weight = if path.ends_with("completions") { 8 } else { 3 };
            operations.extend(vec![(path.clone(), Some(schema)); weight]);
        } else if path != "/v1/engine/events" {
            operations.push((path.clone(), None));
        }
    }
    let requests = (0..10_000).map(|_| {
        let (path, schema) = operations[rng.below(operations.len())].clone();
        let request = request(&document, &mut rng, &path, schema);
        let router = host.router.clone();
        async move {
            let told = format!("{request:?}");
            let asked = tokio::time::timeout(Duration::from_secs(60), ask(router, request));
            (path, asked.await.unwrap_or_else(|_| panic!("no answer to {told}")))
        }
    });
    let requests: Vec<_> = requests.collect();
    let replies = stream::iter(requests).buffer_unordered(32);
    let mut counts: BTreeMap<(String, u16), usize> = BTreeMap::new();
    let check = |(path, reply): (String, Reply)| {
        check(&document, &path, &reply);
        *counts.entry((path, reply.status)).or_default() += 1;
        std::future::ready(())
    };
    host.runtime.block_on(replies.for_each(check));
    // This one lets nobody change its policies.
    assert!(counts.contains_key(&(POLICIES.to_string(), 403)));
    for (path, _) in operations.iter().filter(|(path, _)| path != POLICIES) {
        assert!(counts.contains_key(&(path.clone(), 200)), "{path} was never served: {counts:?}");
    }
    let good: usize = counts.iter().filter(|((_, status), _)| *status == 200).map(|(_, n)| n).sum();
    assert!(good > 2000 && good < 9500, "right and wrong requests: {good} right");
    let status = host.engine.status();
    assert_eq!((status.open, status.blocks_used), (0, 0), "nothing stays behind");
}

fn check(document: &Value, path: &str, reply: &Reply) {
    assert!(reply.status < 500, "{path}: {} {}", reply.status, reply.body);
    if reply.status >= 400 {
        reply.refused();
        return;
    }
    let kind = reply.headers["content-type"].to_str().unwrap();
    if kind == "text/event-stream" {
        assert!(reply.frames().1, "{path}: {}", reply.body);
    } else if kind == "application/json" {
        let at = path.replace('/', "~1");
        let method =
            if document.pointer(&format!("/paths/{at}/post")).is_some() { "post" } else { "get" };
        let pointer =
            format!("/paths/{at}/{method}/responses/200/content/application~1json/schema");
        let schema = document.pointer(&pointer).unwrap_or_else(|| panic!("{pointer}"));
        assert!(conforms(document, schema, &reply.json()), "{path}: {}", reply.body);
    }
}
