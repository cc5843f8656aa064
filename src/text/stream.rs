//! Ids back to text, piece by piece.
//!
//! The decoder of `tokenizer.json` is read into an incremental form. `push` returns only text
//! that later ids cannot change, so the concatenation of all pushes and `finish` is the decode of
//! the whole; [`Tokenizer::decode`](super::Tokenizer::decode) is this very stream.

use super::{TextError, Tokenizer};
use crate::base::TokenId;
use serde_json::Value;
use std::sync::Arc;

const REPLACEMENT: &str = "\u{FFFD}";

/// How pieces become text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoding {
    /// Each character of a piece is one byte (GPT-2's alphabet).
    ByteLevel,
    /// Pieces are text with word marks; single bytes are written `<0xE5>`.
    Text(TextDecoding),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TextDecoding {
    /// (from, to) in each piece.
    replace: Vec<(String, String)>,
    /// This character vanishes from the first piece and is a space in others.
    metaspace: Option<(char, bool)>,
    byte_fallback: bool,
    /// Up to so many of this character vanish from the start of the text.
    strip: Option<(char, usize)>,
}

impl Decoding {
    /// Of SentencePiece vocabularies: `mark` is a space; `strips` the one that encoding put first.
    pub fn sentence_piece(mark: char, strips: bool) -> Self {
        Self::Text(TextDecoding {
            replace: vec![(mark.to_string(), " ".into())],
            metaspace: None,
            byte_fallback: true,
            strip: strips.then_some((' ', 1)),
        })
    }

    /// Reads the `decoder` of a tokenizer.json.
    pub fn from_json(decoder: &Value) -> Result<Self, TextError> {
        let kind = |v: &Value| v["type"].as_str().unwrap_or("null").to_string();
        let steps = match kind(decoder).as_str() {
            "Sequence" => decoder["decoders"].as_array().cloned().unwrap_or_default(),
            _ => vec![decoder.clone()],
        };
        if let [only] = steps.as_slice()
            && kind(only) == "ByteLevel"
        {
            return Ok(Self::ByteLevel);
        }
        let mut text = TextDecoding::default();
        let mut fused = false;
        let mut known = !steps.is_empty();
        for step in &steps {
            let unsupported = || TextError::Decoder { kind: kind(step) };
            match kind(step).as_str() {
                "Replace" if !text.byte_fallback && !fused => {
                    let from = step["pattern"]["String"].as_str().ok_or_else(unsupported)?;
                    let to = step["content"].as_str().ok_or_else(unsupported)?;
                    text.replace.push((from.to_string(), to.to_string()));
                }
                "ByteFallback" if !fused => text.byte_fallback = true,
                "Fuse" => fused = true,
                "Metaspace" if steps.len() == 1 => {
                    let mark = first_char(&step["replacement"]).ok_or_else(unsupported)?;
                    let drops = step["prepend_scheme"].as_str() != Some("never");
                    text.metaspace = Some((mark, drops));
                }
                "Strip" if fused && text.strip.is_none() && step["stop"].as_u64() == Some(0) => {
                    let mark = first_char(&step["content"]).ok_or_else(unsupported)?;
                    let count = step["start"].as_u64().and_then(|n| usize::try_from(n).ok());
                    text.strip = Some((mark, count.ok_or_else(unsupported)?));
                }
                _ => known = false,
            }
            if !known {
                return Err(unsupported());
            }
        }
        Ok(Self::Text(text))
    }

    /// The bytes of one piece, where its text alone does not show them.
    pub fn bytes(&self, piece: &str) -> Option<Vec<u8>> {
        match self {
            Self::ByteLevel => {
                let mut out = Vec::new();
                push_bytes(piece, &mut out);
                Some(out)
            }
            Self::Text(text) => byte_piece(piece).filter(|_| text.byte_fallback).map(|b| vec![b]),
        }
    }
}

fn first_char(value: &Value) -> Option<char> {
    value.as_str()?.chars().next()
}

/// The state between two pushes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Bytes not yet known to be text: a cut character, or a run of byte pieces.
    pending: Vec<u8>,
    pieces: u64,
    stripped: usize,
    strip_over: bool,
}

impl Decoder {
    /// One that has text behind it, so that nothing is stripped.
    pub fn inside() -> Self {
        Self { pieces: 1, strip_over: true, ..Self::default() }
    }

    pub fn push(&mut self, decoding: &Decoding, piece: &str, out: &mut String) {
        match decoding {
            Decoding::ByteLevel => {
                push_bytes(piece, &mut self.pending);
                drain_lossy(&mut self.pending, out);
            }
            Decoding::Text(text) => self.push_text(text, piece, out),
        }
        self.pieces += 1;
    }

    pub fn finish(&mut self, decoding: &Decoding, out: &mut String) {
        match decoding {
            Decoding::ByteLevel if !self.pending.is_empty() => out.push_str(REPLACEMENT),
            Decoding::ByteLevel => {}
            Decoding::Text(text) => self.end_run(text, out),
        }
        self.pending.clear();
    }

    fn push_text(&mut self, text: &TextDecoding, piece: &str, out: &mut String) {
        let mut piece = piece.to_string();
        if let Some((mark, drops)) = text.metaspace {
            let space = if drops && self.pieces == 0 { "" } else { " " };
            piece = piece.replace(mark, space);
        }
        for (from, to) in &text.replace {
            piece = piece.replace(from.as_str(), to);
        }
        if let Some(byte) = byte_piece(&piece).filter(|_| text.byte_fallback) {
            self.pending.push(byte);
            return;
        }
        self.end_run(text, out);
        self.emit(text, &piece, out);
    }

    /// A run of byte pieces is one text, or one replacement character a byte: as Hugging Face has
    /// it, so the whole run waits for its end.
    fn end_run(&mut self, text: &TextDecoding, out: &mut String) {
        let run = std::mem::take(&mut self.pending);
        match std::str::from_utf8(&run) {
            Ok(run) => self.emit(text, run, out),
            Err(_) => self.emit(text, &REPLACEMENT.repeat(run.len()), out),
        }
    }

    fn emit(&mut self, text: &TextDecoding, piece: &str, out: &mut String) {
        let mut rest = piece;
        if let Some((mark, count)) = text.strip.filter(|_| !self.strip_over) {
            while self.stripped < count && rest.starts_with(mark) {
                rest = &rest[mark.len_utf8()..];
                self.stripped += 1;
            }
            self.strip_over = self.stripped == count || !rest.is_empty();
        }
        out.push_str(rest);
    }
}

/// The byte that a piece such as `<0x0A>` stands for.
pub(super) fn byte_piece(piece: &str) -> Option<u8> {
    let hex = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok())?
}

/// The byte that `c` stands for.
fn char_byte(c: char) -> Option<u8> {
    match u32::from(c) {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u8::try_from(u32::from(c)).ok(),
        code @ 256..=288 => u8::try_from(code - 256).ok(),
        code @ 289..=322 => u8::try_from(code - 289 + 0x7F).ok(),
        323 => Some(0xAD),
        _ => None,
    }
}

/// A piece with any character outside the byte alphabet (an added token) is its own text.
fn push_bytes(piece: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in piece.chars() {
        match char_byte(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(piece.as_bytes());
                return;
            }
        }
    }
}

/// Moves all that is decided from `bytes` to `out`, bad sequences as `String::from_utf8_lossy`
/// writes them; a cut character at the end stays.
fn drain_lossy(bytes: &mut Vec<u8>, out: &mut String) {
    let mut rest = bytes.as_slice();
    let kept = loop {
        match std::str::from_utf8(rest) {
            Ok(text) => {
                out.push_str(text);
                break 0;
            }
            Err(error) => {
                let (good, bad) = rest.split_at(error.valid_up_to());
                out.push_str(std::str::from_utf8(good).unwrap_or_default());
                let Some(length) = error.error_len() else { break bad.len() };
                out.push_str(REPLACEMENT);
                rest = &bad[length..];
            }
        }
    };
    bytes.drain(..bytes.len() - kept);
}

/// One sequence's text as its ids arrive.
#[derive(Debug)]
pub struct TextStream {
    tokenizer: Arc<Tokenizer>,
    decoder: Decoder,
}

impl TextStream {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { tokenizer, decoder: Decoder::default() }
    }

    /// The text that `id` settles: whole characters only, perhaps none. Special tokens and ids
    /// outside the vocabulary have no text.
    pub fn push(&mut self, id: TokenId) -> String {
        let mut out = String::new();
        self.tokenizer.push_id(&mut self.decoder, id, &mut out);
        out
    }

    /// The text of a control token that is content for once, after what was held back.
    pub fn push_shown(&mut self, id: TokenId) -> String {
        self.finish() + &self.tokenizer.token_text(id)
    }

    /// What was held back; a character that was never completed is one U+FFFD.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.decoder.finish(self.tokenizer.decoding(), &mut out);
        out
    }
}
