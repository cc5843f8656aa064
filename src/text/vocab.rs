//! A tokenizer from GGUF metadata: byte-level BPE built from the same parts as a tokenizer.json.
//!
//! `tokenizer.ggml.pre` names how text is split before BPE. Each kind is one row of [`KINDS`]; a
//! further `tokenizer.ggml.model` is one arm of [`Vocab::build`].

use super::TextError;
use super::added::Added;
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
    /// 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty means all normal.
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
}

const UNKNOWN: u32 = 2;
const CONTROL: u32 = 3;
const USER_DEFINED: u32 = 4;

/// How a `pre` kind splits.
struct Kind {
    names: &'static [&'static str],
    /// Every digit on its own first.
    digits: bool,
    /// Each cuts what the ones before left.
    patterns: &'static [&'static str],
    /// A piece that is a token as a whole is taken without merging (vocabularies from tiktoken).
    whole_pieces: bool,
    nfc: bool,
    /// Whether BOS is wanted when the file does not say.
    add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA_BPE: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const KINDS: &[Kind] = &[
    Kind {
        names: &["gpt2", "gpt-2"],
        digits: false,
        patterns: &[GPT2],
        whole_pieces: false,
        nfc: false,
        add_bos: false,
    },
    Kind {
        names: &["smollm"],
        digits: true,
        patterns: &[GPT2],
        whole_pieces: false,
        nfc: false,
        add_bos: false,
    },
    Kind {
        names: &["llama-bpe", "llama3", "llama-v3"],
        digits: false,
        patterns: &[LLAMA_BPE],
        whole_pieces: true,
        nfc: false,
        add_bos: true,
    },
    Kind {
        names: &["qwen2", "deepseek-r1-qwen"],
        digits: false,
        patterns: &[QWEN2],
        whole_pieces: false,
        nfc: true,
        add_bos: false,
    },
    Kind {
        names: &["gpt-4o"],
        digits: false,
        patterns: &[GPT4O],
        whole_pieces: true,
        nfc: false,
        add_bos: false,
    },
    Kind {
        names: &["default"],
        digits: false,
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        whole_pieces: false,
        nfc: false,
        add_bos: false,
    },
];

fn known_kinds() -> String {
    KINDS.iter().map(|kind| kind.names[0]).collect::<Vec<_>>().join(", ")
}

fn kind(pre: Option<&str>) -> Result<&'static Kind, TextError> {
    let found = pre.ok_or_else(|| TextError::PreMissing { known: known_kinds() })?;
    KINDS
        .iter()
        .find(|kind| kind.names.contains(&found))
        .ok_or_else(|| TextError::PreUnknown { found: found.to_string(), known: known_kinds() })
}

/// The parts of a tokenizer that a GGUF file gives.
pub(super) struct Built {
    pub pipeline: Pipeline,
    pub added: Vec<(String, Added)>,
    pub add_bos: bool,
}

impl Vocab {
    pub(super) fn build(&self) -> Result<Built, TextError> {
        match self.model.as_str() {
            "gpt2" => self.build_byte_level(),
            other => Err(TextError::Model { found: other.to_string() }),
        }
    }

    fn build_byte_level(&self) -> Result<Built, TextError> {
        let kind = kind(self.pre.as_deref())?;
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
        Ok(Built { pipeline, added: self.added(), add_bos: self.add_bos.unwrap_or(kind.add_bos) })
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
        let Ok(end) = u32::try_from(count) else {
            return wrong("tokens", format!("{count} tokens are more than ids can name"));
        };
        Ok(self.tokens.iter().cloned().zip(0..end).collect())
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

    fn added(&self) -> Vec<(String, Added)> {
        let rows = self.tokens.iter().zip(&self.token_types).zip(0..);
        rows.filter(|((_, kind), _)| matches!(**kind, UNKNOWN | CONTROL | USER_DEFINED))
            .map(|((token, kind), id)| {
                let special = *kind != USER_DEFINED;
                let added = Added {
                    id,
                    special,
                    hard: special,
                    lstrip: false,
                    rstrip: false,
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
