//! The added tokens of a vocabulary: control markers such as `<|im_end|>` and user-defined
//! pieces, and where they occur in a text.
//!
//! The `tokenizers` crate would match them itself, but only all or none; here each occurrence
//! can be refused, because a marker written by a user must stay text. Contents are sought in the
//! text as given, before any normaliser.

use crate::base::TokenId;
use std::collections::HashMap;
use std::ops::Range;

/// One added token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Added {
    pub id: TokenId,
    /// Hidden in decoded text.
    pub special: bool,
    /// Steers the model (turn ends, BOS): never matched in plain text.
    pub hard: bool,
    pub lstrip: bool,
    pub rstrip: bool,
    pub single_word: bool,
}

/// An accepted occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub range: Range<usize>,
    pub id: TokenId,
}

/// What a text may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Control markers stay text.
    Plain,
    /// Control markers become ids, unless a break lies inside.
    Markers,
}

/// The added tokens, ready for search. Shared by a tokenizer and its chat templates.
#[derive(Debug, Default)]
pub struct Markers {
    table: HashMap<Box<str>, Added>,
    /// Contents in byte order, for prefix search.
    sorted: Vec<Box<str>>,
    /// Lengths that occur, longest first.
    lengths: Vec<usize>,
    first_bytes: Vec<bool>,
}

impl Markers {
    pub(super) fn new(tokens: impl IntoIterator<Item = (String, Added)>) -> Self {
        let mut out = Self { first_bytes: vec![false; 256], ..Self::default() };
        for (content, added) in tokens {
            if let Some(first) = content.as_bytes().first() {
                out.first_bytes[usize::from(*first)] = true;
                out.table.insert(content.into_boxed_str(), added);
            }
        }
        out.sorted = out.table.keys().cloned().collect();
        out.sorted.sort_unstable();
        out.lengths = out.table.keys().map(|c| c.len()).collect();
        out.lengths.sort_unstable_by(|a, b| b.cmp(a));
        out.lengths.dedup();
        out
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Added)> {
        self.table.iter().map(|(content, added)| (&**content, added))
    }

    pub(super) fn length_max(&self) -> usize {
        self.lengths.first().copied().unwrap_or(0)
    }

    /// The added tokens that begin at byte `at`, longest first.
    pub(super) fn at<'a>(
        &'a self,
        text: &'a str,
        at: usize,
    ) -> impl Iterator<Item = (&'a str, &'a Added)> {
        let begins = text
            .as_bytes()
            .get(at)
            .is_some_and(|b| self.first_bytes.get(usize::from(*b)) == Some(&true));
        let lengths: &[usize] = if begins { &self.lengths } else { &[] };
        lengths.iter().filter_map(move |length| {
            let content = text.get(at..at + length)?;
            Some((content, self.table.get(content)?))
        })
    }

    /// Whether an added token accepted by `which` goes on after `head`.
    pub(super) fn continues(&self, head: &str, which: impl Fn(&str, &Added) -> bool) -> bool {
        let from = self.sorted.partition_point(|content| &**content <= head);
        self.sorted[from..]
            .iter()
            .take_while(|content| content.starts_with(head))
            .any(|content| self.table.get(content).is_some_and(|added| which(content, added)))
    }

    /// Leftmost-longest occurrences. `breaks` are ascending byte positions that no occurrence may
    /// span.
    pub(super) fn find(&self, text: &str, breaks: &[usize], trust: Trust) -> Vec<Match> {
        let mut out: Vec<Match> = Vec::new();
        let (mut at, mut done, mut next_break) = (0, 0, 0);
        while at < text.len() {
            while breaks.get(next_break).is_some_and(|b| *b <= at) {
                next_break += 1;
            }
            let fits = |content: &str, added: &Added| {
                let end = at + content.len();
                // A break cannot lie inside one character, so such a marker is never trusted.
                let trusted = trust == Trust::Markers && content.chars().nth(1).is_some();
                let whole = breaks.get(next_break).is_none_or(|b| *b >= end);
                let alone = !added.single_word || is_alone(text, at, end);
                (trusted || !added.hard) && whole && alone
            };
            let Some((content, added)) = self.at(text, at).find(|(c, a)| fits(c, a)) else {
                at += 1;
                continue;
            };
            let (mut start, mut end) = (at, at + content.len());
            if added.lstrip {
                start = text[..start].trim_end().len().max(done);
            }
            if added.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            out.push(Match { range: start..end, id: added.id });
            (at, done) = (end, end);
        }
        out
    }
}

fn is_alone(text: &str, start: usize, end: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..start].ends_with(is_word) && !text[end..].starts_with(is_word)
}
