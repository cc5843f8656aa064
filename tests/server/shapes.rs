//! What answers look like, whole and streamed.

use super::host::{CHAT, Host, Reply, Setup, TEXT, refused};
use crate::engine::fake::{END, ids, script};
use crate::support::Rows;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

pub fn rows(rows: &mut Rows) {
    rows.add("server::chat_answer_has_the_api_shape", chat_answer);
    rows.add("server::completion_answer_has_the_api_shape", completion_answer);
    rows.add("server::chat_stream_is_exact", chat_stream_is_exact);
    rows.add("server::completion_stream_is_exact", completion_stream_is_exact);
    rows.add("server::usage_chunk_only_when_asked", usage_chunk);
    rows.add("server::choices_have_their_index", choices);
    rows.add("server::engine_check_answers", engine_check);
    rows.add("server::streamed_equals_whole", streamed_equals_whole);
    rows.add("server::logprobs_shapes", logprobs_shapes);
    rows.add("server::token_ids_are_returned", token_ids);
    rows.add("server::fault_in_a_stream_is_a_frame", fault_in_a_stream);
    rows.add("server::models_list_and_one", models);
}

const SAYING: &str = "The capital of France is Paris.";

fn chat(more: Value) -> Value {
    let question = "What is the capital of France?";
    with(json!({"model": "fable", "messages": [{"role": "user", "content": question}]}), more)
}

pub fn with(mut body: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn chat_answer() {
    let answer = Host::says(SAYING).ok(CHAT, &chat(json!({})));
    let count = ids(SAYING).len() + 1;
    let id = answer["id"].as_str().unwrap();
    assert!(id.starts_with("chatcmpl-") && answer["created"].as_u64().unwrap() > 1_600_000_000);
    let expected = json!({
        "id": id,
        "object": "chat.completion",
        "created": answer["created"],
        "model": "fable",
        "system_fingerprint": answer["system_fingerprint"],
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": SAYING, "refusal": null},
            "logprobs": null,
            "finish_reason": "stop",
        }],
        // Fable's own template gives this question 15 tokens.
        "usage": {
            "prompt_tokens": 15,
            "completion_tokens": count,
            "total_tokens": 15 + count,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    });
    assert_eq!(answer, expected);
}

fn completion_answer() {
    let answer = Host::says(SAYING).ok(TEXT, &json!({"prompt": "Once", "max_tokens": 3}));
    assert_eq!(answer["object"], "text_completion");
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    let choice = json!({
        "index": 0, "text": "The capital of", "logprobs": null, "finish_reason": "length"});
    assert_eq!(answer["choices"], json!([choice]));
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    assert_eq!(answer["usage"]["prompt_tokens"], ids("Once").len());
}

fn chat_stream_is_exact() {
    let host = Host::says("Paris.");
    let frames = host.stream(CHAT, &chat(json!({"stream": true})));
    let head = &frames[0];
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": head["id"], "object": "chat.completion.chunk", "created": head["created"],
            "model": "fable", "system_fingerprint": head["system_fingerprint"],
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        })
    };
    let mut expected = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let pieces = ids("Paris.").into_iter().map(|id| super::host_text(&[id]));
    expected.extend(pieces.map(|piece| chunk(json!({"content": piece}), Value::Null)));
    expected.push(chunk(json!({}), json!("stop")));
    assert_eq!(frames, expected);
    // Another answer has another name.
    assert_ne!(host.stream(CHAT, &chat(json!({"stream": true})))[0]["id"], head["id"]);
}

fn completion_stream_is_exact() {
    let host = Host::says("a b");
    let frames = host.stream(TEXT, &json!({"prompt": "x", "stream": true}));
    let texts: Vec<_> = frames.iter().map(|f| f["choices"][0]["text"].clone()).collect();
    assert_eq!(texts, ["a", " b", ""]);
    let reasons: Vec<_> = frames.iter().map(|f| f["choices"][0]["finish_reason"].clone()).collect();
    assert_eq!(reasons, [Value::Null, Value::Null, json!("stop")]);
    for frame in &frames {
        assert_eq!(frame["object"], "text_completion");
        assert_eq!((&frame["id"], &frame["created"]), (&frames[0]["id"], &frames[0]["created"]));
    }
}

/// Case 30.
/// The prompt counts once, the answers each; a stream has one end.
fn choices() {
    let host = Host::says(SAYING);
    let count = ids(SAYING).len() as u64 + 1;
    for (path, body) in [(CHAT, chat(json!({}))), (TEXT, json!({"prompt": "x", "max_tokens": 50}))]
    {
        let one = host.ok(path, &body)["usage"]["prompt_tokens"].clone();
        let three = json!({"n": 3, "best_of": 3});
        let answer = host.ok(path, &with(body.clone(), three.clone()));
        let choices = answer["choices"].as_array().unwrap();
        let indices: Vec<_> = choices.iter().map(|c| c["index"].as_u64().unwrap()).collect();
        assert_eq!(indices, [0, 1, 2]);
        assert!(choices.iter().all(|c| c["finish_reason"] == "stop"));
        assert_eq!(answer["usage"]["prompt_tokens"], one);
        assert_eq!(answer["usage"]["completion_tokens"], 3 * count);
        let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
        let frames = host.stream(path, &with(with(body, three), stream));
        let (last, rest) = frames.split_last().unwrap();
        assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &answer["usage"]));
        for choice in choices {
            let own = rest.iter().map(|f| &f["choices"][0]);
            let own: Vec<_> = own.filter(|c| c["index"] == choice["index"]).collect();
            let text = |c: &&Value| {
                let content = c["delta"]["content"].as_str().or(c["text"].as_str());
                content.unwrap_or_default().to_string()
            };
            let whole = choice["message"]["content"].as_str().or(choice["text"].as_str());
            assert_eq!(own.iter().map(text).collect::<String>(), whole.unwrap());
            let ends = own.iter().filter(|c| c["finish_reason"] == "stop").count();
            assert_eq!(ends, 1);
        }
    }
    // One more prompt of two tokens: the sum is over prompts, not over choices.
    let body = json!({"prompt": [[300, 301], [302]], "n": 2, "max_tokens": 1});
    let usage = host.ok(TEXT, &body)["usage"].clone();
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(3), &json!(4)));
}

fn engine_check() {
    let host = Host::says(SAYING);
    host.ok(CHAT, &chat(json!({})));
    let reply = host.get("/v1/engine/check").json();
    assert_eq!((&reply["ok"], &reply["fault"]), (&json!(true), &Value::Null), "{reply}");
    assert_eq!(reply["kv_blocks"]["used"], 0);
}

fn usage_chunk() {
    let host = Host::says(SAYING);
    let whole = host.ok(CHAT, &chat(json!({})))["usage"].clone();
    for (path, body) in [(CHAT, chat(json!({}))), (TEXT, json!({"prompt": "x"}))] {
        for options in [
            json!(null),
            json!({"include_usage": false}),
            json!({}),
            json!({"include_usage": null}),
        ] {
            let body = with(body.clone(), json!({"stream": true, "stream_options": options}));
            for frame in host.stream(path, &body) {
                assert_eq!(frame["choices"].as_array().unwrap().len(), 1, "{options}");
                assert!(frame.get("usage").is_none());
            }
        }
        let options = json!({"stream": true, "stream_options": {"include_usage": true}});
        let frames = host.stream(path, &with(body.clone(), options));
        let (last, rest) = frames.split_last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], whole["completion_tokens"]);
        if path == CHAT {
            assert_eq!(last["usage"], whole);
            assert_eq!(rest[0]["choices"][0]["delta"]["role"], "assistant");
        }
        for frame in rest {
            assert_eq!(frame.get("usage"), Some(&Value::Null));
            assert_eq!(frame["choices"].as_array().unwrap().len(), 1);
            for key in ["id", "created", "model"] {
                assert_eq!(frame[key], last[key]);
            }
        }
        assert_eq!(rest.last().unwrap()["choices"][0]["finish_reason"], "stop");
        for stream in [json!(false), json!(null)] {
            let options = json!({"stream": stream, "stream_options": {"include_usage": true}});
            let refused = host.refused(path, &with(body.clone(), options));
            assert_eq!((refused.status, refused.param.as_str()), (400, "stream_options"));
        }
    }
}

/// Every combination of stop strings, logprobs, limits and ids, on both routes.
fn streamed_equals_whole() {
    let host = Host::says("alpha beta 😀 gamma delta");
    let stops = [json!(null), json!("gamma d"), json!(["ta 😀", "zz"]), json!("delta epsilon")];
    for stop in stops {
        for max in [json!(null), json!(1), json!(4), json!(7), json!(9)] {
            for logprobs in [false, true] {
                for ids in [false, true] {
                    let more = json!({"stop": stop, "max_tokens": max, "return_token_ids": ids});
                    let on = if logprobs {
                        json!({"logprobs": true, "top_logprobs": 2})
                    } else {
                        json!({})
                    };
                    compare(&host, CHAT, with(chat(more.clone()), on));
                    let on = if logprobs { json!({"logprobs": 2}) } else { json!({}) };
                    compare(&host, TEXT, with(with(json!({"prompt": "x"}), more), on));
                }
            }
        }
    }
}

fn compare(host: &Host, path: &str, body: Value) {
    let frames = host.stream(path, &as_stream(body.clone()));
    same(path, &body, &host.ok(path, &body), &frames);
}

/// The request `body`, streamed, with its usage.
pub fn as_stream(body: Value) -> Value {
    with(body, json!({"stream": true, "stream_options": {"include_usage": true}}))
}

/// The frames of a streamed answer to `body` hold what the `whole` one does.
pub fn same(path: &str, body: &Value, whole: &Value, frames: &[Value]) {
    let (mut text, mut ids, mut logprobs) = (String::new(), Vec::new(), Vec::new());
    let (mut reason, mut usage) = (Value::Null, Value::Null);
    for frame in frames {
        let choice = &frame["choices"][0];
        let piece = if path == CHAT { &choice["delta"]["content"] } else { &choice["text"] };
        text.push_str(piece.as_str().unwrap_or(""));
        ids.extend(choice["token_ids"].as_array().cloned().unwrap_or_default());
        let list = if path == CHAT { "content" } else { "token_logprobs" };
        logprobs.extend(choice["logprobs"][list].as_array().cloned().unwrap_or_default());
        if !choice["finish_reason"].is_null() {
            reason = choice["finish_reason"].clone();
            assert!(piece.as_str().unwrap_or("").is_empty(), "a finish reason comes alone");
        }
        usage = frame["usage"].clone();
    }
    let choice = &whole["choices"][0];
    let whole_text = if path == CHAT { &choice["message"]["content"] } else { &choice["text"] };
    assert_eq!(whole_text.as_str(), Some(text.as_str()), "{body}");
    assert_eq!((&choice["finish_reason"], &whole["usage"]), (&reason, &usage), "{body}");
    if body["return_token_ids"] == true {
        assert_eq!(choice["token_ids"], Value::Array(ids), "{body}");
    }
    let list = if path == CHAT { "content" } else { "token_logprobs" };
    let expected = choice["logprobs"][list].as_array().cloned().unwrap_or_default();
    assert_eq!(expected, logprobs, "{body}");
}

fn logprobs_shapes() {
    let host = Host::says("a b");
    let answer = host.ok(CHAT, &chat(json!({"logprobs": true, "top_logprobs": 3})));
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 2, "the end token is no content");
    assert_eq!(content[1]["token"], " b");
    assert_eq!(content[1]["bytes"], json!([32, 98]));
    assert_eq!(content[1]["top_logprobs"].as_array().unwrap().len(), 3);
    assert_eq!(content[1]["logprob"], content[1]["top_logprobs"][0]["logprob"]);
    let answer = host.ok(CHAT, &chat(json!({"logprobs": true})));
    assert_eq!(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"], json!([]));

    let answer = host.ok(TEXT, &json!({"prompt": "x", "logprobs": 2}));
    let logprobs = &answer["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["a", " b"]));
    assert_eq!(logprobs["token_logprobs"], json!([-0.5, -0.5]));
    assert_eq!(logprobs["text_offset"], json!([0, 1]));
    assert_eq!(logprobs["top_logprobs"][1].as_object().unwrap().len(), 2);
    // Clients compare the two for equality.
    assert_eq!(logprobs["top_logprobs"][1][" b"], logprobs["token_logprobs"][1]);

    for (path, body, param) in [
        (CHAT, chat(json!({"top_logprobs": 2})), "top_logprobs"),
        (CHAT, chat(json!({"logprobs": false, "top_logprobs": 2})), "top_logprobs"),
        (CHAT, chat(json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs"),
        (CHAT, chat(json!({"logprobs": 2})), "logprobs"),
        (TEXT, json!({"prompt": "x", "logprobs": 6}), "logprobs"),
        (TEXT, json!({"prompt": "x", "logprobs": true}), "logprobs"),
    ] {
        let refused = host.refused(path, &body);
        assert_eq!((refused.status, refused.param.as_str()), (400, param), "{body}");
    }
}

fn token_ids() {
    let host = Host::says("a b");
    let prompt = ids("one two three");
    let answer = [ids("a b"), vec![END]].concat();
    let whole = host.ok(TEXT, &json!({"prompt": prompt, "return_token_ids": true}));
    assert_eq!(whole["choices"][0]["token_ids"], json!(answer));
    assert_eq!(whole["choices"][0]["prompt_token_ids"], json!(prompt));
    let whole = host.ok(CHAT, &chat(json!({"return_token_ids": true})));
    assert_eq!(whole["choices"][0]["token_ids"], json!(answer));
    assert_eq!(whole["prompt_token_ids"].as_array().unwrap().len(), 15);
    let silent = host.ok(TEXT, &json!({"prompt": prompt, "return_token_ids": false}));
    assert!(silent["choices"][0].get("token_ids").is_none());
}

fn last_error(reply: &Reply) -> super::host::Refused {
    let (frames, done) = reply.frames();
    assert!(!done, "a failed stream has no [DONE]");
    let (last, rest) = frames.split_last().unwrap();
    for frame in rest {
        assert!(frame.get("error").is_none());
        assert_eq!(frame["choices"][0]["finish_reason"], Value::Null, "no feigned end");
    }
    refused(500, last)
}

/// Case 32: after three deltas the device is lost, or the numbers go bad.
fn fault_in_a_stream() {
    // A token of the answer that is in no prompt; the logits that follow it are bad.
    let bad = ids(" Paris")[0];
    let answer = [ids("one two"), vec![bad], ids(" three four")].concat();
    let host = Setup::new(script(answer)).start();
    host.knobs.poison.store(u64::from(bad), Ordering::SeqCst);
    let reply = host.post(CHAT, &chat(json!({"stream": true})));
    assert_eq!(reply.frames().0.len(), 1 + ids("one two").len() + 1 + 1);
    assert_eq!(last_error(&reply).code, "non_finite_logits");
    host.knobs.poison.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(host.post(CHAT, &chat(json!({}))).status, 200, "the next request is served");

    let next = host.engine.status().steps;
    host.knobs.lost_at.store(next + 4, Ordering::SeqCst);
    let reply = host.post(CHAT, &chat(json!({"stream": true})));
    assert_eq!(reply.frames().0.len(), 1 + 3 + 1);
    assert_eq!(last_error(&reply).code, "engine_failed");
    for path in ["/health", "/v1/models"] {
        let refused = host.get(path).refused();
        assert_eq!((refused.status, refused.code.as_str()), (503, "engine_failed"), "{path}");
    }
    assert_eq!(host.refused(CHAT, &chat(json!({}))).status, 503);

    // A whole answer that fails is an error and no answer.
    let host = Setup::new(script(vec![bad])).start();
    host.knobs.poison.store(u64::from(bad), Ordering::SeqCst);
    let refused = host.refused(CHAT, &chat(json!({})));
    assert_eq!((refused.status, refused.code.as_str()), (500, "non_finite_logits"));
}

fn models() {
    let host = Host::says("x");
    let list = host.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    let one = host.get("/v1/models/fable").json();
    assert_eq!(list["data"], json!([one]));
    assert_eq!((&one["id"], &one["object"]), (&json!("fable"), &json!("model")));
    for path in ["/v1/models/gpt-4", "/v1/models/org/name"] {
        let refused = host.get(path).refused();
        assert_eq!((refused.status, refused.code.as_str()), (404, "model_not_found"));
    }
    let refused = host.refused(CHAT, &chat(json!({"model": "gpt-4"})));
    assert_eq!((refused.status, refused.code.as_str()), (404, "model_not_found"));
    assert_eq!(host.post(CHAT, &chat(json!({"model": null}))).status, 200);
}
