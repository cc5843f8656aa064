//! Chat templates, rendered as Hugging Face renders them.
//!
//! A template is compiled once, against the markers of a vocabulary; a render takes messages and
//! gives text in which markers of the template and markers of the messages are told apart.

use super::jinja::{self, MARK, NOW};
use super::shield::{MarkSearch, Shield, template_markers, unmark};
use super::{Markers, TextError};
use minijinja::{Environment, Value};
use serde_json::{Map, Value as Json};
use std::collections::HashSet;
use std::sync::Arc;

/// Variables the caller's own may not replace.
const RESERVED: &[&str] =
    &["messages", "tools", "add_generation_prompt", "bos_token", "eos_token", MARK, NOW];

/// One turn. Content parts and nulls are resolved before; an absent field is absent in the
/// template too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub role: String,
    pub content: String,
    pub name: Option<String>,
    /// What the assistant thought, for templates that show it again.
    pub reasoning_content: Option<String>,
    /// As in the OpenAI API; `arguments` written as a JSON string are given to the template as
    /// the object they hold.
    pub tool_calls: Option<Json>,
    pub tool_call_id: Option<String>,
}

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }
}

#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    pub add_generation_prompt: bool,
    pub tools: Option<Json>,
    /// Further variables (`chat_template_kwargs`).
    pub kwargs: Map<String, Json>,
    /// Seconds since 1970, for `strftime_now`; a template that asks for it fails without.
    pub now: Option<i64>,
}

/// A prompt in which markers that came with a message are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub(super) text: String,
    /// Byte positions that no control marker may span.
    pub(super) breaks: Vec<usize>,
}

impl Rendered {
    /// The prompt as text, as Hugging Face would show it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A compiled template. Rendering takes `&self`.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    /// The template's own characters; the mark must be none of them.
    source: String,
    bos: String,
    eos: String,
    markers: Arc<Markers>,
    soft: HashSet<String>,
}

impl ChatTemplate {
    /// `markers` come from the tokenizer that will encode the result.
    pub fn compile(
        source: &str,
        bos: &str,
        eos: &str,
        markers: &Arc<Markers>,
    ) -> Result<Self, TextError> {
        Ok(Self {
            env: jinja::environment(source)?,
            source: source.to_string(),
            bos: bos.to_string(),
            eos: eos.to_string(),
            markers: markers.clone(),
            soft: template_markers(markers, source),
        })
    }

    /// The template as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Rendered, TextError> {
        if let Some(name) = options.kwargs.keys().find(|k| RESERVED.contains(&k.as_str())) {
            return Err(TextError::ReservedKwarg(name.clone()));
        }
        let mark = self.mark(messages, options)?;
        let shield = Shield { markers: &self.markers, soft: &self.soft, mark };
        let list: Vec<Value> = messages.iter().map(|message| turn(message, &shield)).collect();
        let tools = options.tools.as_ref().filter(|tools| !is_empty(tools));
        let mut variables: Vec<(String, Value)> = vec![
            ("messages".into(), Value::from(list)),
            ("tools".into(), tools.map_or(Value::from(()), |tools| shield.json(tools, false))),
            ("add_generation_prompt".into(), options.add_generation_prompt.into()),
            ("bos_token".into(), Value::from(&self.bos)),
            ("eos_token".into(), Value::from(&self.eos)),
            (MARK.into(), Value::from(mark.to_string())),
        ];
        variables.extend(options.now.map(|now| (NOW.into(), Value::from(now))));
        variables.extend(
            options.kwargs.iter().map(|(key, value)| (key.clone(), shield.json(value, false))),
        );
        let text = jinja::render(&self.env, Value::from_pairs(variables))?;
        let (text, breaks) = unmark(&text, mark);
        Ok(Rendered { text, breaks })
    }

    fn mark(&self, messages: &[Message], options: &RenderOptions) -> Result<char, TextError> {
        let mut search = MarkSearch::default();
        for text in [&self.source, &self.bos, &self.eos] {
            search.text(text);
        }
        for message in messages {
            search.text(&message.role);
            search.text(&message.content);
            for text in [&message.name, &message.reasoning_content, &message.tool_call_id] {
                search.text(text.as_deref().unwrap_or_default());
            }
            // Also as parsed: arguments may spell characters as escapes.
            for call in message.tool_calls.iter() {
                search.json(call);
                search.json(&with_parsed_arguments(call));
            }
        }
        options.tools.iter().chain(options.kwargs.values()).for_each(|json| search.json(json));
        search.choose()
    }
}

fn is_empty(json: &Json) -> bool {
    json.is_null() || json.as_array().is_some_and(Vec::is_empty)
}

fn turn(message: &Message, shield: &Shield) -> Value {
    let own = message.role == "assistant";
    let mut fields = vec![
        ("role", Value::from(shield.name(&message.role))),
        ("content", Value::from(shield.text(&message.content, own))),
    ];
    fields.extend(message.name.iter().map(|name| ("name", Value::from(shield.name(name)))));
    if let Some(id) = &message.tool_call_id {
        fields.push(("tool_call_id", Value::from(shield.text(id, false))));
    }
    if let Some(thought) = &message.reasoning_content {
        // Templates read it under either name.
        let thought = Value::from(shield.text(thought, own));
        fields.push(("reasoning_content", thought.clone()));
        fields.push(("thinking", thought));
    }
    if let Some(calls) = message.tool_calls.as_ref().filter(|calls| !is_empty(calls)) {
        // What a call holds is data, whoever wrote it.
        fields.push(("tool_calls", shield.json(&with_parsed_arguments(calls), false)));
    }
    Value::from_pairs(fields)
}

/// Templates expect `arguments` as an object, the OpenAI API sends it as a string.
fn with_parsed_arguments(calls: &Json) -> Json {
    let mut calls = calls.clone();
    for call in calls.as_array_mut().into_iter().flatten() {
        let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
        let parsed = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
        if let Some(parsed @ Json::Object(_)) = parsed {
            *arguments = parsed;
        }
    }
    calls
}
