//! One choice of an answer while it comes: its chunks as a stream sends them, and its document.
//! Both are made from the same outputs of the engine, so their text is the same.

use super::logprobs::{self, TextLogprobs};
use crate::base::TokenId;
use crate::engine::{ModelCard, Output, TokenLogprobs, Usage};
use crate::text::{AnswerParser, CallStyle, Calling, Piece};
use crate::trace::FinishReason;
use serde_json::{Value, json};
use std::sync::Arc;

/// Which of the two routes answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Chat,
    Text,
}

/// What was asked of every choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub shape: Shape,
    pub logprobs: bool,
    pub token_ids: bool,
    /// The prompt's text comes first, and its log-probabilities if any are asked for.
    pub echo: bool,
}

/// How the parts of a chat answer are told apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reading {
    /// How tools are called, if they may be.
    pub calling: Option<Arc<Calling>>,
    /// `<think>` tells of thoughts; the prompt has opened one.
    pub thinks: bool,
    pub thinking: bool,
    /// The call was asked for by name, which the finish reason does not tell.
    pub named: bool,
}

/// The parser of one answer and the calls that it found.
struct Parts {
    reading: Reading,
    parser: AnswerParser,
    thought: String,
    calls: Vec<Call>,
    /// Tells the ids of calls apart from those of other answers.
    salt: String,
}

struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Parts {
    fn new(reading: Reading, salt: String) -> Self {
        let parser = AnswerParser::new(reading.calling.clone(), reading.thinks, reading.thinking);
        Self { reading, parser, thought: String::new(), calls: Vec::new(), salt }
    }

    /// Takes a piece that is not content; its delta.
    fn delta(&mut self, piece: Piece) -> Value {
        match piece {
            Piece::Content(text) => json!({"content": text}),
            Piece::Thought(text) => {
                self.thought.push_str(&text);
                json!({"reasoning_content": text})
            }
            Piece::Call { index, name } => {
                let id = self.call_id(index);
                let function = json!({"name": name, "arguments": ""});
                let call = json!({
                    "index": index, "id": id, "type": "function", "function": function,
                });
                self.calls.push(Call { id, name, arguments: String::new() });
                json!({"tool_calls": [call]})
            }
            Piece::Arguments { index, text } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
                json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            }
        }
    }

    /// Mistral's templates insist on nine letters and digits.
    fn call_id(&self, index: usize) -> String {
        match self.reading.calling.as_ref().map(|calling| calling.style) {
            Some(CallStyle::Mistral) => {
                let tail = &self.salt[self.salt.len().saturating_sub(6)..];
                format!("{:03}{tail}", index % 1000)
            }
            _ => format!("call_{}{index:02}", self.salt),
        }
    }

    fn tool_calls(&self) -> Value {
        let one = |call: &Call| {
            json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        };
        self.calls.iter().map(one).collect()
    }
}

/// One choice.
pub(super) struct Choice {
    asked: Asked,
    index: usize,
    prompt: Vec<TokenId>,
    /// The prompt as it was written, for the echo.
    prompt_text: String,
    /// Characters let out so far, where the next token's text begins.
    offset: usize,
    text: String,
    ids: Vec<TokenId>,
    chat: Vec<Value>,
    list: TextLogprobs,
    parts: Option<Parts>,
    pub end: Option<(FinishReason, Usage)>,
}

impl Choice {
    pub fn new(asked: Asked, index: usize, prompt: Vec<TokenId>, prompt_text: String) -> Self {
        Self {
            asked,
            index,
            prompt,
            prompt_text,
            offset: 0,
            text: String::new(),
            ids: Vec::new(),
            chat: Vec::new(),
            list: TextLogprobs::default(),
            parts: None,
            end: None,
        }
    }

    /// Tells thoughts and calls apart from content.
    pub fn read_parts(&mut self, reading: Reading, salt: String) {
        self.parts = Some(Parts::new(reading, salt));
    }

    pub fn prompt(&self) -> &[TokenId] {
        &self.prompt
    }

    /// The part that opens a stream: the role, the echo, the prompt's ids; `None` if there is
    /// nothing to say yet.
    pub fn opening(&mut self, card: &ModelCard) -> Option<Value> {
        let mut opening = match self.asked.shape {
            Shape::Chat => {
                self.part(json!({"role": "assistant", "content": ""}), Value::Null, None)
            }
            // The scores come first.
            Shape::Text if self.asked.echo && self.asked.logprobs => return None,
            Shape::Text if self.asked.echo => self.echo(card, &[]),
            Shape::Text if self.asked.token_ids => self.part(json!(""), Value::Null, None),
            Shape::Text => return None,
        };
        self.add_prompt_ids(&mut opening);
        Some(opening)
    }

    fn add_prompt_ids(&self, part: &mut Value) {
        if self.asked.token_ids && self.asked.shape == Shape::Text {
            part["prompt_token_ids"] = json!(self.prompt);
        }
    }

    /// Takes an output; the parts that a stream sends for it. A finish reason has a part of its
    /// own, with nothing else.
    pub fn take(&mut self, card: &ModelCard, output: Output) -> Vec<Value> {
        match output {
            Output::Scored(scores) if self.asked.echo && self.asked.logprobs => {
                let mut part = self.echo(card, &scores);
                self.add_prompt_ids(&mut part);
                vec![part]
            }
            Output::Token { id, text, logprobs, end } => self.token(card, id, text, logprobs, end),
            Output::Finished { reason, usage } => {
                self.end = Some((reason, usage));
                let rest = self.parts.as_mut().map(|p| p.parser.finish()).unwrap_or_default();
                let mut parts: Vec<_> =
                    rest.into_iter().map(|piece| self.piece(piece, Value::Null)).collect();
                let empty = if self.asked.shape == Shape::Chat { json!({}) } else { json!("") };
                parts.push(self.part(empty, Value::Null, Some(self.reason_name(reason))));
                parts
            }
            _ => Vec::new(),
        }
    }

    /// The prompt's text and the scores of its tokens, of which the first has none.
    fn echo(&mut self, card: &ModelCard, scores: &[TokenLogprobs]) -> Value {
        let mut list = TextLogprobs::default();
        if self.asked.logprobs {
            let mut stream = card.tokenizer.stream();
            let mut offset = 0;
            for (at, &id) in self.prompt.iter().enumerate() {
                let score = at.checked_sub(1).and_then(|before| scores.get(before));
                list.push(card, id, score, offset);
                offset += stream.push(id).chars().count();
            }
        }
        let text = std::mem::take(&mut self.prompt_text);
        self.offset = text.chars().count();
        self.text.push_str(&text);
        let value = if self.asked.logprobs { list.value() } else { Value::Null };
        self.list.append(list);
        self.part(json!(text), value, None)
    }

    fn token(
        &mut self,
        card: &ModelCard,
        id: TokenId,
        text: String,
        logprobs: Option<TokenLogprobs>,
        end: bool,
    ) -> Vec<Value> {
        // An end token is no content. Scoring clients count on an entry for every token.
        let found = logprobs.filter(|_| self.asked.logprobs && (!end || self.asked.echo));
        let logprobs = match (found, self.asked.shape) {
            (Some(found), Shape::Chat) => {
                let entry = logprobs::chat(card, id, &found);
                self.chat.push(entry.clone());
                json!({"content": [entry], "refusal": null})
            }
            (Some(found), Shape::Text) => {
                let mut list = TextLogprobs::default();
                list.push(card, id, Some(&found), self.offset);
                let value = list.value();
                self.list.append(list);
                value
            }
            (None, _) => Value::Null,
        };
        self.offset += text.chars().count();
        self.ids.push(id);
        let mut pieces = match &mut self.parts {
            Some(parts) => parts.parser.push(&text),
            None if text.is_empty() => Vec::new(),
            None => vec![Piece::Content(text)],
        };
        if pieces.is_empty() {
            if logprobs.is_null() && !self.asked.token_ids {
                return Vec::new();
            }
            pieces.push(Piece::Content(String::new()));
        }
        let mut logprobs = Some(logprobs);
        let mut parts: Vec<_> = pieces
            .into_iter()
            .map(|piece| self.piece(piece, logprobs.take().unwrap_or_default()))
            .collect();
        if self.asked.token_ids
            && let Some(first) = parts.first_mut()
        {
            first["token_ids"] = json!([id]);
        }
        parts
    }

    /// The part for a piece of the answer.
    fn piece(&mut self, piece: Piece, logprobs: Value) -> Value {
        let delta = match (piece, &mut self.parts) {
            (Piece::Content(text), _) => {
                self.text.push_str(&text);
                match self.asked.shape {
                    Shape::Chat => json!({"content": text}),
                    Shape::Text => json!(text),
                }
            }
            (piece, Some(parts)) => parts.delta(piece),
            (_, None) => json!({}),
        };
        self.part(delta, logprobs, None)
    }

    /// Calls tell themselves as the reason, unless one was asked for by name.
    fn reason_name(&self, reason: FinishReason) -> &'static str {
        let called = |p: &Parts| p.parser.calls() > 0 && !p.reading.named;
        match reason {
            FinishReason::Length => "length",
            _ if self.parts.as_ref().is_some_and(called) => "tool_calls",
            _ => "stop",
        }
    }

    fn part(&self, delta: Value, logprobs: Value, reason: Option<&str>) -> Value {
        let content = if self.asked.shape == Shape::Chat { "delta" } else { "text" };
        let mut part = json!({"index": self.index});
        part[content] = delta;
        part["logprobs"] = logprobs;
        part["finish_reason"] = json!(reason);
        part
    }

    fn message(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text, "refusal": null});
        let Some(parts) = &self.parts else { return message };
        if !parts.thought.is_empty() {
            message["reasoning_content"] = json!(parts.thought);
        }
        if !parts.calls.is_empty() {
            message["tool_calls"] = parts.tool_calls();
            if self.text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        message
    }

    /// The choice of a whole answer.
    pub fn document(self) -> Value {
        let mut choice = json!({"index": self.index});
        match self.asked.shape {
            Shape::Chat => choice["message"] = self.message(),
            Shape::Text => choice["text"] = json!(self.text),
        }
        choice["logprobs"] = match (self.asked.logprobs, self.asked.shape) {
            (false, _) => Value::Null,
            (true, Shape::Chat) => json!({"content": self.chat, "refusal": null}),
            (true, Shape::Text) => self.list.value(),
        };
        choice["finish_reason"] = json!(self.end.map(|(reason, _)| self.reason_name(reason)));
        if self.asked.token_ids {
            choice["token_ids"] = json!(self.ids);
            if self.asked.shape == Shape::Text {
                choice["prompt_token_ids"] = json!(self.prompt);
            }
        }
        choice
    }
}
