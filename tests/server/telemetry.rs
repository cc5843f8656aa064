//! Metrics, the live feed and the engine's state as the server tells them; logs.

use super::host::{CHAT, Host, Setup, TEXT, logged};
use crate::engine::fake::{hashed, ids, script};
use crate::support::{Rows, root, steps_in_flight};
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tilewright::base::Limits;
use tilewright::trace::{Event, HashList, Picture, Stamped, fold};
use tower::ServiceExt;

pub fn rows(rows: &mut Rows) {
    rows.add("server::metrics_are_well_formed", well_formed);
    rows.add("server::metrics_intervals_are_vllms", intervals);
    rows.add("server::metrics_tell_of_the_cache", cache);
    rows.add("server::metrics_count_what_happened", counts);
    rows.add("server::dashboard_names_exist", dashboard);
    rows.add("server::events_are_a_snapshot_and_the_rest", events);
    rows.add("server::slow_watcher_gets_a_new_snapshot", slow_watcher);
    rows.add("server::slots_and_props", slots_and_props);
    rows.add("server::logs_hold_no_secrets", logs_hold_no_secrets);
}

/// The samples of an exposition by name with labels, its form checked line by line.
fn samples(page: &str) -> BTreeMap<String, f64> {
    assert!(page.ends_with('\n'));
    let (mut typed, mut all) = (BTreeMap::new(), BTreeMap::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let fresh = typed.insert(name.to_string(), kind.to_string()).is_none();
            assert!(fresh, "{name} is declared once");
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let (family, labels) = name.split_once('{').unwrap();
            assert!(labels.ends_with('}') && labels.starts_with("model_name=\"fable\""), "{line}");
            let stem = ["_bucket", "_sum", "_count"].iter().find_map(|s| family.strip_suffix(s));
            let histogram = stem.is_some_and(|s| typed.get(s).is_some_and(|k| k == "histogram"));
            assert!(histogram || typed.contains_key(family), "{line}");
            assert!(all.insert(name.to_string(), value.parse().unwrap()).is_none(), "{line}");
        }
    }
    all
}

fn scrape(host: &Host) -> BTreeMap<String, f64> {
    let reply = host.get("/metrics");
    assert_eq!(reply.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    samples(&reply.body)
}

/// The sample of `name` with these labels beside those that all have.
fn sample(all: &BTreeMap<String, f64>, name: &str, more: &str) -> f64 {
    let key = format!("{name}{{model_name=\"fable\",engine=\"0\"{more}}}");
    *all.get(&key).unwrap_or_else(|| panic!("no {key}"))
}

fn ours(all: &BTreeMap<String, f64>, name: &str, more: &str) -> f64 {
    sample(all, &format!("tilewright:{name}"), more)
}

fn well_formed() {
    let host = Host::says("Hello.");
    let before = scrape(&host);
    host.ok(TEXT, &json!({"prompt": "x"}));
    let after = scrape(&host);
    assert!(before.keys().all(|name| after.contains_key(name)), "names stay");
    // Buckets only grow with their bound, and the last is the count.
    let buckets: Vec<_> = after.iter().filter(|(name, _)| name.contains("_bucket")).collect();
    assert!(buckets.len() > 100);
    for name in after.keys().filter(|name| name.contains("_count{")) {
        let infinite = name.replace("_count{", "_bucket{").replace('}', ",le=\"+Inf\"}");
        assert_eq!(after[&infinite], after[name], "{name}");
    }
    // What an endpoint picker reads by default.
    for name in ["num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"] {
        assert_eq!(sample(&after, &format!("vllm:{name}"), ""), ours(&after, name, ""));
    }
    let sizes = ",block_size=\"16\",num_gpu_blocks=\"512\"";
    assert_eq!(sample(&after, "vllm:cache_config_info", sizes), 1.0);
}

/// An event of sequence 7, by hand.
fn event(kind: &str, more: Value) -> Event {
    let event = super::shapes::with(json!({"kind": kind, "sequence": 7}), more);
    serde_json::from_value(event).unwrap()
}

fn arrived() -> Event {
    let of = json!({"request": 7, "prompt": 10, "max_new_tokens": 50, "tenant": 0, "class": 0,
                    "predicted": 5, "waiting": 1});
    event("RequestArrived", of)
}

fn admitted(waited: u64) -> Event {
    let of = json!({"slot": 0, "blocks": 1, "free": 9, "kept": 0, "peak": 0, "passed": 0,
                    "waited_micros": waited});
    event("SequenceAdmitted", of)
}

fn preempted(method: &str, lost: u32) -> Event {
    let of = json!({"victim": 7, "gainer": 1, "reason": "out_of_blocks", "method": method,
                    "lost": lost, "blocks": 1, "times": 1});
    event("SequencePreempted", of)
}

/// What is scraped once these have happened, each at its microsecond.
fn told(story: impl IntoIterator<Item = (u64, Event)>) -> BTreeMap<String, f64> {
    let setup = Setup::new(script(ids("x")));
    let mut tap = setup.server.telemetry.tap();
    let host = setup.start();
    for (seq, (micros, event)) in (0..).zip(story) {
        tap.push(&Stamped { seq, step: 0, micros, event });
    }
    scrape(&host)
}

/// One preempted request: every interval is known.
fn intervals() {
    let token = |position: u32| event("TokenSampled", json!({"position": position, "token": 300}));
    let finished = event(
        "SequenceFinished",
        json!({"request": 7, "reason": "stop", "prompt": 10, "generated": 3}),
    );
    let all = told([
        (1_000_000, arrived()),
        (3_000_000, admitted(2_000_000)),
        (4_000_000, token(10)),
        (4_500_000, preempted("recompute", 11)),
        (6_000_000, admitted(1_500_000)),
        (9_000_000, token(11)),
        (10_000_000, token(12)),
        (11_000_000, finished),
    ]);
    for (name, seconds, count) in [
        ("request_queue_time_seconds", 2.0, 1.0),
        ("time_to_first_token_seconds", 3.0, 1.0),
        ("request_prefill_time_seconds", 1.0, 1.0),
        ("request_decode_time_seconds", 6.0, 1.0),
        ("request_inference_time_seconds", 7.0, 1.0),
        ("inter_token_latency_seconds", 6.0, 2.0),
        ("request_time_per_output_token_seconds", 3.0, 1.0),
        ("e2e_request_latency_seconds", 10.0, 1.0),
    ] {
        let found = ["_sum", "_count"].map(|part| ours(&all, &format!("{name}{part}"), ""));
        assert_eq!(found, [seconds, count], "{name}");
    }
    assert_eq!(ours(&all, "num_preemptions_total", ",reason=\"out_of_blocks\""), 1.0);
    assert_eq!(ours(&all, "recomputed_tokens_total", ""), 11.0);
    assert_eq!(ours(&all, "time_to_first_token_seconds_bucket", ",le=\"2.5\""), 0.0);
    assert_eq!(ours(&all, "time_to_first_token_seconds_bucket", ",le=\"5\""), 1.0);
}

/// Hits, evictions with idle time, copies, and what went to host memory and back.
fn cache() {
    let matched = |tokens: u32| event("PrefixMatched", json!({"blocks": [1], "tokens": tokens}));
    let swapped = |out: u32, back: u32| {
        let of = json!({"step": 1, "out": out, "back": back, "bytes": 4096, "micros": 500_000});
        event("BlocksSwapped", of)
    };
    let evicted = json!({"block": 3, "reason": "out_of_blocks", "idle_micros": 250_000});
    let all = told([
        (1, arrived()),
        (2, admitted(1)),
        // Two pieces; each tells how many there are so far.
        (2, matched(4)),
        (2, matched(6)),
        (3, event("BlockEvicted", evicted)),
        (3, event("BlockCopied", json!({"from": 1, "to": 2, "tokens": 3}))),
        (4, preempted("swap", 0)),
        (4, swapped(2, 0)),
        (5, admitted(1)),
        // Its own work, found again: no hit of a prompt that was looked up.
        (5, matched(10)),
        (5, swapped(0, 2)),
        (6, event("RowDrafted", json!({"sequence": 0, "start": 12, "len": 4}))),
        (6, event("DraftsTried", json!({"sequence": 0, "drafted": 4, "right": 3}))),
    ]);
    for (name, more, value) in [
        ("prefix_cache_queries_total", "", 10.0),
        ("prefix_cache_hits_total", "", 6.0),
        ("kv_block_evictions_total", ",reason=\"out_of_blocks\"", 1.0),
        ("kv_block_idle_before_evict_seconds_sum", "", 0.25),
        ("kv_blocks_copied_total", "", 1.0),
        ("num_preemptions_by_method_total", ",method=\"swap\"", 1.0),
        ("kv_swap_blocks_total", ",direction=\"out\"", 2.0),
        ("kv_swap_bytes_total", ",direction=\"in\"", 4096.0),
        ("kv_swap_seconds_total", "", 1.0),
        ("spec_decode_num_drafts_total", "", 1.0),
        ("spec_decode_num_draft_tokens_total", "", 4.0),
        ("spec_decode_num_accepted_tokens_total", "", 3.0),
    ] {
        assert_eq!(ours(&all, name, more), value, "{name}");
    }
}

fn counts() {
    let mut setup = Setup::new(hashed());
    setup.limits = Limits { sequences_max: 1, ..setup.limits };
    let host = setup.start();
    let body = json!({"prompt": [300, 301, 302], "max_tokens": 5});
    host.ok(TEXT, &body);
    host.ok(TEXT, &json!({"prompt": [[300], [301, 302]], "max_tokens": 2}));
    host.refused(TEXT, &json!({"prompt": "x", "top_p": 7}));
    host.get("/no/such/route");
    let all = scrape(&host);
    assert_eq!(ours(&all, "prompt_tokens_total", ""), 6.0);
    assert_eq!(ours(&all, "generation_tokens_total", ""), 9.0);
    assert_eq!(ours(&all, "request_success_total", ",finished_reason=\"length\""), 3.0);
    assert_eq!(ours(&all, "request_params_max_tokens_sum", ""), 9.0);
    assert_eq!(ours(&all, "request_params_n_count", ""), 2.0);
    let http = |route: &str, status: u16| {
        ours(&all, "http_requests_total", &format!(",route=\"{route}\",status=\"{status}\""))
    };
    assert_eq!(http(TEXT, 200), 2.0);
    assert_eq!((http(TEXT, 400), http("other", 404)), (1.0, 1.0));
    let blocks = |of: &str| ours(&all, &format!("kv_blocks_{of}"), "");
    assert_eq!((blocks("used"), blocks("shared")), (0.0, 0.0));
    assert_eq!(blocks("cached") + blocks("free"), blocks("total"));

    // One runs, two wait: one for the slot, one behind it.
    host.knobs.pass(0);
    let open: Vec<_> = (0..3)
        .map(|_| {
            let prompt = vec![300; 20];
            let more = tilewright::engine::GenerateRequest::default();
            host.engine.submit(tilewright::engine::GenerateRequest { prompt, ..more }).unwrap()
        })
        .collect();
    host.knobs.until_held();
    // Who came while steps were in the air is heard when those have landed.
    host.knobs.pass(u64::from(steps_in_flight()));
    host.knobs.until_held();
    let all = scrape(&host);
    assert_eq!(
        (ours(&all, "num_requests_running", ""), ours(&all, "num_requests_waiting", "")),
        (1.0, 2.0)
    );
    let waiting = |reason: &str| {
        ours(&all, "num_requests_waiting_by_reason", &format!(",reason=\"{reason}\""))
    };
    assert_eq!((waiting("slots"), waiting("behind_others"), waiting("blocks")), (1.0, 1.0, 0.0));
    assert_eq!(ours(&all, "kv_blocks_used", ""), 2.0);
    assert_eq!(ours(&all, "kv_cache_usage_perc", ""), 2.0 / 512.0);
    drop(open);
    host.knobs.pass(u64::MAX);
}

/// Every metric that the dashboard asks for is one that the server has.
fn dashboard() {
    let host = Host::says("Hello.");
    host.ok(TEXT, &json!({"prompt": "x"}));
    let all = scrape(&host);
    let known: BTreeSet<&str> = all.keys().map(|name| name.split('{').next().unwrap()).collect();
    let text = std::fs::read_to_string(root().join("assets/grafana.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let mut asked = BTreeSet::new();
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let names = expression.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            asked.extend(names.filter(|name| name.contains(':')).map(str::to_string));
        }
    }
    assert!(asked.len() > 15);
    for name in &asked {
        assert!(known.contains(name.as_str()), "the dashboard asks for {name}");
    }
}

/// Reads events of an open feed until `enough`.
struct Watcher {
    body: Body,
    text: String,
    picture: Option<Picture>,
    snapshots: usize,
    tokens: Vec<u32>,
    hashes: Vec<HashList>,
}

impl Watcher {
    async fn open(host: &Host) -> Self {
        let request = Request::get("/v1/engine/events").body(Body::empty()).unwrap();
        let response = host.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let body = response.into_body();
        let (tokens, hashes) = (Vec::new(), Vec::new());
        Self { body, text: String::new(), picture: None, snapshots: 0, tokens, hashes }
    }

    async fn until(&mut self, enough: impl Fn(&Picture) -> bool) {
        while !self.picture.as_ref().is_some_and(&enough) {
            let frame = self.body.frame().await.unwrap().unwrap();
            self.text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = event.to_string();
                self.text = rest.to_string();
                self.take(&event);
            }
        }
    }

    fn take(&mut self, event: &str) {
        if let Some(data) = event.strip_prefix("event: snapshot\ndata: ") {
            self.picture = Some(serde_json::from_str(data).unwrap());
            self.snapshots += 1;
        } else if let Some(data) = event.strip_prefix("data: ") {
            let stamped: Stamped = serde_json::from_str(data).unwrap();
            let picture = self.picture.as_mut().expect("a snapshot comes first");
            assert_eq!(stamped.seq, picture.seq, "nothing is lost or told twice");
            match stamped.event {
                Event::TokenSampled { token, .. } => self.tokens.push(token),
                Event::BlocksHashed { hashes, .. } => self.hashes.push(hashes),
                _ => {}
            }
            fold(picture, &stamped);
        } else {
            assert!(event.starts_with(':'), "{event}");
        }
    }
}

fn events() {
    let host = Host::says("The capital of France is Paris.");
    // Long enough to fill blocks.
    let ask = |n: u32| json!({"prompt": format!("{n} {}", "x ".repeat(40)), "max_tokens": 5});
    host.ok(TEXT, &ask(0));
    host.runtime.block_on(async {
        let mut watcher = Watcher::open(&host).await;
        watcher.until(|picture| picture.counters.arrived == 1).await;
        assert_eq!(watcher.picture.as_ref().unwrap().counters.sampled_tokens, 5);
        for n in 1..4 {
            let body = Body::from(ask(n).to_string());
            let request = Request::post(TEXT).header("content-type", "application/json").body(body);
            super::host::ask(host.router.clone(), request.unwrap()).await;
        }
        let done = |picture: &Picture| picture.counters.finished.values().sum::<u64>() == 4;
        watcher.until(done).await;
        assert_eq!(watcher.snapshots, 1);
        // Ids could be turned back into text, so they are withheld.
        assert_eq!(watcher.tokens, [u32::MAX; 15]);
        // And so are hashes: whoever guesses a text could see that the guess is right.
        let hashes = &watcher.hashes;
        assert!(!hashes.is_empty() && hashes.iter().all(|of| of.as_slice().is_empty()));
        let state = host
            .router
            .clone()
            .oneshot(Request::get("/v1/engine/state").body(Body::empty()).unwrap());
        let bytes = state.await.unwrap().into_body().collect().await.unwrap().to_bytes();
        let state: Picture = serde_json::from_slice(&bytes).unwrap();
        assert!(state.blocks.iter().any(|b| b.cached));
        assert!(state.blocks.iter().all(|b| b.hash.is_none()));
        assert_eq!(Some(state), watcher.picture);
    });
}

/// A watcher that does not read while more happens than is kept.
fn slow_watcher() {
    let mut setup = Setup::new(hashed());
    setup.output_buffer = 1 << 16;
    let host = setup.start();
    host.runtime.block_on(async {
        let mut watcher = Watcher::open(&host).await;
        watcher.until(|picture| picture.counters.arrived == 0).await;
        let many = json!({"prompt": vec![[300]; 8], "max_tokens": 400}).to_string();
        let request =
            Request::post(TEXT).header("content-type", "application/json").body(Body::from(many));
        super::host::ask(host.router.clone(), request.unwrap()).await;
        watcher.until(|picture| picture.counters.finished.values().sum::<u64>() == 8).await;
        assert!(watcher.snapshots >= 2, "{}", watcher.snapshots);
    });
}

fn slots_and_props() {
    let mut setup = Setup::new(hashed());
    setup.limits = Limits { sequences_max: 3, ..setup.limits };
    let host = setup.start();
    host.knobs.pass(0);
    let prompt = vec![300; 40];
    let more = tilewright::engine::GenerateRequest::default();
    let open = host.engine.submit(tilewright::engine::GenerateRequest {
        prompt,
        max_tokens: Some(9),
        ..more
    });
    host.knobs.until_held();
    host.knobs.pass(1);
    host.knobs.until_held();
    let slots = host.get("/slots").json();
    assert_eq!(slots.as_array().unwrap().len(), 3);
    let busy = &slots[0];
    let expected = [
        ("id", json!(0)),
        ("is_processing", json!(true)),
        ("n_prompt_tokens", json!(40)),
        ("n_prompt_tokens_processed", json!(40)),
        ("n_decoded", json!(1)),
        ("n_predict", json!(9)),
        ("kv_blocks", json!(3)),
    ];
    for (name, value) in expected {
        assert_eq!(busy[name], value, "{name} of {busy}");
    }
    assert_eq!(
        slots[1],
        json!({"id": 1, "is_processing": false, "n_ctx": host.engine.sequence_tokens_max()})
    );
    drop(open);
    host.knobs.pass(u64::MAX);
    let props = host.get("/props").json();
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(3), &json!("fable")));
    assert_eq!((&props["tuned_products"], &props["invariance"]), (&json!(0), &json!("on")));
    assert!(props["chat_template"].as_str().unwrap().contains("messages"));
    assert_eq!(props["default_generation_settings"]["n_ctx"], host.engine.sequence_tokens_max());
}

fn logs_hold_no_secrets() {
    let mut setup = Setup::new(script(ids("Hello.")));
    setup.server.api_keys = vec!["sesame-open".to_string()];
    let host = setup.start();
    let lines = logged(|| {
        for key in ["sesame-open", "sesame-wrong"] {
            let messages = json!([{"role": "user", "content": "sesame-private"}]);
            let body = json!({"messages": messages, "sesame_field": "sesame-value"});
            for path in
                [CHAT, "/v1/completions?key=sesame-query", "/sesame-path", "/v1/models/sesame-name"]
            {
                let request = Request::post(path)
                    .header("authorization", format!("Bearer {key}"))
                    .header("content-type", "application/json")
                    .header("x-request-id", "trace-me");
                host.send(request.body(Body::from(body.to_string())).unwrap());
            }
        }
    });
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let http: Vec<_> = lines.iter().filter(|line| line["target"] == "http").collect();
    assert_eq!(http.len(), 8);
    assert!(http.iter().all(|line| line["fields"]["request_id"] == "trace-me"));
    assert_eq!(http[0]["fields"]["status"], 200);
    assert_eq!(http[4]["fields"]["status"], 401);
    let told = lines.iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("sesame_field"), "names of unknown fields are told");
    for secret in [
        "sesame-open",
        "sesame-wrong",
        "sesame-private",
        "sesame-value",
        "sesame-query",
        "sesame-path",
    ] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
}
