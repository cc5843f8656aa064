//! SentencePiece's BPE over scores, as GGUF files of the `llama` kind hold it: single characters
//! are joined pairwise, the pair with the best score first and the leftmost of equals, until no
//! two neighbours form a piece. A character that is no piece becomes its bytes' tokens.
//!
//! Source: Kudo and Richardson, "SentencePiece" (2018). Time is O(n log n) in the text's length.

use super::TextError;
use crate::base::TokenId;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// What stands for a space in pieces.
pub(super) const SPACE_MARK: char = '\u{2581}';

#[derive(Debug)]
pub(super) struct SentencePiece {
    /// Pieces that text can become, with their scores: no control, byte or unused token.
    pieces: HashMap<Box<str>, (TokenId, f32)>,
    /// Bytes of the longest piece.
    longest: usize,
    /// The token of every byte; `None` if the vocabulary lacks some.
    bytes: Option<Box<[TokenId; 256]>>,
    /// For characters, where there are no byte tokens.
    unknown: Option<TokenId>,
    /// Puts a space before text at the start and after a marker.
    space_prefix: bool,
}

/// Characters joined so far; a symbol swallowed by its left neighbour has no length.
struct Symbol {
    start: usize,
    length: usize,
    before: Option<usize>,
    after: Option<usize>,
}

/// A possible join of two neighbours.
struct Join {
    score: f32,
    left: usize,
    right: usize,
    /// Of both together when this was found; another length means one of them has grown.
    length: usize,
}

impl Ord for Join {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Join {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Join {}

impl SentencePiece {
    /// `pieces` are (piece, id, score); `byte` gives the token of a byte.
    pub fn new(
        pieces: impl Iterator<Item = (String, TokenId, f32)>,
        byte: impl Fn(u8) -> Option<TokenId>,
        unknown: Option<TokenId>,
        space_prefix: bool,
    ) -> Result<Self, TextError> {
        let pieces: HashMap<Box<str>, (TokenId, f32)> =
            pieces.map(|(piece, id, score)| (piece.into_boxed_str(), (id, score))).collect();
        let all: Option<Vec<TokenId>> = (0..=u8::MAX).map(byte).collect();
        let bytes = all.and_then(|all| all.into_boxed_slice().try_into().ok());
        if bytes.is_none() && unknown.is_none() {
            let reason = "there are neither byte tokens `<0x00>` to `<0xFF>` nor an unknown token";
            return Err(TextError::Vocab { field: "tokens", reason: reason.into() });
        }
        let longest = pieces.keys().map(|piece| piece.len()).max().unwrap_or(0);
        Ok(Self { pieces, longest, bytes, unknown, space_prefix })
    }

    pub fn id(&self, piece: &str) -> Option<TokenId> {
        self.pieces.get(piece).map(|found| found.0)
    }

    /// The text as pieces are sought in it; `first`: it begins the prompt or follows a marker.
    pub fn marked(&self, text: &str, first: bool) -> String {
        let prefix = if self.space_prefix && first { " " } else { "" };
        [prefix, text].concat().replace(' ', SPACE_MARK.encode_utf8(&mut [0; 4]))
    }

    /// Appends the ids of `text`, spaces marked.
    pub fn encode(&self, text: &str, out: &mut Vec<TokenId>) {
        let mut symbols = symbols(text);
        let mut joins = BinaryHeap::new();
        for left in 0..symbols.len().saturating_sub(1) {
            joins.extend(self.join(text, &symbols, left));
        }
        while let Some(Join { left, right, length, .. }) = joins.pop() {
            let (l, r) = (&symbols[left], &symbols[right]);
            if l.length == 0 || r.length == 0 || l.length + r.length != length {
                continue;
            }
            let after = r.after;
            symbols[right].length = 0;
            (symbols[left].length, symbols[left].after) = (length, after);
            if let Some(after) = after {
                symbols[after].before = Some(left);
            }
            joins.extend(symbols[left].before.and_then(|before| self.join(text, &symbols, before)));
            joins.extend(self.join(text, &symbols, left));
        }
        for symbol in symbols.iter().filter(|s| s.length > 0) {
            self.emit(&text[symbol.start..symbol.start + symbol.length], out);
        }
    }

    /// The join of a symbol with its right neighbour, if that is a piece.
    fn join(&self, text: &str, symbols: &[Symbol], left: usize) -> Option<Join> {
        let right = symbols[left].after?;
        let (start, length) = (symbols[left].start, symbols[left].length + symbols[right].length);
        if length > self.longest {
            return None;
        }
        let (_, score) = *self.pieces.get(&text[start..start + length])?;
        Some(Join { score, left, right, length })
    }

    fn emit(&self, piece: &str, out: &mut Vec<TokenId>) {
        match (self.id(piece), &self.bytes) {
            (Some(id), _) => out.push(id),
            (None, Some(bytes)) => out.extend(piece.bytes().map(|b| bytes[usize::from(b)])),
            (None, None) => out.extend(self.unknown),
        }
    }
}

fn symbols(text: &str) -> Vec<Symbol> {
    let mut out: Vec<Symbol> = text
        .char_indices()
        .enumerate()
        .map(|(n, (start, c))| Symbol {
            start,
            length: c.len_utf8(),
            before: n.checked_sub(1),
            after: Some(n + 1),
        })
        .collect();
    if let Some(last) = out.last_mut() {
        last.after = None;
    }
    out
}
