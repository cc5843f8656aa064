//! Keeps control markers that came with a message from becoming control tokens.
//!
//! Before rendering, a mark (a character that occurs in no input) is put inside every marker found
//! in message text, and inside any tail that a neighbour could complete to a marker. Template
//! logic on ordinary text sees no difference; after rendering the marks are taken out and their
//! places kept as breaks, which no marker may span. The mark stands *inside*, so no slice, trim or
//! split by the template can separate it from the marker without cutting the marker too.

use super::TextError;
use super::added::{Added, Markers};
use minijinja::Value;
use serde_json::Value as Json;
use std::collections::HashSet;

/// Roles whose spelling no template needs protection from.
const KNOWN_ROLES: &[&str] =
    &["system", "user", "assistant", "tool", "developer", "function", "ipython", "model"];

/// Markers not flagged as control tokens that a template writes itself, such as `<tool_call>`:
/// protected too, except in what the assistant said, where they are its own.
pub(super) fn template_markers(markers: &Markers, source: &str) -> HashSet<String> {
    markers
        .iter()
        .filter(|(content, added)| {
            !added.hard && !content.trim().is_empty() && source.contains(content)
        })
        .map(|(content, _)| content.to_string())
        .collect()
}

pub(super) struct Shield<'a> {
    pub markers: &'a Markers,
    /// Of [`template_markers`].
    pub soft: &'a HashSet<String>,
    pub mark: char,
}

impl Shield<'_> {
    /// Message text with marks. `own` is text of the assistant.
    pub fn text(&self, text: &str, own: bool) -> String {
        let guarded =
            |content: &str, added: &Added| added.hard || (!own && self.soft.contains(content));
        let mut out = String::with_capacity(text.len());
        let tails = self.tails(text, &guarded);
        for (at, c) in text.char_indices() {
            out.push(c);
            let begins = self
                .markers
                .at(text, at)
                .any(|(content, added)| content.len() > c.len_utf8() && guarded(content, added));
            if begins || tails.contains(&at) || self.opens(&text[at..]) {
                out.push(self.mark);
            }
        }
        out
    }

    /// Whether a control marker may be under way here. A template that cuts a piece out of a
    /// message (what the model thought, say) would else close `<|im_` and `end|>` to a marker.
    fn opens(&self, rest: &str) -> bool {
        let mut chars = rest.chars();
        let (first, second) = (chars.next(), chars.next());
        // `<|` is no ordinary text; `<s` and `</` are.
        let count = if matches!(second, Some('|' | '｜')) { 2 } else { 3 };
        let end = rest.char_indices().nth(count).map(|(at, _)| at);
        let hard = |_: &str, added: &Added| added.hard;
        first.is_some_and(|c| !c.is_alphanumeric() && !c.is_whitespace())
            && end.is_some_and(|end| self.markers.continues(&rest[..end], hard))
    }

    /// A role or a name: a template may build a marker around it (`'<|' + role + '|>'`).
    pub fn name(&self, name: &str) -> String {
        let inside = |content: &str| content.len() > name.len() && content.contains(name);
        let is_word = name.chars().all(|c| c.is_alphanumeric() || "_-. ".contains(c));
        let guarded = !KNOWN_ROLES.contains(&name)
            && (!is_word
                || self.markers.iter().any(|(content, added)| added.hard && inside(content)));
        match name.chars().next() {
            Some(first) if guarded => {
                let (head, rest) = name.split_at(first.len_utf8());
                format!("{head}{}{}", self.mark, self.text(rest, false))
            }
            _ => self.text(name, false),
        }
    }

    /// Places where the text's end (trimmed or not) begins a marker that is not complete.
    fn tails(&self, text: &str, guarded: &impl Fn(&str, &Added) -> bool) -> Vec<usize> {
        let mut out = Vec::new();
        for text in [text, text.trim_end()] {
            let from = text.len().saturating_sub(self.markers.length_max());
            let starts = text.char_indices().skip_while(|(at, _)| *at < from);
            // A tail of letters is a word, and every word ends in letters.
            out.extend(
                starts.filter(|(_, c)| !c.is_alphanumeric() && !c.is_whitespace()).filter_map(
                    |(at, _)| self.markers.continues(&text[at..], guarded).then_some(at),
                ),
            );
        }
        out
    }

    /// JSON from a request (tools, tool calls, extra variables) as a template value.
    pub fn json(&self, json: &Json, own: bool) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(b) => Value::from(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Value::from(n),
                (None, Some(n)) => Value::from(n),
                _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(s) => Value::from(self.text(s, own)),
            Json::Array(items) => {
                Value::from(items.iter().map(|item| self.json(item, own)).collect::<Vec<_>>())
            }
            Json::Object(map) => Value::from_pairs(
                map.iter().map(|(key, value)| (self.text(key, own), self.json(value, own))),
            ),
        }
    }
}

/// Collects which candidates for the mark occur in the inputs.
#[derive(Default)]
pub(super) struct MarkSearch {
    used: HashSet<char>,
}

/// Noncharacters first; then private use, so that a hostile conversation only costs a search.
fn candidates() -> impl Iterator<Item = char> {
    ('\u{FDD0}'..='\u{FDEF}').chain('\u{F0000}'..='\u{FFFFD}').chain('\u{100000}'..='\u{10FFFD}')
}

impl MarkSearch {
    pub fn text(&mut self, text: &str) {
        self.used.extend(text.chars().filter(|c| *c >= '\u{FDD0}'));
    }

    pub fn json(&mut self, json: &Json) {
        match json {
            Json::String(s) => self.text(s),
            Json::Array(items) => items.iter().for_each(|item| self.json(item)),
            Json::Object(map) => map.iter().for_each(|(key, value)| {
                self.text(key);
                self.json(value);
            }),
            _ => {}
        }
    }

    pub fn choose(self) -> Result<char, TextError> {
        candidates().find(|c| !self.used.contains(c)).ok_or(TextError::NoMark)
    }
}

/// Takes the marks out; their places in the result, ascending.
pub(super) fn unmark(text: &str, mark: char) -> (String, Vec<usize>) {
    let (mut out, mut breaks) = (String::with_capacity(text.len()), Vec::new());
    for (index, part) in text.split(mark).enumerate() {
        if index > 0 && breaks.last() != Some(&out.len()) {
            breaks.push(out.len());
        }
        out.push_str(part);
    }
    (out, breaks)
}
