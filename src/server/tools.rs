//! Tools that a model may call: reading them from a request, and the grammar that makes every
//! call of one whole and right in its arguments, in the style of the model's chat template.

use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use crate::text::{CallStyle, GrammarSource, Message, Tokenizer};
use serde_json::{Value, json};
use std::fmt::Write;

/// Most tools of one request.
const TOOLS_MAX: usize = 128;
/// Longest name of one.
const NAME_MAX: usize = 128;

#[derive(Clone, Debug, PartialEq)]
struct Tool {
    name: String,
    parameters: Value,
}

/// `tool_choice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolChoice {
    /// The model decides.
    Auto,
    /// At least one call.
    Required,
    /// One call, of this tool.
    Named(String),
}

/// The tools of a request that may be called.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tools {
    /// As they were sent, for the template.
    pub sent: Value,
    list: Vec<Tool>,
    pub choice: ToolChoice,
    parallel: bool,
}

impl Tools {
    /// `None`: there are none, or none may be called.
    pub fn read(fields: &mut Fields<'_>) -> ApiResult<Option<Self>> {
        for (old, new) in [("functions", "tools"), ("function_call", "tool_choice")] {
            if fields.get(old).is_some_and(|value| value != &json!([]) && value != &json!("none")) {
                return Err(fields.wrong(old, format!("is the old form; use {new}")));
            }
        }
        let parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        let sent = fields.array("tools")?.filter(|tools| !tools.is_empty());
        let Some(sent) = sent else {
            return match fields.get("tool_choice") {
                Some(value) if value != "none" && value != "auto" => {
                    Err(fields.wrong("tool_choice", "needs tools"))
                }
                _ => Ok(None),
            };
        };
        if sent.len() > TOOLS_MAX {
            return Err(fields.wrong("tools", format!("must hold at most {TOOLS_MAX} tools")));
        }
        let one = |(at, tool): (usize, &Value)| tool_of(tool, &format!("tools[{at}]"));
        let list: Vec<Tool> = sent.iter().enumerate().map(one).collect::<ApiResult<_>>()?;
        let Some(choice) = choice_of(fields, &list)? else { return Ok(None) };
        Ok(Some(Self { sent: Value::Array(sent.clone()), list, choice, parallel }))
    }

    pub fn names(&self) -> Vec<String> {
        self.list.iter().map(|tool| tool.name.clone()).collect()
    }

    /// True where the answer can be nothing but calls.
    pub fn forced(&self) -> bool {
        self.choice != ToolChoice::Auto
    }

    /// The grammar of an answer that may call: text and calls, or calls only, or `answer`'s form
    /// or calls.
    pub fn grammar(
        &self,
        style: CallStyle,
        newer: bool,
        tokenizer: &Tokenizer,
        answer: bool,
    ) -> GrammarSource {
        let named = |tool: &&Tool| match &self.choice {
            ToolChoice::Named(name) => tool.name == *name,
            _ => true,
        };
        let tools: Vec<&Tool> = self.list.iter().filter(named).collect();
        let many = self.parallel && !matches!(self.choice, ToolChoice::Named(_));
        let marks = Marks { tokenizer, style };
        let mut lark = match style {
            CallStyle::Hermes => marks.hermes(many, self.forced() || answer),
            CallStyle::Llama => marks.llama(many, self.forced() || answer),
            CallStyle::Mistral => marks.mistral(many, self.forced() || answer, newer),
        };
        let start = if answer { "start: @form | calls\n" } else { "start: calls\n" };
        lark.insert_str(0, start);
        let any = (0..tools.len()).map(|at| format!("call_{at}")).collect::<Vec<_>>().join(" | ");
        let _ = writeln!(lark, "call: {any}");
        let quoted = |text: String| json!(text).to_string();
        for (at, tool) in tools.iter().enumerate() {
            let (name, key) = (json!(tool.name), arguments_key(style));
            let (before, after) = match style {
                // In the pieces that a form is made of, which may begin alike.
                CallStyle::Llama => {
                    let pieces = ["{", "\"name\"", ":", " ", &name.to_string(), ",", " "];
                    let pieces = pieces.into_iter().chain(["\"parameters\"", ":", " "]);
                    let pieces: Vec<String> = pieces.map(|p| quoted(p.to_string())).collect();
                    (pieces.join(" "), quoted("}".to_string()))
                }
                CallStyle::Mistral if newer => {
                    (format!("{name} {}", marks.mark("[ARGS]")), String::new())
                }
                _ => (quoted(format!("{{\"name\": {name}, \"{key}\": ")), quoted("}".to_string())),
            };
            let schema = GrammarSource::spaced(tool.parameters.clone());
            let _ = writeln!(lark, "call_{at}: {before} %json {schema} {after}");
        }
        GrammarSource::Lark(lark)
    }
}

/// The control token that `text` is, in a grammar.
pub(super) fn control(tokenizer: &Tokenizer, text: &str) -> Option<String> {
    let id = tokenizer.token_id(text).filter(|id| tokenizer.is_special(*id))?;
    Some(format!("<[{id}]>"))
}

fn arguments_key(style: CallStyle) -> &'static str {
    if style == CallStyle::Llama { "parameters" } else { "arguments" }
}

/// Rules for what stands around calls.
struct Marks<'a> {
    tokenizer: &'a Tokenizer,
    style: CallStyle,
}

impl Marks<'_> {
    /// A marker in a grammar: the control token if it is one, else its text.
    fn mark(&self, text: &str) -> String {
        control(self.tokenizer, text).unwrap_or_else(|| json!(text).to_string())
    }

    fn is_token(&self, text: &str) -> bool {
        control(self.tokenizer, text).is_some()
    }

    /// Text up to an opening, the opening included.
    fn trigger(&self) -> String {
        let open = self.style.opening();
        match self.is_token(open) {
            true => format!("trigger: TEXT? {}\n", self.mark(open)),
            false => {
                let special = |c: char| matches!(c, '[' | ']' | '|');
                let escaped: String = open
                    .chars()
                    .flat_map(|c| special(c).then_some('\\').into_iter().chain([c]))
                    .collect();
                format!("trigger[lazy]: /(.|\\n)*{escaped}/\n")
            }
        }
    }

    fn hermes(&self, many: bool, only: bool) -> String {
        let (open, close) = (self.mark(self.style.opening()), self.mark("</tool_call>"));
        let item = format!("item: {open} rest\nrest: \"\\n\" call \"\\n\" {close}\n");
        match (only, many) {
            (true, true) => format!("calls: item (\"\\n\" item)*\n{item}"),
            (true, false) => format!("calls: item\n{item}"),
            (false, true) => {
                format!("calls: (trigger rest)* TEXT?\nTEXT: /(.|\\n)+/\n{}{item}", self.trigger())
            }
            (false, false) => {
                format!("calls: TEXT? | trigger rest\nTEXT: /(.|\\n)+/\n{}{item}", self.trigger())
            }
        }
    }

    fn llama(&self, many: bool, only: bool) -> String {
        let more = if many { "list: call (\"; \" call)*\n" } else { "list: call\n" };
        match (only, self.is_token(self.style.opening())) {
            (true, _) => format!("calls: list\n{more}"),
            (false, false) => {
                format!("calls: other? | list\nother: /\\s*[^\\s{{](.|\\n)*/\n{more}")
            }
            (false, true) => format!(
                "calls: other? | {}? list\nother: /\\s*[^\\s{{](.|\\n)*/\n{more}",
                self.mark(self.style.opening())
            ),
        }
    }

    fn mistral(&self, many: bool, only: bool, newer: bool) -> String {
        let open = self.mark(self.style.opening());
        let list = match (newer, many) {
            (false, true) => "list: \"[\" call (\", \" call)* \"]\"\n".to_string(),
            (false, false) => "list: \"[\" call \"]\"\n".to_string(),
            (true, true) => format!("list: call ({open} call)*\n"),
            (true, false) => "list: call\n".to_string(),
        };
        match only {
            true => format!("calls: {open} list\n{list}"),
            false => {
                format!("calls: TEXT? | trigger list\nTEXT: /(.|\\n)+/\n{}{list}", self.trigger())
            }
        }
    }
}

fn tool_of(tool: &Value, path: &str) -> ApiResult<Tool> {
    let mut fields = Fields::of(tool, path)?;
    match fields.string("type")? {
        Some("function") => {}
        Some(_) => return Err(fields.wrong("type", "must be function")),
        None => return Err(fields.wrong("type", "is required")),
    }
    let Some(function) = fields.object("function")? else {
        return Err(fields.wrong("function", "is required"));
    };
    let mut function = Fields::new(function, format!("{path}.function."));
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let name = match function.string("name")? {
        Some(name) if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(fits) => name,
        Some(_) => {
            let message =
                format!("must be 1 to {NAME_MAX} letters, digits, underscores, dashes and dots");
            return Err(function.wrong("name", message));
        }
        None => return Err(function.wrong("name", "is required")),
    };
    function.string("description")?;
    function.boolean("strict")?;
    let none = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    let parameters = function.object("parameters")?.map(|map| Value::Object(map.clone()));
    Ok(Tool { name: name.to_string(), parameters: parameters.unwrap_or_else(none) })
}

/// `None`: no tool may be called.
fn choice_of(fields: &mut Fields<'_>, list: &[Tool]) -> ApiResult<Option<ToolChoice>> {
    let wrong =
        "must be none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": …}}";
    let value = match fields.get("tool_choice") {
        None => return Ok(Some(ToolChoice::Auto)),
        Some(Value::String(word)) => {
            return match word.as_str() {
                "none" => Ok(None),
                "auto" => Ok(Some(ToolChoice::Auto)),
                "required" => Ok(Some(ToolChoice::Required)),
                _ => Err(fields.wrong("tool_choice", wrong)),
            };
        }
        Some(value) => value,
    };
    let name = value.pointer("/function/name").and_then(Value::as_str);
    match name.filter(|_| value["type"] == "function") {
        Some(name) if list.iter().any(|tool| tool.name == name) => {
            Ok(Some(ToolChoice::Named(name.to_string())))
        }
        Some(name) => {
            let message = format!("names {name:?}, which is none of the tools");
            Err(fields.wrong("tool_choice", message))
        }
        None => Err(fields.wrong("tool_choice", wrong)),
    }
}

/// The conversation for a template that knows nothing of tools: what there is to call stands in
/// the system message, calls and results in the text of their turns, calls in the style that the
/// model's answers are read in.
pub(super) fn spelled_out(
    messages: &[Message],
    tools: Option<&Value>,
    style: CallStyle,
) -> Vec<Message> {
    let mut out: Vec<Message> = messages.iter().map(|turn| spelled_turn(turn, style)).collect();
    let Some(list) = tools.and_then(Value::as_array) else { return out };
    let mut text = String::from("You can call these functions, each described as JSON:\n");
    for tool in list {
        let _ = writeln!(text, "{}", tool["function"]);
    }
    let example = spelled_calls(&[("\"…\"".to_string(), "{…}".to_string())], style);
    let _ = write!(
        text,
        "To call one, answer with its name and {} in this form:\n{example}",
        arguments_key(style)
    );
    match out.first_mut() {
        Some(first) if first.role == "system" => {
            first.content = format!("{}\n\n{text}", first.content);
        }
        _ => out.insert(0, Message::new("system", text)),
    }
    out
}

/// Calls as a model writes them: the name and the arguments of each, as JSON.
fn spelled_calls(calls: &[(String, String)], style: CallStyle) -> String {
    let key = arguments_key(style);
    let calls: Vec<String> = calls
        .iter()
        .map(|(name, arguments)| format!("{{\"name\": {name}, \"{key}\": {arguments}}}"))
        .collect();
    match style {
        CallStyle::Hermes => {
            let marked = calls.iter().map(|call| format!("<tool_call>\n{call}\n</tool_call>"));
            marked.collect::<Vec<_>>().join("\n")
        }
        CallStyle::Llama => calls.join("; "),
        CallStyle::Mistral => format!("[TOOL_CALLS][{}]", calls.join(", ")),
    }
}

fn spelled_turn(message: &Message, style: CallStyle) -> Message {
    let mut turn = message.clone();
    if turn.role == "tool" {
        turn.role = "user".to_string();
        turn.content = format!("<tool_response>\n{}\n</tool_response>", turn.content);
    }
    let one = |call: &Value| {
        let function = &call["function"];
        let arguments = match &function["arguments"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        (function["name"].to_string(), arguments)
    };
    let list = turn.tool_calls.take();
    let calls: Vec<_> = list.iter().filter_map(Value::as_array).flatten().map(one).collect();
    if !calls.is_empty() {
        let lead = if turn.content.is_empty() { "" } else { "\n" };
        let _ = write!(turn.content, "{lead}{}", spelled_calls(&calls, style));
    }
    turn
}

/// A fault of a grammar, told under the field it came from.
pub(super) fn fault(error: &crate::text::TextError, field: &str) -> ApiError {
    ApiError::field(field, format!("{field}: {error}")).with_code("invalid_grammar")
}
