//! Completions: every form of prompt, the echo, and the scores of prompts.

use super::host::{Host, Setup, TEXT};
use super::shapes::with;
use crate::engine::fake::{END, ids, script};
use crate::support::Rows;
use serde_json::{Value, json};

pub fn rows(rows: &mut Rows) {
    rows.add("server::prompts_in_every_form", prompt_forms);
    rows.add("server::many_prompts_have_a_choice_each", many_prompts);
    rows.add("server::echo_repeats_the_prompt", echo);
    rows.add("server::echo_scores_the_prompt", echo_scores);
    rows.add("server::scoring_as_lm_eval_asks", lm_eval);
    rows.add("server::completions_default_to_16_tokens", default_length);
    rows.add("server::timings_when_asked", timings);
}

const SAYING: &str = " Paris.";

fn prompt_forms() {
    let host = Host::says(SAYING);
    let one = ids("Once upon");
    for prompt in [json!("Once upon"), json!(["Once upon"]), json!(one), json!([one])] {
        let answer = host.ok(TEXT, &json!({"prompt": prompt}));
        assert_eq!(answer["choices"].as_array().unwrap().len(), 1, "{prompt}");
        assert_eq!(answer["choices"][0]["text"], SAYING);
        assert_eq!(answer["usage"]["prompt_tokens"], one.len());
    }
    for prompt in [
        json!([1.5]),
        json!([-1]),
        json!([4294967296u64]),
        json!([99999]),
        json!(["a", 1]),
        json!([[1], "a"]),
        json!([[1], 2]),
        json!([[[1]]]),
        json!([null]),
        json!([]),
        json!([[]]),
        json!([""]),
        json!(""),
        json!({"a": 1}),
        json!(5),
        json!(["a", ""]),
        json!(vec!["a"; 129]),
    ] {
        let refused = host.refused(TEXT, &json!({"prompt": prompt}));
        assert_eq!((refused.status, refused.param.as_str()), (400, "prompt"), "{prompt}");
    }
    assert_eq!(host.engine.status().open, 0);
}

/// The answer depends on the prompt, so that a mixed-up choice shows.
fn telling() -> Host {
    let answer = |history: &[u32], prompt: usize| match history.len() - prompt {
        0..3 => 300 + (history[0] * 7 + (history.len() - prompt) as u32) % 1000,
        _ => END,
    };
    Setup::new(Box::new(answer)).start()
}

fn many_prompts() {
    let host = telling();
    let prompts = ["one", "two words", "three more words", "four"];
    let alone = |prompt: &str| {
        let answer = host.ok(TEXT, &json!({"prompt": prompt, "logprobs": 1}));
        (answer["choices"][0].clone(), answer["usage"].clone())
    };
    let alone: Vec<_> = prompts.iter().map(|p| alone(p)).collect();
    let many = json!({"prompt": prompts, "logprobs": 1});
    let answer = host.ok(TEXT, &many);
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for (index, (choice, (expected, _))) in choices.iter().zip(&alone).enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(
            (&choice["text"], &choice["logprobs"]),
            (&expected["text"], &expected["logprobs"])
        );
    }
    let total: u64 = alone.iter().map(|a| a.1["total_tokens"].as_u64().unwrap()).sum();
    assert_eq!(answer["usage"]["total_tokens"], total);

    // Streamed: the same by index, each with its own finish, one count for all at the end.
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let frames = host.stream(TEXT, &with(many, options));
    let (last, frames) = frames.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &answer["usage"]));
    let mut texts = vec![String::new(); 4];
    let mut reasons = vec![0; 4];
    for frame in frames {
        let choice = &frame["choices"][0];
        let index = choice["index"].as_u64().unwrap() as usize;
        assert_eq!(reasons[index], 0, "nothing follows a choice's finish");
        texts[index] += choice["text"].as_str().unwrap();
        reasons[index] += usize::from(!choice["finish_reason"].is_null());
    }
    assert_eq!(reasons, [1; 4]);
    for (text, (expected, _)) in texts.iter().zip(&alone) {
        assert_eq!(expected["text"], *text);
    }
}

fn echo() {
    let host = Host::says(SAYING);
    let tokens = ids("The capital of France is");
    for prompt in [json!("The capital of France is"), json!(tokens)] {
        let body = json!({"prompt": prompt, "echo": true});
        let whole = host.ok(TEXT, &body);
        assert_eq!(whole["choices"][0]["text"], "The capital of France is Paris.");
        assert_eq!(whole["choices"][0]["logprobs"], Value::Null);
        let frames = host.stream(TEXT, &with(body.clone(), json!({"stream": true})));
        assert_eq!(frames[0]["choices"][0]["text"], "The capital of France is");
        let only = host.ok(TEXT, &with(body, json!({"max_tokens": 0})));
        let choice = &only["choices"][0];
        assert_eq!(
            (&choice["text"], &choice["finish_reason"]),
            (&json!("The capital of France is"), &json!("length"))
        );
        assert_eq!(only["usage"]["completion_tokens"], 0);
    }
    for max in [json!(0), json!(0.0)] {
        let refused = host.refused(TEXT, &json!({"prompt": "x", "max_tokens": max}));
        assert_eq!(refused.param, "max_tokens", "0 only with echo");
    }
    // A marker in a raw prompt is the author's own and comes back as it was written.
    let marked = "<|im_start|>user\nHi<|im_end|>";
    let answer = host.ok(TEXT, &json!({"prompt": marked, "echo": true, "max_tokens": 0}));
    assert_eq!(answer["choices"][0]["text"], marked);
}

fn echo_scores() {
    let host = Host::says(SAYING);
    let tokens = ids("The capital of France is");
    let count = tokens.len();
    let body = json!({"prompt": tokens, "echo": true, "logprobs": 2, "max_tokens": 2});
    let whole = host.ok(TEXT, &body);
    let list = &whole["choices"][0]["logprobs"];
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(list[name].as_array().unwrap().len(), count + 2, "{name}");
    }
    assert_eq!(
        (&list["token_logprobs"][0], &list["top_logprobs"][0]),
        (&Value::Null, &Value::Null)
    );
    let mut sum = 0.0;
    for (at, pair) in tokens.windows(2).enumerate() {
        sum += pair[0] as f32;
        let expected = f64::from(-sum / 1024.0 - pair[1] as f32);
        assert_eq!(list["token_logprobs"][at + 1], expected, "token {at}");
    }
    assert_eq!(list["tokens"][1], super::host_text(&tokens[1..2]));
    // Offsets point into the text that came back.
    let text = whole["choices"][0]["text"].as_str().unwrap();
    for (token, offset) in
        list["tokens"].as_array().unwrap().iter().zip(list["text_offset"].as_array().unwrap())
    {
        let offset = offset.as_u64().unwrap() as usize;
        assert!(text[offset..].starts_with(token.as_str().unwrap()), "{token} at {offset}");
    }
    // Streamed: the scores come with the prompt's text, in one piece before the answer.
    let frames = host.stream(TEXT, &with(body, json!({"stream": true, "return_token_ids": true})));
    let first = &frames[0]["choices"][0];
    assert_eq!(first["logprobs"]["tokens"].as_array().unwrap().len(), count);
    assert_eq!(first["prompt_token_ids"], json!(tokens));
    let streamed: Vec<_> = frames
        .iter()
        .filter_map(|f| f["choices"][0]["logprobs"]["token_logprobs"].as_array())
        .flatten()
        .collect();
    assert_eq!(streamed, list["token_logprobs"].as_array().unwrap().iter().collect::<Vec<_>>());
}

/// The request of the evaluation harness, and what it does with the answer: it adds up the
/// entries from the context's length to the last but one, an end token being the last.
fn lm_eval() {
    let host = Setup::new(script(vec![END])).start();
    let prompts = [ids("The capital of France is Paris"), ids("One two three")];
    let body = json!({
        "model": "fable", "prompt": prompts, "echo": true, "logprobs": 1, "max_tokens": 1,
        "temperature": 0, "seed": 1234,
    });
    let answer = host.ok(TEXT, &body);
    for (choice, prompt) in answer["choices"].as_array().unwrap().iter().zip(&prompts) {
        let list = &choice["logprobs"];
        let values = list["token_logprobs"].as_array().unwrap();
        assert_eq!(values.len(), prompt.len() + 1, "an entry for the end token, too");
        let scored = &values[1..values.len() - 1];
        assert!(scored.iter().all(Value::is_number));
        for (value, top) in scored.iter().zip(&list["top_logprobs"].as_array().unwrap()[1..]) {
            let best = top.as_object().unwrap().values().map(|v| v.as_f64().unwrap());
            // Greedy or not is told by equality.
            assert!(best.clone().any(|best| Some(best) == value.as_f64()));
        }
    }
}

fn default_length() {
    let host = Setup::new(crate::engine::fake::hashed()).start();
    let answer = host.ok(TEXT, &json!({"prompt": "x"}));
    assert_eq!(answer["usage"]["completion_tokens"], 16);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

/// llama-server's timings object, once, at the end.
fn timings() {
    let host = Host::says(SAYING);
    for name in ["timings", "timings_per_token"] {
        let body = json!({"prompt": "Once upon", name: true});
        let whole = host.ok(TEXT, &body);
        let timings = &whole["timings"];
        assert_eq!(timings["prompt_n"], whole["usage"]["prompt_tokens"]);
        assert_eq!(timings["predicted_n"], whole["usage"]["completion_tokens"]);
        for part in ["prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"] {
            assert!(timings[part].as_f64().is_some_and(|value| value >= 0.0), "{timings}");
        }
        // Where its time went, by the engine's own clock.
        let attribution = &timings["attribution"];
        for part in ["own_ms", "others_prefill_ms", "queue_ms", "preemption_ms", "unexplained_ms"] {
            assert!(attribution[part].as_f64().is_some_and(|value| value >= 0.0), "{timings}");
        }
        assert_eq!(attribution["delayed_by"], json!([]), "it was alone");
        for usage in [false, true] {
            let options = json!({"stream": true, "stream_options": {"include_usage": usage}});
            let frames = host.stream(TEXT, &with(body.clone(), options));
            let (last, rest) = frames.split_last().unwrap();
            assert_eq!(last["timings"]["predicted_n"], timings["predicted_n"]);
            assert!(rest.iter().all(|frame| frame.get("timings").is_none()));
        }
    }
    assert!(host.ok(TEXT, &json!({"prompt": "x"})).get("timings").is_none());
}
