//! One choice of an answer while it comes: its chunks as a stream sends them, and its document.
//! Both are made from the same outputs of the engine, so their text is the same.

use super::logprobs::{self, TextLogprobs};
use crate::base::TokenId;
use crate::engine::{ModelCard, Output, TokenLogprobs, Usage};
use crate::trace::FinishReason;
use serde_json::{Value, json};

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
            end: None,
        }
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
    pub fn take(&mut self, card: &ModelCard, output: Output) -> Option<Value> {
        match output {
            Output::Scored(scores) if self.asked.echo && self.asked.logprobs => {
                let mut part = self.echo(card, &scores);
                self.add_prompt_ids(&mut part);
                Some(part)
            }
            Output::Token { id, text, logprobs, end } => self.token(card, id, text, logprobs, end),
            Output::Finished { reason, usage } => {
                self.end = Some((reason, usage));
                let empty = if self.asked.shape == Shape::Chat { json!({}) } else { json!("") };
                Some(self.part(empty, Value::Null, Some(reason)))
            }
            _ => None,
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
    ) -> Option<Value> {
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
        self.text.push_str(&text);
        self.ids.push(id);
        if text.is_empty() && logprobs.is_null() && !self.asked.token_ids {
            return None;
        }
        let delta = match self.asked.shape {
            Shape::Chat => json!({"content": text}),
            Shape::Text => json!(text),
        };
        let mut part = self.part(delta, logprobs, None);
        if self.asked.token_ids {
            part["token_ids"] = json!([id]);
        }
        Some(part)
    }

    fn part(&self, delta: Value, logprobs: Value, reason: Option<FinishReason>) -> Value {
        let content = if self.asked.shape == Shape::Chat { "delta" } else { "text" };
        let mut part = json!({"index": self.index});
        part[content] = delta;
        part["logprobs"] = logprobs;
        part["finish_reason"] = json!(reason.map(reason_name));
        part
    }

    /// The choice of a whole answer.
    pub fn document(self) -> Value {
        let mut choice = json!({"index": self.index});
        match self.asked.shape {
            Shape::Chat => {
                let text = self.text;
                choice["message"] = json!({"role": "assistant", "content": text, "refusal": null});
            }
            Shape::Text => choice["text"] = json!(self.text),
        }
        choice["logprobs"] = match (self.asked.logprobs, self.asked.shape) {
            (false, _) => Value::Null,
            (true, Shape::Chat) => json!({"content": self.chat, "refusal": null}),
            (true, Shape::Text) => self.list.value(),
        };
        choice["finish_reason"] = json!(self.end.map(|(reason, _)| reason_name(reason)));
        if self.asked.token_ids {
            choice["token_ids"] = json!(self.ids);
            if self.asked.shape == Shape::Text {
                choice["prompt_token_ids"] = json!(self.prompt);
            }
        }
        choice
    }
}

fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        _ => "stop",
    }
}
