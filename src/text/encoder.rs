//! Text between markers to ids: the pipeline of the `tokenizers` crate, or SentencePiece's BPE.

use super::added::Match;
use super::sentence::SentencePiece;
use crate::base::TokenId;
use tokenizers::normalizer::Range;
use tokenizers::{
    Model, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, Result, Token, Tokenizer as Pipeline,
};

#[derive(Debug)]
pub(super) enum Encoder {
    Pipeline(Box<Pipeline>),
    SentencePiece(SentencePiece),
}

/// A stretch of text, or a marker's id.
enum Part<'a> {
    Text(&'a str),
    Marker(TokenId),
}

impl Encoder {
    /// The ids of `text`, whose markers are `matches`.
    pub fn encode(&self, text: &str, matches: &[Match]) -> Result<Vec<TokenId>> {
        match self {
            Self::Pipeline(pipeline) => {
                let mut parts = split_parts(pipeline, text, matches)?;
                let model = pipeline.get_model();
                parts.tokenize(|part| model.tokenize(part.get()))?;
                let splits = parts.get_splits(OffsetReferential::Original, OffsetType::None);
                let tokens = splits.iter().flat_map(|(_, _, tokens)| tokens.iter().flatten());
                Ok(tokens.map(|t| t.id).collect())
            }
            Self::SentencePiece(model) => {
                let mut out = Vec::new();
                let mut first = true;
                for part in parts(text, matches) {
                    match part {
                        Part::Text(text) => model.encode(&model.marked(text, first), &mut out),
                        Part::Marker(id) => out.push(id),
                    }
                    first = matches!(part, Part::Marker(_));
                }
                Ok(out)
            }
        }
    }

    /// The stretches of plain text that BPE works on.
    pub fn split(&self, text: &str, matches: &[Match]) -> Result<Vec<String>> {
        match self {
            Self::Pipeline(pipeline) => {
                let parts = split_parts(pipeline, text, matches)?;
                let splits = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
                let texts = splits.iter().filter_map(|(_, (from, to), _)| text.get(*from..*to));
                Ok(texts.map(str::to_string).collect())
            }
            Self::SentencePiece(_) => Ok(parts(text, matches)
                .into_iter()
                .filter_map(|part| match part {
                    Part::Text(text) => Some(text.to_string()),
                    Part::Marker(_) => None,
                })
                .collect()),
        }
    }

    pub fn token_id(&self, token: &str) -> Option<TokenId> {
        match self {
            Self::Pipeline(pipeline) => pipeline.token_to_id(token),
            Self::SentencePiece(model) => model.id(token),
        }
    }
}

fn parts<'a>(text: &'a str, matches: &[Match]) -> Vec<Part<'a>> {
    let mut out = Vec::with_capacity(2 * matches.len() + 1);
    let mut done = 0;
    for found in matches {
        if done < found.range.start {
            out.push(Part::Text(&text[done..found.range.start]));
        }
        out.push(Part::Marker(found.id));
        done = found.range.end;
    }
    if done < text.len() {
        out.push(Part::Text(&text[done..]));
    }
    out
}

fn split_parts(pipeline: &Pipeline, text: &str, matches: &[Match]) -> Result<PreTokenizedString> {
    let mut parts = PreTokenizedString::from(text);
    parts.split(|_, whole| Ok(cut(&whole, matches)))?;
    if let Some(normalizer) = pipeline.get_normalizer() {
        parts.normalize(|part| normalizer.normalize(part))?;
    }
    if let Some(pre) = pipeline.get_pre_tokenizer() {
        pre.pre_tokenize(&mut parts)?;
    }
    Ok(parts)
}

/// Cuts the text at the matches, which carry their ids from here on.
fn cut(whole: &NormalizedString, matches: &[Match]) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
    let mut out = Vec::with_capacity(2 * matches.len() + 1);
    let mut done = 0;
    let mut push = |from: usize, to: usize, id: Option<TokenId>| {
        if from < to
            && let Some(part) = whole.slice(Range::Normalized(from..to))
        {
            let tokens = id.map(|id| vec![Token::new(id, part.get().to_string(), (0, to - from))]);
            out.push((part, tokens));
        }
    };
    for found in matches {
        push(done, found.range.start, None);
        push(found.range.start, found.range.end, Some(found.id));
        done = found.range.end;
    }
    push(done, whole.len(), None);
    out
}
