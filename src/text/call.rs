//! One call of a tool as a model writes it, read while it comes: a JSON object with `name` and
//! `arguments` (or `parameters`) in any order. Arguments are passed on as they are written, as
//! soon as the name is known.

use super::answer::Calling;
use serde_json::Value;
use std::sync::Arc;

/// What became known of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CallPiece {
    Name(String),
    Arguments(String),
}

/// How far a reader is with one character more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    More,
    /// The object is closed.
    Closed,
    /// This is no call: no object, not JSON, or without the name of a tool.
    Broken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Open,
    BeforeKey,
    Key,
    Colon,
    BeforeValue,
    Value,
    AfterValue,
}

/// Follows one JSON value character by character.
#[derive(Default, Debug)]
pub(super) struct ValueScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Neither string nor object nor array: ends where something else begins.
    bare: bool,
}

/// What a character is to a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Within {
    Inside,
    /// The last character of it.
    Last,
    /// The first one after it.
    After,
}

impl ValueScan {
    /// Begins with the value's first character.
    pub fn start(first: char) -> Self {
        let nests = matches!(first, '{' | '[');
        let in_string = first == '"';
        Self { depth: usize::from(nests), in_string, escaped: false, bare: !nests && !in_string }
    }

    pub fn push(&mut self, c: char) -> Within {
        if self.in_string {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => {
                    self.in_string = false;
                    return if self.depth == 0 { Within::Last } else { Within::Inside };
                }
                _ => {}
            }
            return Within::Inside;
        }
        if self.bare {
            let ends = c.is_whitespace() || matches!(c, ',' | '}' | ']');
            return if ends { Within::After } else { Within::Inside };
        }
        match c {
            '"' => self.in_string = true,
            '{' | '[' => self.depth += 1,
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                return if self.depth == 0 { Within::Last } else { Within::Inside };
            }
            _ => {}
        }
        Within::Inside
    }
}

/// Reads one call.
#[derive(Debug)]
pub(super) struct CallReader {
    calling: Arc<Calling>,
    part: Part,
    key: String,
    value: String,
    scan: ValueScan,
    escaped: bool,
    /// A tool's name that is not out yet.
    name: Option<String>,
    named: bool,
    /// Arguments that wait for the name.
    held: String,
    told: bool,
}

impl CallReader {
    pub fn new(calling: Arc<Calling>) -> Self {
        Self {
            calling,
            part: Part::Open,
            key: String::new(),
            value: String::new(),
            scan: ValueScan::default(),
            escaped: false,
            name: None,
            named: false,
            held: String::new(),
            told: false,
        }
    }

    /// True once the name is out, so that the call cannot be taken back.
    pub fn named(&self) -> bool {
        self.named
    }

    pub fn push(&mut self, c: char, out: &mut Vec<CallPiece>) -> Step {
        match self.part {
            Part::Open | Part::BeforeKey | Part::Colon | Part::BeforeValue | Part::AfterValue
                if c.is_whitespace() => {}
            Part::Open if c == '{' => self.part = Part::BeforeKey,
            Part::BeforeKey if c == '"' => {
                self.key.clear();
                self.part = Part::Key;
            }
            Part::BeforeKey | Part::AfterValue if c == '}' => return self.close(out),
            Part::Key => self.key(c),
            Part::Colon if c == ':' => self.part = Part::BeforeValue,
            Part::BeforeValue => {
                self.scan = ValueScan::start(c);
                self.value.clear();
                self.part = Part::Value;
                self.keep(c, out);
            }
            Part::Value => return self.value(c, out),
            Part::AfterValue if c == ',' => self.part = Part::BeforeKey,
            _ => return Step::Broken,
        }
        Step::More
    }

    fn key(&mut self, c: char) {
        match c {
            _ if self.escaped => {
                self.escaped = false;
                self.key.push(c);
            }
            '\\' => self.escaped = true,
            '"' => self.part = Part::Colon,
            _ => self.key.push(c),
        }
    }

    fn value(&mut self, c: char, out: &mut Vec<CallPiece>) -> Step {
        match self.scan.push(c) {
            Within::Inside => {
                self.keep(c, out);
                Step::More
            }
            Within::Last => {
                self.keep(c, out);
                self.part = Part::AfterValue;
                self.complete(out)
            }
            Within::After => {
                self.part = Part::AfterValue;
                match self.complete(out) {
                    Step::More => self.push(c, out),
                    other => other,
                }
            }
        }
    }

    fn is_arguments(&self) -> bool {
        matches!(self.key.as_str(), "arguments" | "parameters")
    }

    fn keep(&mut self, c: char, out: &mut Vec<CallPiece>) {
        // Written as a string, they are read when it ends.
        if !self.is_arguments() || self.value.starts_with('"') || c == '"' && self.value.is_empty()
        {
            self.value.push(c);
            return;
        }
        if self.value.is_empty() {
            self.value.push(c);
        }
        self.held.push(c);
        self.tell(out);
    }

    /// Lets out what is certain: the name, then the arguments.
    fn tell(&mut self, out: &mut Vec<CallPiece>) {
        let certain = !(self.calling.or_form && self.held.is_empty());
        if let Some(name) = self.name.take_if(|_| certain) {
            self.named = true;
            out.push(CallPiece::Name(name));
        }
        if !self.named || self.held.is_empty() {
            return;
        }
        self.told = true;
        let text = std::mem::take(&mut self.held);
        match out.last_mut() {
            Some(CallPiece::Arguments(last)) => last.push_str(&text),
            _ => out.push(CallPiece::Arguments(text)),
        }
    }

    /// A value has ended.
    fn complete(&mut self, out: &mut Vec<CallPiece>) -> Step {
        let string = || serde_json::from_str::<Value>(&self.value).ok()?.as_str().map(String::from);
        if self.is_arguments() && self.value.starts_with('"') {
            let Some(text) = string() else { return Step::Broken };
            self.held.push_str(&text);
        } else if self.key == "name" && self.name.is_none() && !self.named {
            let name = string().filter(|name| self.calling.knows(name));
            let Some(name) = name else { return Step::Broken };
            self.name = Some(name);
        }
        self.tell(out);
        Step::More
    }

    fn close(&mut self, out: &mut Vec<CallPiece>) -> Step {
        if !self.named {
            return Step::Broken;
        }
        if !self.told {
            self.held.push_str("{}");
            self.tell(out);
        }
        Step::Closed
    }
}
