//! What an answer holds, told apart while it comes: what the model thought (`<think>`), what it
//! says, and the tools it calls. Concatenated pieces do not depend on how the text was cut.

use super::call::{CallPiece, CallReader, Step, ValueScan, Within};
use std::sync::Arc;

/// How a model writes that it calls a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStyle {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`, one after the other (Hermes, Qwen).
    Hermes,
    /// The answer is `{"name": …, "parameters": …}`, or several with `;` between them (Llama 3).
    Llama,
    /// `[TOOL_CALLS][{"name": …, "arguments": …}, …]`, or `[TOOL_CALLS]name{…}` for each
    /// (Mistral, older and newer).
    Mistral,
}

impl CallStyle {
    /// Every style with the name it is chosen by.
    pub const ALL: [(&'static str, Self); 3] =
        [("hermes", Self::Hermes), ("llama3_json", Self::Llama), ("mistral", Self::Mistral)];

    /// The style that a chat template is written for.
    pub fn of_template(source: &str) -> Self {
        if source.contains("[TOOL_CALLS]") {
            Self::Mistral
        } else if !source.contains("<tool_call>")
            && (source.contains("<|python_tag|>") || source.contains("\"parameters\": "))
        {
            Self::Llama
        } else {
            Self::Hermes
        }
    }

    /// What opens calls, wherever it stands in an answer.
    pub fn opening(self) -> &'static str {
        match self {
            Self::Hermes => "<tool_call>",
            Self::Llama => "<|python_tag|>",
            Self::Mistral => "[TOOL_CALLS]",
        }
    }
}

/// The calls that an answer may hold. What names none of these tools is text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calling {
    pub style: CallStyle,
    pub tools: Vec<String>,
    /// The answer may be a form instead, in which a `name` may be anything, a tool's too: a call
    /// has arguments beside it.
    pub or_form: bool,
}

impl Calling {
    pub(super) fn knows(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool == name)
    }
}

/// A part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    Content(String),
    Thought(String),
    /// Call number `index` begins.
    Call {
        index: usize,
        name: String,
    },
    /// More of the arguments, which are JSON as the model writes it.
    Arguments {
        index: usize,
        text: String,
    },
}

const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";
const CALLED: &str = "</tool_call>";
const ARGUMENTS: &str = "[ARGS]";

#[derive(Debug)]
enum State {
    /// Nothing but space yet.
    Start,
    Thinking,
    Content,
    /// After an opening or between two calls: space, a separator, the next object.
    Between,
    /// In an object. What was read of it is kept until its name is out.
    Call {
        reader: CallReader,
        raw: String,
    },
    /// Mistral's newer form: the name, up to the arguments.
    Name(String),
    Arguments(ValueScan),
}

/// Tells the parts of one answer apart.
#[derive(Debug)]
pub struct AnswerParser {
    calling: Option<Arc<Calling>>,
    thinks: bool,
    state: State,
    /// Text that may be the beginning of a marker, or space that may come before one.
    held: String,
    /// An opening whose call has not begun, with the space before it and what came after it.
    opened: String,
    /// In a list of calls.
    listed: bool,
    calls: usize,
    /// Some thought is out.
    begun: bool,
    /// A thought has ended.
    thought: bool,
    out: Vec<Piece>,
}

impl AnswerParser {
    /// `calling`: the calls, if there may be any. `thinks`: `<think>` tells of thoughts, and with
    /// `thinking` the prompt has opened it already.
    pub fn new(calling: Option<Arc<Calling>>, thinks: bool, thinking: bool) -> Self {
        Self {
            calling,
            thinks,
            state: if thinking { State::Thinking } else { State::Start },
            held: String::new(),
            opened: String::new(),
            listed: false,
            calls: 0,
            begun: false,
            thought: false,
            out: Vec::new(),
        }
    }

    /// Calls that have begun.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Takes more text; what became certain with it.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        text.chars().for_each(|c| self.take(c));
        std::mem::take(&mut self.out)
    }

    /// The answer is over: what was held back.
    pub fn finish(&mut self) -> Vec<Piece> {
        let held = std::mem::take(&mut self.held);
        let opened = std::mem::take(&mut self.opened);
        match std::mem::replace(&mut self.state, State::Content) {
            State::Thinking => self.think(&held),
            State::Call { reader, raw } if !reader.named() => self.say(&(opened + &raw)),
            State::Name(name) => self.say(&(opened + &name)),
            State::Start | State::Content | State::Between => self.say(&(opened + &held)),
            State::Call { .. } | State::Arguments(_) => {}
        }
        std::mem::take(&mut self.out)
    }

    fn style(&self) -> Option<CallStyle> {
        self.calling.as_ref().map(|calling| calling.style)
    }

    fn take(&mut self, c: char) {
        match &mut self.state {
            State::Start => self.start(c),
            State::Thinking => self.thinking(c),
            State::Content => self.saying(c),
            State::Between => self.between(c),
            State::Call { .. } => self.call(c),
            State::Name(_) => self.name(c),
            State::Arguments(_) => self.arguments(c),
        }
    }

    fn start(&mut self, c: char) {
        self.held.push(c);
        let text = self.held.trim_start();
        if text.is_empty() {
            return;
        }
        if self.thinks && THINK.starts_with(text) {
            if text == THINK {
                self.held.clear();
                self.state = State::Thinking;
            }
            return;
        }
        if let Some(calling) = self.calling.clone()
            && calling.style == CallStyle::Llama
            && text == "{"
        {
            let before = self.held.trim_end_matches(c);
            self.opened = if self.thought { String::new() } else { before.to_string() };
            self.held.clear();
            return self.begin_call(c, calling);
        }
        self.state = State::Content;
        let held = std::mem::take(&mut self.held);
        // Space between thought and answer belongs to neither.
        let held = if self.thought { held.trim_start() } else { &held };
        held.chars().for_each(|c| self.take(c));
    }

    fn thinking(&mut self, c: char) {
        self.held.push(c);
        let keep = if self.held.ends_with(THOUGHT) {
            (self.thinks, self.thought, self.state) = (false, true, State::Start);
            let thought = self.held.trim_end_matches(THOUGHT).trim_end().len();
            let thought = self.held[..thought].to_string();
            self.held.clear();
            return self.think(&thought);
        } else {
            tail(&self.held, &[THOUGHT])
        };
        let ready: String = self.held.drain(..self.held.len() - keep).collect();
        self.think(&ready);
    }

    fn saying(&mut self, c: char) {
        self.held.push(c);
        let Some(style) = self.style() else {
            let held = std::mem::take(&mut self.held);
            return self.say(&held);
        };
        if let Some(said) = self.held.strip_suffix(style.opening()) {
            // Space before the opening is text only if the opening is.
            let said = said.trim_end().to_string();
            let space = self.held[said.len()..].trim_end_matches(style.opening()).to_string();
            self.held.clear();
            (self.state, self.opened) = (State::Between, space);
            self.open(style);
            return self.say(&said);
        }
        let keep = tail(&self.held, &[style.opening()]);
        let ready: String = self.held.drain(..self.held.len() - keep).collect();
        self.say(&ready);
    }

    fn open(&mut self, style: CallStyle) {
        self.opened.push_str(style.opening());
        self.listed = false;
    }

    fn between(&mut self, c: char) {
        let Some(calling) = self.calling.clone() else { return self.outside(&c.to_string()) };
        let style = calling.style;
        if !self.held.is_empty() {
            return self.marker(c, style);
        }
        let fresh = self.opened.trim_end().ends_with(style.opening());
        match (c, style) {
            ('{', _) => self.begin_call(c, calling),
            ('<', CallStyle::Hermes | CallStyle::Llama) => self.held.push(c),
            (';', CallStyle::Llama) => self.around(";"),
            ('[', CallStyle::Mistral) if fresh => {
                self.listed = true;
                self.around("[");
            }
            (',', CallStyle::Mistral) if self.listed => self.around(","),
            (']', CallStyle::Mistral) if self.listed => {
                self.listed = false;
                self.around("]");
            }
            ('[', CallStyle::Mistral) => self.held.push(c),
            (c, _) if c.is_whitespace() => self.around(c.encode_utf8(&mut [0; 4])),
            (c, CallStyle::Mistral) if fresh => self.state = State::Name(c.to_string()),
            _ => self.outside(&c.to_string()),
        }
    }

    /// Takes what stands around calls; it stays text if none comes after the opening.
    fn around(&mut self, text: &str) {
        if !self.opened.is_empty() {
            self.opened.push_str(text);
        }
    }

    /// A character of a marker between two calls, or of something else.
    fn marker(&mut self, c: char, style: CallStyle) {
        self.held.push(c);
        if self.held == style.opening() {
            self.open(style);
            self.held.clear();
        } else if self.held == CALLED {
            self.around(CALLED);
            self.held.clear();
        } else if ![CALLED, style.opening()].iter().any(|m| m.starts_with(&self.held)) {
            let held = std::mem::take(&mut self.held);
            self.outside(&held);
        }
    }

    /// Text where a call or its end was due.
    fn outside(&mut self, text: &str) {
        let opened = std::mem::take(&mut self.opened);
        self.say(&opened);
        self.state = State::Content;
        text.chars().for_each(|c| self.take(c));
    }

    /// What was to be a call is none, so nothing of this answer is one any more.
    fn no_call(&mut self, text: &str) {
        let opened = std::mem::take(&mut self.opened);
        (self.calling, self.state) = (None, State::Content);
        self.say(&(opened + text));
    }

    fn begin_call(&mut self, c: char, calling: Arc<Calling>) {
        self.state = State::Call { reader: CallReader::new(calling), raw: String::new() };
        self.call(c);
    }

    fn call(&mut self, c: char) {
        let State::Call { reader, raw } = &mut self.state else { return };
        let mut pieces = Vec::new();
        let step = reader.push(c, &mut pieces);
        let named = reader.named();
        if !named {
            raw.push(c);
        }
        let raw = if step == Step::Broken { std::mem::take(raw) } else { String::new() };
        pieces.into_iter().for_each(|piece| self.piece(piece));
        match step {
            Step::More => {}
            Step::Closed => self.state = State::Between,
            Step::Broken if named => self.state = State::Between,
            Step::Broken => self.no_call(&raw),
        }
    }

    fn name(&mut self, c: char) {
        let State::Name(name) = &mut self.state else { return };
        if c != '{' {
            name.push(c);
            return;
        }
        let raw = std::mem::take(name) + "{";
        let name = raw.trim_end_matches('{').trim_end_matches(ARGUMENTS).trim().to_string();
        if !self.calling.as_ref().is_some_and(|calling| calling.knows(&name)) {
            return self.no_call(&raw);
        }
        self.piece(CallPiece::Name(name));
        self.piece(CallPiece::Arguments(c.to_string()));
        self.state = State::Arguments(ValueScan::start(c));
    }

    fn arguments(&mut self, c: char) {
        let State::Arguments(scan) = &mut self.state else { return };
        let within = scan.push(c);
        self.piece(CallPiece::Arguments(c.to_string()));
        if within != Within::Inside {
            self.state = State::Between;
        }
    }

    fn piece(&mut self, piece: CallPiece) {
        match piece {
            CallPiece::Name(name) => {
                let index = self.calls;
                self.calls += 1;
                self.opened.clear();
                self.out.push(Piece::Call { index, name });
            }
            CallPiece::Arguments(more) => {
                let at = self.calls.saturating_sub(1);
                match self.out.last_mut() {
                    Some(Piece::Arguments { index, text }) if *index == at => text.push_str(&more),
                    _ => self.out.push(Piece::Arguments { index: at, text: more }),
                }
            }
        }
    }

    fn say(&mut self, text: &str) {
        match self.out.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Content(last)) => last.push_str(text),
            _ => self.out.push(Piece::Content(text.to_string())),
        }
    }

    fn think(&mut self, text: &str) {
        // The line break after the opening is its own.
        let text = if self.begun { text } else { text.trim_start() };
        self.begun |= !text.is_empty();
        match self.out.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Thought(last)) => last.push_str(text),
            _ => self.out.push(Piece::Thought(text.to_string())),
        }
    }
}

/// Bytes at the end of `text` that may yet turn out to be space before one of `markers`, or its
/// beginning.
fn tail(text: &str, markers: &[&str]) -> usize {
    let begun = markers.iter().flat_map(|marker| {
        (1..marker.len()).rev().find(|n| text.ends_with(marker.get(..*n).unwrap_or(marker)))
    });
    let begun = begun.max().unwrap_or(0);
    let before = &text[..text.len() - begun];
    text.len() - before.trim_end().len()
}
