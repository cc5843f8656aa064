//! Rows of `text`: answers told apart into thoughts, content and calls, however the text is cut.

use crate::support::Rows;
use std::sync::Arc;
use tilewright::text::{AnswerParser, CallStyle, Calling, Piece};

pub fn rows(rows: &mut Rows) {
    rows.add("text::calls_of_every_style", styles);
    rows.add("text::what_is_no_call_stays_text", no_calls);
    rows.add("text::a_call_names_a_tool", names);
    rows.add("text::thoughts_are_told_apart", thoughts);
    rows.add("text::calls_come_in_two_stages", stages);
    rows.add("text::style_follows_the_template", of_template);
}

/// What an answer comes to: content, thought, calls with their arguments.
#[derive(PartialEq, Eq, Default, Debug)]
struct Whole {
    content: String,
    thought: String,
    calls: Vec<(String, String)>,
}

fn parser(style: Option<CallStyle>, thinks: bool) -> AnswerParser {
    AnswerParser::new(style.map(|style| calling(style, false)), thinks, false)
}

/// The calls of the tools that these rows know.
fn calling(style: CallStyle, or_form: bool) -> Arc<Calling> {
    let tools = ["f", "g", "get_it"].map(String::from).to_vec();
    Arc::new(Calling { style, tools, or_form })
}

fn whole(parser: &mut AnswerParser, parts: &[&str]) -> Whole {
    let mut all: Vec<Piece> = parts.iter().flat_map(|part| parser.push(part)).collect();
    all.extend(parser.finish());
    let mut whole = Whole::default();
    for piece in all {
        match piece {
            Piece::Content(text) => whole.content += &text,
            Piece::Thought(text) => whole.thought += &text,
            Piece::Call { index, name } => {
                assert_eq!(index, whole.calls.len(), "calls come in order");
                whole.calls.push((name, String::new()));
            }
            Piece::Arguments { index, text } => whole.calls[index].1 += &text,
        }
    }
    whole
}

/// The same whether the text comes at once, in characters, or in two parts cut anywhere.
fn read(style: Option<CallStyle>, thinks: bool, text: &str) -> Whole {
    read_by(|| parser(style, thinks), text)
}

fn read_by(parser: impl Fn() -> AnswerParser, text: &str) -> Whole {
    let found = whole(&mut parser(), &[text]);
    let characters: Vec<String> = text.chars().map(String::from).collect();
    let parts: Vec<&str> = characters.iter().map(String::as_str).collect();
    assert_eq!(whole(&mut parser(), &parts), found, "{text:?} by characters");
    for (at, _) in text.char_indices() {
        let (a, b) = text.split_at(at);
        assert_eq!(whole(&mut parser(), &[a, b]), found, "{text:?} cut at {at}");
    }
    found
}

fn calls(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, arguments)| (name.to_string(), arguments.to_string())).collect()
}

/// Its style, an answer, what of it is content, and its calls.
type Answer = (CallStyle, String, &'static str, Vec<(String, String)>);

/// Arguments with marks of the formats in them.
const BRACE: &str = r#"{"city": "a } \" {", "n": [1, {"x": null}]}"#;

fn hermes() -> Vec<Answer> {
    let (hermes, brace) = (CallStyle::Hermes, BRACE);
    vec![
        (
            hermes,
            format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {brace}}}\n</tool_call>"),
            "",
            calls(&[("f", brace)]),
        ),
        (
            hermes,
            "Let me see.\n<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>\n\
             <tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"
                .to_string(),
            "Let me see.",
            calls(&[("f", r#"{"a": 1}"#), ("g", "{}")]),
        ),
        // Arguments as a string, and none at all.
        (
            hermes,
            r#"<tool_call>{"name": "f", "arguments": "{\"a\": \"b\"}"}</tool_call>"#.to_string(),
            "",
            calls(&[("f", r#"{"a": "b"}"#)]),
        ),
        (
            hermes,
            r#"<tool_call>{"name": "f"}</tool_call> Done."#.to_string(),
            "Done.",
            calls(&[("f", "{}")]),
        ),
    ]
}

fn llama_and_mistral() -> Vec<Answer> {
    let (llama, mistral, brace) = (CallStyle::Llama, CallStyle::Mistral, BRACE);
    vec![
        (
            llama,
            format!(
                "{{\"name\": \"f\", \"parameters\": {brace}}}; \
                 {{\"name\": \"g\", \"parameters\": {{}}}}"
            ),
            "",
            calls(&[("f", brace), ("g", "{}")]),
        ),
        (
            llama,
            format!(
                "<|python_tag|>{{\"type\": \"function\", \"name\": \"f\", \"parameters\": {brace}}}"
            ),
            "",
            calls(&[("f", brace)]),
        ),
        (
            mistral,
            format!(
                "[TOOL_CALLS] [{{\"name\": \"f\", \"arguments\": {brace}}}, \
                 {{\"name\": \"g\", \"arguments\": {{}}}}]"
            ),
            "",
            calls(&[("f", brace), ("g", "{}")]),
        ),
        (
            mistral,
            format!("Yes. [TOOL_CALLS]f[ARGS]{brace}[TOOL_CALLS]get_it{{\"a\": 1}}"),
            "Yes.",
            calls(&[("f", brace), ("get_it", r#"{"a": 1}"#)]),
        ),
    ]
}

fn styles() {
    for (style, text, content, calls) in hermes().into_iter().chain(llama_and_mistral()) {
        let found = read(Some(style), false, &text);
        assert_eq!(
            found,
            Whole { content: content.to_string(), calls, ..Whole::default() },
            "{text}"
        );
    }
}

fn no_calls() {
    for style in CallStyle::ALL.map(|(_, style)| style) {
        let long = "<tool_call".repeat(3);
        for text in ["", " Hello.\n\nYou. ", "a < b and [x] {y}", "<tool", "[TOOL_", long.as_str()]
        {
            let found = read(Some(style), false, text);
            assert_eq!(found, Whole { content: text.to_string(), ..Whole::default() }, "{style:?}");
        }
    }
    let hermes = Some(CallStyle::Hermes);
    for text in [
        "<tool_call>nothing</tool_call>",
        "<tool_call>{\"city\": 1}",
        "<tool_call>{\"name\": 3}",
        "<tool_call>{\"na",
        "<tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "Look: \n <tool_call> \n nothing",
        "<tool_call></tool_call> <tool_call> x",
    ] {
        let found = read(hermes, false, text);
        assert_eq!(found.calls, calls(&[]), "{text}");
        assert_eq!(found.content, text);
    }
    for text in ["[TOOL_CALLS] [", "[TOOL_CALLS][, ] none", "[TOOL_CALLS] [x]", "a [TOOL_CALLS] f"]
    {
        assert_eq!(read(Some(CallStyle::Mistral), false, text).content, text);
    }
    assert_eq!(read(Some(CallStyle::Llama), false, " \n{} ").content, " \n{} ");
    let json = r#"{"answer": {"name": "x"}, "b": 2} and more"#;
    assert_eq!(read(Some(CallStyle::Llama), false, json).content, json);
    // Without a style nothing is sought.
    let text = "<tool_call>{\"name\": \"f\"}</tool_call>";
    assert_eq!(read(None, false, text).content, text);
}

/// A name that is no tool's makes no call, whatever stands beside it; and where the answer may be
/// a form, a tool's name alone makes none either.
fn names() {
    let llama = CallStyle::Llama;
    for (style, text) in [
        (llama, r#"{"name": "Rome", "parameters": {"a": 1}}"#),
        (llama, r#"{"parameters": {"a": 1}, "name": "Rome"} and more"#),
        (CallStyle::Hermes, r#"A. <tool_call>{"name": "F", "arguments": {}}</tool_call>"#),
        (CallStyle::Mistral, r#"[TOOL_CALLS] [{"name": "h", "arguments": {}}]"#),
        (CallStyle::Mistral, r#"[TOOL_CALLS] h[ARGS]{"a": 1}"#),
    ] {
        let found = read(Some(style), false, text);
        assert_eq!((found.content.as_str(), found.calls), (text, calls(&[])));
    }
    let reads = |or_form, text: &str| {
        read_by(|| AnswerParser::new(Some(calling(llama, or_form)), false, false), text)
    };
    let form = r#"{"name": "f", "city": "Rome"}"#;
    assert_eq!(reads(true, form).content, form);
    assert_eq!(reads(false, form).calls, calls(&[("f", "{}")]));
    let call = r#"{"name": "f", "parameters": {"a": 1}}"#;
    assert_eq!(reads(true, call).calls, calls(&[("f", r#"{"a": 1}"#)]));
}

fn thoughts() {
    let found = read(None, true, "<think>\nHm, 1 < 2.\n</think>\n\nYes. <think>");
    assert_eq!((found.thought.as_str(), found.content.as_str()), ("Hm, 1 < 2.", "Yes. <think>"));
    let found = read(None, true, "No thought. </think>");
    assert_eq!(found.content, "No thought. </think>");
    let found = read(None, true, "<think>never ends </thin");
    assert_eq!((found.thought.as_str(), found.content.as_str()), ("never ends </thin", ""));
    let text = "<think>a</think>\n<tool_call>{\"name\": \"f\"}</tool_call>";
    let found = read(Some(CallStyle::Hermes), true, text);
    assert_eq!((found.thought.as_str(), found.calls), ("a", calls(&[("f", "{}")])));
    // The prompt has opened the thought.
    let mut opened = AnswerParser::new(None, true, true);
    let found = whole(&mut opened, &["So", ".</think> Go."]);
    assert_eq!((found.thought.as_str(), found.content.as_str()), ("So.", "Go."));
}

/// The name comes by itself, whole; the arguments after it, as they come.
fn stages() {
    let mut parser = parser(Some(CallStyle::Hermes), false);
    let mut seen = Vec::new();
    for part in
        ["<tool_call>{\"na", "me\": \"f\"", ", \"arguments\": {", "\"a\": 1", "}", "}</tool_call>"]
    {
        seen.push(parser.push(part));
    }
    let call = |name: &str| Piece::Call { index: 0, name: name.to_string() };
    let more = |text: &str| vec![Piece::Arguments { index: 0, text: text.to_string() }];
    let wanted = [vec![], vec![call("f")], more("{"), more("\"a\": 1"), more("}"), vec![]];
    assert_eq!(seen, wanted);
    assert_eq!(parser.calls(), 1);
}

fn of_template() {
    let style = CallStyle::of_template;
    assert_eq!(style("{{ '<tool_call>' }}"), CallStyle::Hermes);
    assert_eq!(style("{{ '[TOOL_CALLS]' }}"), CallStyle::Mistral);
    assert_eq!(style("{{ '{\"name\": ..., \"parameters\": ' }}"), CallStyle::Llama);
    assert_eq!(style("{{ messages }}"), CallStyle::Hermes);
}
