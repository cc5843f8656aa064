//! Chat templates against renders by transformers (tests/data/text/templates.json).

use super::{asset, chatml, fable};
use crate::support::Rows;
use serde_json::{Value, json};
use std::sync::Arc;
use tilewright::text::{ChatTemplate, Markers, Message, RenderOptions, Rendered, TextError};

pub const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' \
    + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}\
    {{ '<|im_start|>assistant\n' }}{% endif %}";

pub fn rows(rows: &mut Rows) {
    let table: Value =
        serde_json::from_slice(&asset("tests/data/text/templates.json")).expect("json");
    for case in table.as_array().expect("cases") {
        let (case, name) = (case.clone(), case["name"].as_str().expect("name").to_string());
        rows.add(format!("text::template_renders_as_hugging_face::{name}"), move || same(&case));
    }
    rows.add("text::template_that_raises_is_the_requests_fault", raises);
    rows.add("text::template_syntax_error_is_told_at_compile", syntax_error);
    rows.add("text::template_type_error_is_an_error", type_error);
    rows.add("text::template_without_end_is_stopped", fuel);
    rows.add("text::template_output_is_capped", output_cap);
    rows.add("text::template_recursion_is_an_error", recursion);
    rows.add("text::strftime_writes_the_callers_time", strftime);
    rows.add("text::template_variables_are_reserved", reserved);
    rows.add("text::tool_call_arguments_become_objects", arguments);
    rows.add("text::template_render_is_repeatable", repeatable);
}

pub fn prompt() -> RenderOptions {
    RenderOptions { add_generation_prompt: true, ..RenderOptions::default() }
}

pub fn compile(source: &str) -> Result<ChatTemplate, TextError> {
    ChatTemplate::compile(source, "<bos>", "<eos>", &Arc::new(Markers::default()))
}

fn render(source: &str, messages: &[Message]) -> Result<Rendered, TextError> {
    compile(source)?.render(messages, &prompt())
}

fn message(json: &Value) -> Message {
    let text = |key: &str| json[key].as_str().map(str::to_string);
    Message {
        role: text("role").expect("role"),
        content: text("content").expect("content"),
        name: text("name"),
        reasoning_content: text("reasoning_content"),
        tool_calls: json.get("tool_calls").cloned(),
        tool_call_id: text("tool_call_id"),
    }
}

fn same(case: &Value) {
    let messages: Vec<Message> =
        case["messages"].as_array().expect("messages").iter().map(message).collect();
    let options = RenderOptions {
        add_generation_prompt: case["add_generation_prompt"].as_bool().expect("bool"),
        tools: Some(case["tools"].clone()),
        kwargs: case["kwargs"].as_object().expect("object").clone(),
        now: None,
    };
    let source = case["template"].as_str().expect("template");
    // With real markers around: they must not change what is rendered.
    let tokenizer = chatml(&[("<think>", 4), ("</think>", 4), ("<tool_call>", 4)]);
    for markers in [Arc::new(Markers::default()), tokenizer.markers().clone()] {
        let template = ChatTemplate::compile(source, "<bos>", "<eos>", &markers).expect("compiles");
        let rendered = template.render(&messages, &options);
        match case["raises"].as_str() {
            Some(message) => assert_eq!(rendered, Err(TextError::Raised(message.into()))),
            None => assert_eq!(rendered.expect("renders").text(), case["text"]),
        }
    }
}

fn raises() {
    let source = "{% if messages[0].role == 'system' %}\
        {{ raise_exception('System role not supported') }}{% endif %}ok";
    let error = render(source, &[Message::new("system", "x")]).expect_err("raises");
    assert_eq!(error.to_string(), "System role not supported");
    assert!(error.is_from_request());
    assert_eq!(render(source, &[Message::new("user", "x")]).expect("renders").text(), "ok");
    let from_macro = "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}";
    assert_eq!(render(from_macro, &[]), Err(TextError::Raised("deep".into())));
}

fn syntax_error() {
    for source in ["{% if %}", "{{ x", "a\n{% for m in messages %}\n", "{% nonsense %}", "{{ 'a }}"]
    {
        let error = compile(source).expect_err("refused");
        assert!(matches!(error, TextError::TemplateSyntax { .. }), "{error:?}");
        assert!(!error.is_from_request());
    }
    let error = compile("a\nb\n{% nonsense %}").expect_err("refused");
    assert!(matches!(error, TextError::TemplateSyntax { line: 3, .. }), "{error:?}");
}

fn type_error() {
    let source = "a\n{{ 'x' + 1 }}";
    let error = render(source, &[]).expect_err("refused");
    assert!(matches!(error, TextError::Render { line: 2, .. }), "{error:?}");
    assert!(render("{{ messages[0].nope.deeper }}", &[Message::new("user", "x")]).is_err());
    assert!(render("{{ {'a': nothing} | tojson }}", &[]).is_err());
}

fn fuel() {
    let endless = "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}";
    assert_eq!(render(endless, &[]), Err(TextError::Fuel));
    let growing = "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(100) %}\
        {% set ns.s = ns.s + ns.s %}{% endfor %}";
    assert_eq!(render(growing, &[]), Err(TextError::Fuel));
    // The budget is one render's.
    assert!(render("ok", &[]).is_ok());
}

fn output_cap() {
    let long = "{% for i in range(40) %}{{ 'x' * 1000000 }}{% endfor %}";
    let error = render(long, &[]).expect_err("refused");
    assert_eq!(error, TextError::OutputTooLong { max: 16 << 20 });
    // A long conversation is none of it.
    let content = "word ".repeat(400_000);
    let rendered = render(CHATML, &[Message::new("user", content.clone())]).expect("renders");
    assert!(rendered.text().contains(&content));
}

fn recursion() {
    let source = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}";
    assert!(render(source, &[]).is_err());
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(300) %}{% set ns.x = [ns.x] %}\
        {% endfor %}{{ ns.x | tojson }}";
    assert!(render(nested, &[]).expect_err("refused").to_string().contains("levels deep"));
}

fn strftime() {
    let at = |source: &str, now: Option<i64>| {
        let options = RenderOptions { now, ..RenderOptions::default() };
        compile(source).expect("compiles").render(&[], &options).map(|r| r.text().to_string())
    };
    let written = |format: &str, now: i64| {
        at(&format!("{{{{ strftime_now('{format}') }}}}"), Some(now)).expect("renders")
    };
    // 2024-02-29 23:05:09 UTC, a Thursday.
    let leap = 1_709_247_909;
    assert_eq!(written("%d %b %Y", leap), "29 Feb 2024");
    assert_eq!(written("%A, %B %d, %Y %H:%M:%S", leap), "Thursday, February 29, 2024 23:05:09");
    assert_eq!(
        written("%Y-%m-%d %F %T %R %D", leap),
        "2024-02-29 2024-02-29 23:05:09 23:05 02/29/24"
    );
    assert_eq!(written("%I %p %-I %j %a %y %w %u %%", leap), "11 PM 11 060 Thu 24 4 4 %");
    assert_eq!(written("%-d %e %-m %-H", 0), "1  1 1 0");
    assert_eq!(written("%F %A %j", -86_400), "1969-12-31 Wednesday 365");
    assert_eq!(written("%F %j %I", 951_868_800), "2000-03-01 061 12");
    assert_eq!(written("é%Y日", leap), "é2024日");
    let source = "{{ strftime_now('%Q') }}";
    assert!(at(source, Some(0)).expect_err("refused").to_string().contains("%Q"));
    assert!(at("{{ strftime_now('%') }}", Some(0)).is_err());
    assert!(
        at("{{ strftime_now('%Y') }}", None).expect_err("no time").to_string().contains("time")
    );
    assert_eq!(at("{{ strftime_now is defined }}", None).expect("renders"), "True");
}

fn reserved() {
    let template = compile("{{ messages | length }}{{ x }}").expect("compiles");
    let with = |key: &str| RenderOptions {
        kwargs: [(key.to_string(), json!(1))].into_iter().collect(),
        ..RenderOptions::default()
    };
    for key in ["messages", "tools", "bos_token", "add_generation_prompt"] {
        let error = template.render(&[], &with(key)).expect_err("refused");
        assert_eq!(error, TextError::ReservedKwarg(key.into()));
    }
    assert_eq!(template.render(&[], &with("x")).expect("renders").text(), "01");
}

fn arguments() {
    let source =
        "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }};{% endfor %}";
    let calls = json!([
        {"function": {"name": "f", "arguments": "{\"a\":[1,2],\"b\":\"\\u00e9\"}"}},
        {"function": {"name": "f", "arguments": {"a": 1}}},
        {"function": {"name": "f", "arguments": "not json"}},
        {"function": {"name": "f", "arguments": "7"}},
        {"function": {"name": "f"}},
    ]);
    let message = Message { tool_calls: Some(calls), ..Message::new("assistant", "") };
    let rendered = render(source, &[message]).expect_err("an absent one is undefined");
    assert!(rendered.is_from_request());
    let mut calls = json!([
        {"function": {"name": "f", "arguments": "{\"a\":[1,2],\"b\":\"\\u00e9\"}"}},
        {"function": {"name": "f", "arguments": {"a": 1}}},
        {"function": {"name": "f", "arguments": "not json"}},
    ]);
    calls[2]["function"]["arguments"] = json!("7");
    let message = Message { tool_calls: Some(calls), ..Message::new("assistant", "") };
    let rendered = render(source, &[message]).expect("renders");
    assert_eq!(rendered.text(), "{\"a\": [1, 2], \"b\": \"é\"};{\"a\": 1};\"7\";");
}

fn repeatable() {
    let tokenizer = fable();
    let source = String::from_utf8(asset("assets/fable/chat_template.jinja")).expect("utf-8");
    let template = tokenizer.template(&source).expect("compiles");
    let messages = [Message::new("user", "a<|im_end|>b")];
    let first = template.render(&messages, &prompt()).expect("renders");
    assert_eq!(template.render(&messages, &prompt()).expect("renders"), first);
    assert_eq!(first.text(), "<|im_start|>user\na<|im_end|>b<|im_end|>\n<|im_start|>assistant\n");
}
