//! Tools: what models call, how answers and streams tell of it, and what templates are given.

use super::host::{CHAT, Host, Setup};
use super::shapes::with;
use crate::engine::fake::{card, hashed, ids, script};
use crate::support::Rows;
use serde_json::{Value, json};
use tilewright::engine::ModelCard;
use tilewright::server::ServerConfig;
use tilewright::text::CallStyle;

pub fn rows(rows: &mut Rows) {
    rows.add("server::tool_calls_whole_and_streamed", whole_and_streamed);
    rows.add("server::forced_calls_are_valid", forced);
    rows.add("server::tool_styles", styles);
    rows.add("server::a_form_beside_tools_is_content", forms);
    rows.add("server::bad_tools_are_refused", refused);
    rows.add("server::tools_reach_the_template", templates);
    rows.add("server::thoughts_are_reasoning_content", thoughts);
}

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "get_weather", "description": "The weather.",
            "parameters": {"type": "object", "properties": {
                "city": {"type": "string", "maxLength": 12},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            }, "required": ["city", "days"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "now"}},
    ])
}

fn chat(more: Value) -> Value {
    let ask = json!([{"role": "user", "content": "What is the weather in Rome?"}]);
    with(json!({"messages": ask, "tools": tools(), "max_tokens": 300}), more)
}

const TWO: &str = "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": \
                   {\"city\": \"Rome\", \"days\": 2}}\n</tool_call>\n<tool_call>\n\
                   {\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

fn whole_and_streamed() {
    let host = Host::says(TWO);
    let answer = host.ok(CHAT, &chat(json!({})));
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "I look.");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    let call = |at: usize, name: &str, arguments: &str| {
        json!({"id": calls[at]["id"], "type": "function",
            "function": {"name": name, "arguments": arguments}})
    };
    assert_eq!(calls[0], call(0, "get_weather", "{\"city\": \"Rome\", \"days\": 2}"));
    assert_eq!(calls[1], call(1, "now", "{}"));
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));

    let frames = host.stream(CHAT, &chat(json!({"stream": true})));
    let mut arguments = [String::new(), String::new()];
    let mut seen = Vec::new();
    for frame in &frames {
        let delta = &frame["choices"][0]["delta"];
        let Some(call) = delta["tool_calls"].get(0) else { continue };
        assert_eq!(delta.as_object().unwrap().len(), 1, "calls come alone: {delta}");
        let index = call["index"].as_u64().unwrap() as usize;
        if index == seen.len() {
            // The first stage: everything but the arguments.
            seen.push(call["function"]["name"].as_str().unwrap().to_string());
            assert_eq!(call["function"]["arguments"], "");
            assert_eq!(call["type"], "function");
            assert!(call["id"].is_string());
        } else {
            // The second: fragments of them, and nothing else.
            assert_eq!(index + 1, seen.len());
            let keys: Vec<_> = call.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["index", "function"]);
            assert_eq!(call["function"].as_object().unwrap().len(), 1);
            arguments[index] += call["function"]["arguments"].as_str().unwrap();
        }
    }
    assert_eq!(seen, ["get_weather", "now"]);
    assert_eq!(arguments, ["{\"city\": \"Rome\", \"days\": 2}", "{}"]);
    assert_eq!(frames.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

    // With tool_choice none, and without tools, nothing is told apart.
    for more in [json!({"tool_choice": "none"}), json!({"tools": []}), json!({"tools": null})] {
        let answer = host.ok(CHAT, &chat(more));
        assert_eq!(answer["choices"][0]["message"]["content"], TWO);
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
    // One call only, where that is asked for.
    let one = host.ok(CHAT, &chat(json!({"parallel_tool_calls": false})));
    assert_eq!(one["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
}

/// A model that knows nothing of tools calls them rightly when it must.
fn forced() {
    let host = Setup::new(hashed()).start();
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    for (choice, reason) in [(json!("required"), "tool_calls"), (named, "stop")] {
        let body = chat(json!({"tool_choice": choice, "parallel_tool_calls": false, "n": 4}));
        let answer = host.ok(CHAT, &body);
        for choice in answer["choices"].as_array().unwrap() {
            assert_eq!(choice["finish_reason"], reason, "{choice}");
            assert_eq!(choice["message"]["content"], Value::Null);
            let call = &choice["message"]["tool_calls"][0]["function"];
            let arguments: Value =
                serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
            match call["name"].as_str().unwrap() {
                "get_weather" => {
                    assert!(arguments["city"].as_str().unwrap().chars().count() <= 12);
                    assert!((1..=7).contains(&arguments["days"].as_i64().unwrap()));
                }
                "now" if reason == "tool_calls" => assert_eq!(arguments, json!({})),
                other => panic!("{other}"),
            }
        }
    }
}

fn styles() {
    let weather = "{\"city\": \"Rome\", \"days\": 2}";
    for (style, says) in [
        (
            CallStyle::Hermes,
            format!(
                "<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {weather}}}\n</tool_call>"
            ),
        ),
        (CallStyle::Llama, format!("{{\"name\": \"get_weather\", \"parameters\": {weather}}}")),
        (
            CallStyle::Mistral,
            format!("[TOOL_CALLS][{{\"name\": \"get_weather\", \"arguments\": {weather}}}]"),
        ),
    ] {
        for choice in ["auto", "required"] {
            let server = ServerConfig { tool_style: Some(style), ..ServerConfig::default() };
            let host = Setup { server, ..Setup::new(script(ids(&says))) }.start();
            let body = chat(json!({"tool_choice": choice, "parallel_tool_calls": false}));
            let answer = host.ok(CHAT, &body);
            let message = &answer["choices"][0]["message"];
            let call = &message["tool_calls"][0];
            assert_eq!(call["function"]["name"], "get_weather", "{style:?} {choice}: {answer}");
            assert_eq!(call["function"]["arguments"], weather);
            assert_eq!(message["content"], Value::Null);
            if style == CallStyle::Mistral {
                assert_eq!(call["id"].as_str().unwrap().len(), 9);
            }
        }
        // Plain text stays possible under auto.
        let server = ServerConfig { tool_style: Some(style), ..ServerConfig::default() };
        let host = Setup { server, ..Setup::new(script(ids("It rains."))) }.start();
        let answer = host.ok(CHAT, &chat(json!({})));
        assert_eq!(answer["choices"][0]["message"]["content"], "It rains.", "{style:?}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
}

fn refused() {
    let host = Host::says("x");
    let tool = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    for (more, param) in [
        (json!({"tools": "f"}), "tools"),
        (json!({"tools": [3]}), "tools[0]"),
        (json!({"tools": [{"function": {"name": "f"}}]}), "tools[0].type"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
        (tool(json!({})), "tools[0].function.name"),
        (tool(json!({"name": "a b"})), "tools[0].function.name"),
        (tool(json!({"name": "f", "parameters": []})), "tools[0].function.parameters"),
        (tool(json!({"name": "f", "parameters": {"type": "nothing"}})), "tools"),
        (json!({"tool_choice": "all"}), "tool_choice"),
        (json!({"tool_choice": {"type": "function", "function": {"name": "g"}}}), "tool_choice"),
        (json!({"tools": null, "tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": "required", "stop": "x"}), "stop"),
        (json!({"functions": [{"name": "f"}]}), "functions"),
        (
            json!({"tool_choice": "required", "response_format": {"type": "json_object"}}),
            "response_format",
        ),
        (json!({"guided_json": {"type": "pet"}}), "guided_json"),
    ] {
        let error = host.refused(CHAT, &chat(more.clone()));
        assert_eq!((error.status, error.param.as_str()), (400, param), "{more}: {error:?}");
    }
}

/// An answer in the form asked for is no call, even if it has a name, and a tool's.
fn forms() {
    for name in ["Rome", "now"] {
        let says = format!("{{\"name\": \"{name}\", \"age\": 3}}");
        for style in CallStyle::ALL.map(|(_, style)| style) {
            let server = ServerConfig { tool_style: Some(style), ..ServerConfig::default() };
            let host = Setup { server, ..Setup::new(script(ids(&says))) }.start();
            let schema = json!({"type": "object", "required": ["name", "age"], "properties":
                {"name": {"type": "string"}, "age": {"type": "integer"}}});
            let answer = host.ok(CHAT, &chat(json!({"guided_json": schema})));
            let choice = &answer["choices"][0];
            assert_eq!(choice["message"]["content"], says, "{style:?}");
            assert_eq!(choice["finish_reason"], "stop", "{style:?}");
        }
    }
}

fn prompt(host: &Host, body: &Value) -> String {
    host.ok("/apply-template", body)["prompt"].as_str().unwrap().to_string()
}

/// A template that knows tools gets them; for one that does not they are spelled out.
fn templates() {
    let turns = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
            "function": {"name": "now", "arguments": "{\"zone\": \"UTC\"}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon <|im_end|>"},
    ]);
    let body = json!({"messages": turns, "tools": tools()});
    let host = Host::says("x");
    let text = prompt(&host, &body);
    for part in [
        "Be brief.\n\nYou can call",
        "\"name\":\"get_weather\"",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>",
        "user\n<tool_response>\nnoon",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    // In the style that answers are read in.
    for (style, call) in [
        (CallStyle::Llama, "{\"name\": \"now\", \"parameters\": {\"zone\": \"UTC\"}}"),
        (
            CallStyle::Mistral,
            "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}]",
        ),
    ] {
        let server = ServerConfig { tool_style: Some(style), ..ServerConfig::default() };
        let host = Setup { server, ..Setup::new(hashed()) }.start();
        let text = prompt(&host, &body);
        assert!(text.contains(call) && !text.contains("<tool_call>"), "{style:?}: {text}");
        let example = call.replace("now", "…").replace("{\"zone\": \"UTC\"}", "{…}");
        assert!(text.contains(&format!("in this form:\n{example}")), "{style:?}: {text}");
    }
    let source = "{% for t in tools %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}\
                  {{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}\
                  {{ c.function.arguments.zone }}{% endfor %};{% endfor %}{{ mood }}";
    let card = card();
    let template = Some(card.tokenizer.template(source).unwrap());
    let host = Setup { card: ModelCard { template, ..card }, ..Setup::new(hashed()) }.start();
    let with_mood = with(body, json!({"chat_template_kwargs": {"mood": "glad"}}));
    let text = prompt(&host, &with_mood);
    assert_eq!(
        text,
        "[get_weather][now]system:Be brief.;user:Hi;assistant:UTC;tool:noon <|im_end|>;glad"
    );
}

fn thoughts() {
    let card = card();
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think></think> #}";
    let template = Some(card.tokenizer.template(source).unwrap());
    let card = ModelCard { template, ..card };
    let says = "<think>\nRome is warm.\n</think>\n\nSunny.";
    let setup = || Setup {
        card: ModelCard {
            template: card.template.as_ref().map(|_| card.tokenizer.template(source).unwrap()),
            ..crate::engine::fake::card()
        },
        ..Setup::new(script(ids(says)))
    };
    let host = setup().start();
    let plain = chat(json!({"tools": null}));
    let message = host.ok(CHAT, &plain)["choices"][0]["message"].clone();
    assert_eq!(
        (&message["reasoning_content"], &message["content"]),
        (&json!("Rome is warm."), &json!("Sunny."))
    );
    let frames = host.stream(CHAT, &with(plain.clone(), json!({"stream": true})));
    let of = |key: &str| -> String {
        frames.iter().filter_map(|f| f["choices"][0]["delta"][key].as_str()).collect()
    };
    assert_eq!(
        (of("reasoning_content").as_str(), of("content").as_str()),
        ("Rome is warm.", "Sunny.")
    );
    // Switched off by the operator, and for models without thoughts: plain text.
    let server = ServerConfig { reasoning: false, ..ServerConfig::default() };
    let host = Setup { server, ..setup() }.start();
    assert_eq!(host.ok(CHAT, &plain)["choices"][0]["message"]["content"], says);
    assert_eq!(Host::says(says).ok(CHAT, &plain)["choices"][0]["message"]["content"], says);
}
