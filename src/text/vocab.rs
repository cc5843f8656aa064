//! A tokenizer from GGUF metadata: byte-level BPE built from the same parts as a tokenizer.json,
//! or SentencePiece.
//!
//! `tokenizer.ggml.pre` names how text is split before byte-level BPE ([`super::pre`]); a further
//! `tokenizer.ggml.model` is one arm of [`Vocab::build`].

use super::TextError;
use super::added::Added;
use super::encoder::Encoder;
use super::pre::{Kind, kind};
use super::sentence::{SPACE_MARK, SentencePiece};
use super::stream::{Decoding, byte_piece};
use super::tokenizer::reads_as_marker;
use crate::base::TokenId;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab as Ids};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer as Pipeline};

/// The `tokenizer.ggml.*` keys, as the file has them.
#[derive(Clone, Debug, Default)]
pub struct Vocab {
    pub model: String,
    pub pre: Option<String>,
    pub tokens: Vec<String>,
    /// 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty where the file has
    /// none, and other keys say what they can.
    pub token_types: Vec<u32>,
    pub merges: Vec<String>,
    pub scores: Vec<f32>,
    pub bos: Option<TokenId>,
    pub eos: Option<TokenId>,
    /// `eot_token_id`, and `eom_token_id` if there is one.
    pub eot: Vec<TokenId>,
    pub unk: Option<TokenId>,
    pub pad: Option<TokenId>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
    /// Control tokens take the whitespace after them along, but for `<s>`, `<unk>` and
    /// `<|endoftext|>` (Phi 3: its GGUF files cannot say so).
    pub markers_strip: bool,
}

/// Control tokens that never strip.
const PLAIN_MARKERS: [&str; 3] = ["<s>", "<unk>", "<|endoftext|>"];

pub(super) const NORMAL: u32 = 1;
pub(super) const UNKNOWN: u32 = 2;
pub(super) const CONTROL: u32 = 3;
pub(super) const USER_DEFINED: u32 = 4;
pub(super) const BYTE: u32 = 6;

/// The parts of a tokenizer that a GGUF file gives.
pub(super) struct Built {
    pub encoder: Encoder,
    pub decoding: Decoding,
    pub added: Vec<(String, Added)>,
    pub add_bos: bool,
}

impl Vocab {
    pub(super) fn build(&self) -> Result<Built, TextError> {
        match self.model.as_str() {
            "gpt2" => self.build_byte_level(),
            "llama" => self.build_sentence_piece(),
            other => Err(TextError::Model { found: other.to_string() }),
        }
    }

    fn build_byte_level(&self) -> Result<Built, TextError> {
        let kind = kind(self.pre.as_deref())?;
        self.refuse_unmerged()?;
        let model = BPE::builder()
            .vocab_and_merges(self.ids()?, self.pairs()?)
            .ignore_merges(kind.whole_pieces)
            .build()
            .map_err(|e| TextError::Vocab { field: "merges", reason: e.to_string() })?;
        let mut pipeline = Pipeline::new(model);
        pipeline.with_pre_tokenizer(Some(splitter(kind)?));
        pipeline.with_decoder(Some(ByteLevel::default()));
        if kind.nfc {
            pipeline.with_normalizer(Some(NFC));
        }
        Ok(Built {
            encoder: Encoder::Pipeline(Box::new(pipeline)),
            decoding: Decoding::ByteLevel,
            added: self.added(),
            add_bos: self.add_bos.unwrap_or(kind.add_bos),
        })
    }

    fn build_sentence_piece(&self) -> Result<Built, TextError> {
        let ids = self.ids()?;
        if self.scores.len() != self.tokens.len() {
            let reason = format!("{} scores for {} tokens", self.scores.len(), self.tokens.len());
            return Err(TextError::Vocab { field: "scores", reason });
        }
        // What text may turn into: a control token is never spelled out, nor is a byte's.
        let spelled = self.tokens.iter().zip(0..).zip(&self.scores).enumerate();
        let pieces = spelled
            .filter(|(at, _)| matches!(self.kind_of(*at), NORMAL | USER_DEFINED))
            .map(|(_, ((token, id), score))| (token.clone(), id, *score));
        let byte = |byte: u8| ids.get(&format!("<0x{byte:02X}>")).copied();
        let space_prefix = self.add_space_prefix.unwrap_or(true);
        let model = SentencePiece::new(pieces, byte, self.unk, space_prefix)?;
        let mut added = self.added();
        // Markers are sought in the text as it comes.
        for (content, _) in &mut added {
            *content = content.replace(SPACE_MARK, " ");
        }
        Ok(Built {
            encoder: Encoder::SentencePiece(model),
            decoding: Decoding::sentence_piece(SPACE_MARK, space_prefix),
            added,
            add_bos: self.add_bos.unwrap_or(true),
        })
    }

    fn ids(&self) -> Result<Ids, TextError> {
        let wrong = |field, reason| Err(TextError::Vocab { field, reason });
        let count = self.tokens.len();
        if count == 0 {
            return wrong("tokens", "the list is empty; the file has no vocabulary".into());
        }
        if !self.token_types.is_empty() && self.token_types.len() != count {
            let reason = format!("{} types for {count} tokens", self.token_types.len());
            return wrong("token_type", reason);
        }
        if let Some((id, kind)) =
            self.token_types.iter().enumerate().find(|(_, kind)| !(NORMAL..=BYTE).contains(*kind))
        {
            let reason = format!("token {id} is of type {kind}; types {NORMAL} to {BYTE} exist");
            return wrong("token_type", reason);
        }
        let Ok(end) = u32::try_from(count) else {
            return wrong("tokens", format!("{count} tokens are more than ids can name"));
        };
        Ok(self.tokens.iter().cloned().zip(0..end).collect())
    }

    /// The type of a token. A file without types says of some by other keys that they steer the
    /// model, of others by how they are written, and of none that it is text.
    pub(super) fn kind_of(&self, at: usize) -> u32 {
        if let Some(kind) = self.token_types.get(at) {
            return *kind;
        }
        let is = |id: &Option<TokenId>| id.and_then(|id| usize::try_from(id).ok()) == Some(at);
        let eot = self.eot.iter().copied().map(Some);
        match self.tokens.get(at) {
            _ if is(&self.unk) => UNKNOWN,
            _ if [self.bos, self.eos, self.pad].into_iter().chain(eot).any(|id| is(&id)) => CONTROL,
            Some(token) if reads_as_marker(token) => CONTROL,
            Some(token) if self.model == "llama" && byte_piece(token).is_some() => BYTE,
            _ => NORMAL,
        }
    }

    /// Tokens of several bytes come about by merges alone: without any, all text would be bytes to
    /// the model.
    fn refuse_unmerged(&self) -> Result<(), TextError> {
        let merged = |(at, token): &(usize, &String)| {
            self.kind_of(*at) == NORMAL && token.chars().nth(1).is_some()
        };
        match self.tokens.iter().enumerate().find(merged) {
            Some((_, token)) if self.merges.is_empty() => {
                let reason =
                    format!("is missing or empty, but nothing else makes tokens such as `{token}`");
                Err(TextError::Vocab { field: "merges", reason })
            }
            _ => Ok(()),
        }
    }

    fn pairs(&self) -> Result<Vec<(String, String)>, TextError> {
        let pair = |(index, merge): (usize, &String)| {
            // A left half may itself begin with a space in odd vocabularies, never be empty.
            let cut = merge.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
            let (left, right) = cut.map(|at| (&merge[..at], &merge[at + 1..])).unwrap_or_default();
            if left.is_empty() || right.is_empty() {
                let reason = format!("entry {index} is `{merge}`, not two pieces and a space");
                return Err(TextError::Vocab { field: "merges", reason });
            }
            Ok((left.to_string(), right.to_string()))
        };
        self.merges.iter().enumerate().map(pair).collect()
    }

    pub(super) fn added(&self) -> Vec<(String, Added)> {
        let rows = self.tokens.iter().enumerate().zip(0..);
        rows.map(|((at, token), id)| (token, self.kind_of(at), id))
            .filter(|(_, kind, _)| matches!(*kind, UNKNOWN | CONTROL | USER_DEFINED))
            .map(|(token, kind, id)| {
                let special = kind != USER_DEFINED;
                let added = Added {
                    id,
                    special,
                    hard: special,
                    lstrip: false,
                    rstrip: special
                        && self.markers_strip
                        && !PLAIN_MARKERS.contains(&token.as_str()),
                    single_word: false,
                };
                (token.clone(), added)
            })
            .collect()
    }
}

fn splitter(kind: &Kind) -> Result<Sequence, TextError> {
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    if kind.digits {
        steps.push(Digits::new(true).into());
    }
    for pattern in kind.patterns {
        let pattern = SplitPattern::Regex((*pattern).to_string());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
            .map_err(|e| TextError::Vocab { field: "pre", reason: e.to_string() })?;
        steps.push(split.into());
    }
    steps.push(ByteLevel::new(false, true, false).into());
    Ok(Sequence::new(steps))
}
