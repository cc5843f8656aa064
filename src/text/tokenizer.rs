//! Text to ids: one type over both sources, with the rules for control markers and BOS.
//!
//! The [`Encoder`] does normalising, splitting and BPE; the added tokens are matched here
//! ([`Markers`]), so that each use decides which of them it trusts.

use super::added::{Added, Match, Trust};
use super::encoder::Encoder;
use super::stream::{Decoder, Decoding, byte_piece};
use super::{ChatTemplate, Markers, Rendered, TextError, TextStream, Vocab};
use crate::base::{TokenId, caught_quietly};
use serde_json::Value;
use std::sync::Arc;
use tokenizers::{AddedVocabulary, ModelWrapper, Tokenizer as Pipeline};

const FILE: &str = "tokenizer.json";

/// Longest value that an error repeats, in characters.
const SHOWN_MAX: usize = 120;

/// Control tokens that end a turn or a text in the model families there are; a file that lists
/// only one of them as EOS still means the others.
const END_MARKERS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "<EOT>",
    "<｜end▁of▁sentence｜>",
];

/// Markers of turns that some files fail to flag as control tokens.
const TURN_MARKERS: &[&str] = &["<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>"];

/// The same, but where a file names other tokens as BOS and EOS these are tags of HTML (Gemma).
const OLD_TURN_MARKERS: &[&str] = &["<s>", "</s>"];

/// What files beside tokenizer.json say.
#[derive(Clone, Debug, Default)]
pub struct TokenizerExtra {
    pub bos: Option<TokenId>,
    pub eos: Vec<TokenId>,
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
    /// `None`: as tokenizer.json's post-processor does.
    pub add_bos: Option<bool>,
    /// Rows of the model's logits, where they are more or fewer than the vocabulary.
    pub logit_rows: Option<u32>,
}

impl TokenizerExtra {
    /// Reads tokenizer_config.json, where there is one.
    pub fn from_config(tokenizer_config: Option<&[u8]>) -> Result<Self, TextError> {
        let Some(bytes) = tokenizer_config else { return Ok(Self::default()) };
        let config: Value = serde_json::from_slice(bytes).map_err(|e| TextError::File {
            file: "tokenizer_config.json",
            reason: e.to_string(),
        })?;
        let file = "tokenizer_config.json";
        // A token is written as a string, or as an object with its content.
        let token = |key: &'static str| {
            let read = |v: &Value| v.as_str().or(v["content"].as_str()).map(str::to_string);
            setting(&config, file, key, "a token", read)
        };
        Ok(Self {
            bos_token: token("bos_token")?,
            eos_token: token("eos_token")?,
            add_bos: setting(&config, file, "add_bos_token", "true or false", Value::as_bool)?,
            ..Self::default()
        })
    }
}

/// What `read` makes of a field of a JSON file; `None` where the field is absent or null. A value
/// that it makes nothing of is an error: left out, the model would answer otherwise than meant.
pub fn setting<T>(
    config: &Value,
    file: &'static str,
    key: &str,
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, TextError> {
    match config.get(key).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| {
            let mut found: String = value.to_string().chars().take(SHOWN_MAX).collect();
            if found.len() < value.to_string().len() {
                found.push('…');
            }
            TextError::File { file, reason: format!("`{key}` is {found}, not {expected}") }
        }),
    }
}

/// The ids in a config's `eos_token_id`: a number, a list, or null. Old files write -1 for none.
pub fn token_ids(config: &Value, file: &'static str, key: &str) -> Result<Vec<TokenId>, TextError> {
    let id = |v: &Value| match v.as_i64() {
        Some(-1) => Some(None),
        Some(id) => u32::try_from(id).ok().map(Some),
        None => None,
    };
    let read = |value: &Value| match value {
        Value::Array(list) => list.iter().map(id).collect::<Option<Vec<_>>>(),
        one => id(one).map(|id| vec![id]),
    };
    let ids = setting(config, file, key, "a token's id, or a list of them", read)?;
    Ok(ids.unwrap_or_default().into_iter().flatten().collect())
}

/// A vocabulary with its rules. Immutable; shared by `Arc`.
#[derive(Debug)]
pub struct Tokenizer {
    encoder: Encoder,
    markers: Arc<Markers>,
    decoding: Decoding,
    /// Piece of every id, as the decoder takes it.
    pieces: Vec<Option<Box<str>>>,
    special: Vec<bool>,
    bos: Option<TokenId>,
    /// Put before a prompt that does not begin with it.
    prefix: Vec<TokenId>,
    eos: Vec<TokenId>,
    logit_rows: Option<u32>,
}

impl Tokenizer {
    /// From a tokenizer.json and what the files beside it say.
    pub fn from_json(tokenizer_json: &[u8], extra: TokenizerExtra) -> Result<Self, TextError> {
        // The library panics on some files that it has read without complaint.
        caught_quietly(|| Self::of_json(tokenizer_json, extra)).unwrap_or_else(|said| {
            let reason = format!("cannot be used: {said}");
            Err(TextError::File { file: FILE, reason })
        })
    }

    fn of_json(tokenizer_json: &[u8], extra: TokenizerExtra) -> Result<Self, TextError> {
        let wrong = |e: tokenizers::Error| TextError::File { file: FILE, reason: e.to_string() };
        let mut pipeline = Pipeline::from_bytes(tokenizer_json).map_err(wrong)?;
        refuse_unmerged(&pipeline, tokenizer_json)?;
        let id_of =
            |token: &Option<String>| token.as_deref().and_then(|token| pipeline.token_to_id(token));
        let (mut bos, mut eos) = (extra.bos.or(id_of(&extra.bos_token)), extra.eos.clone());
        eos.extend(id_of(&extra.eos_token));
        let mut prefix = template_prefix(&pipeline).map_err(wrong)?;
        bos = bos.or(prefix.first().copied());
        match extra.add_bos {
            Some(false) => prefix.clear(),
            Some(true) if prefix.is_empty() => prefix.extend(bos),
            _ => {}
        }
        let decoder = serde_json::to_value(pipeline.get_decoder())
            .map_err(|e| TextError::File { file: FILE, reason: e.to_string() })?;
        let decoding = Decoding::from_json(&decoder)?;
        let added: Vec<(String, Added)> = pipeline
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| {
                let added = Added {
                    id,
                    special: token.special,
                    hard: token.special,
                    lstrip: token.lstrip,
                    rstrip: token.rstrip,
                    single_word: token.single_word,
                };
                (token.content, added)
            })
            .collect();
        let mut pieces = Vec::new();
        for (piece, id) in pipeline.get_vocab(true) {
            set_piece(&mut pieces, id, piece)?;
        }
        pipeline.with_added_vocabulary(AddedVocabulary::new());
        let encoder = Encoder::Pipeline(Box::new(pipeline));
        let parts = Parts { encoder, added, decoding, pieces, bos, eos, prefix };
        parts.into_tokenizer(extra.logit_rows)
    }

    /// From the `tokenizer.ggml.*` keys of a GGUF file.
    pub fn from_vocab(vocab: Vocab) -> Result<Self, TextError> {
        caught_quietly(|| Self::of_vocab(vocab)).unwrap_or_else(|said| {
            let reason = format!("cannot be used: {said}");
            Err(TextError::Vocab { field: "tokens", reason })
        })
    }

    fn of_vocab(vocab: Vocab) -> Result<Self, TextError> {
        let built = vocab.build()?;
        let bos = vocab.bos;
        let prefix = bos.filter(|_| built.add_bos).into_iter().collect();
        let mut eos: Vec<TokenId> = vocab.eos.into_iter().collect();
        eos.extend(&vocab.eot);
        let pieces = vocab.tokens.into_iter().map(|t| Some(t.into_boxed_str())).collect();
        let parts = Parts {
            encoder: built.encoder,
            added: built.added,
            decoding: built.decoding,
            pieces,
            bos,
            eos,
            prefix,
        };
        parts.into_tokenizer(None)
    }

    /// Plain text: control markers in it stay text, nothing is put before it.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        self.encode_as(text, false, false)
    }

    /// A raw completion prompt: its author writes control markers on purpose, so they count. BOS
    /// comes first where the tokenizer wants one, never twice.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        self.encode_as(text, true, true)
    }

    /// A rendered chat: markers that the template wrote are ids, those that came with a message
    /// stay text. BOS exactly once, whether template or tokenizer puts it.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<TokenId>, TextError> {
        let matches = self.markers.find(&rendered.text, &rendered.breaks, Trust::Markers);
        let ids = self.run(&rendered.text, &matches)?;
        Ok(self.with_prefix(ids))
    }

    /// Text with a choice: whether control markers in it count, and whether what the tokenizer puts
    /// before a text comes first.
    pub fn encode_as(
        &self,
        text: &str,
        markers: bool,
        begin: bool,
    ) -> Result<Vec<TokenId>, TextError> {
        let trust = if markers { Trust::Markers } else { Trust::Plain };
        let ids = self.run(text, &self.markers.find(text, &[], trust))?;
        Ok(if begin { self.with_prefix(ids) } else { ids })
    }

    fn with_prefix(&self, mut ids: Vec<TokenId>) -> Vec<TokenId> {
        // One leading BOS is enough to tell that the prompt brings its own beginning.
        if let Some(first) = self.prefix.first()
            && ids.first() != Some(first)
        {
            ids.splice(0..0, self.prefix.iter().copied());
        }
        ids
    }

    /// `into_tokenizer` has tried a probe; what a file is wrong about may show at any other text.
    fn run(&self, text: &str, matches: &[Match]) -> Result<Vec<TokenId>, TextError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let done = caught_quietly(|| self.encoder.encode(text, matches));
        done.unwrap_or_else(|said| Err(said.into())).map_err(|e| TextError::Encode(e.to_string()))
    }

    /// The pieces of plain text that BPE will work on, for inspection: where `pre` kinds differ.
    pub fn split(&self, text: &str) -> Vec<String> {
        let matches = self.markers.find(text, &[], Trust::Plain);
        self.encoder.split(text, &matches).unwrap_or_default()
    }

    /// The text of `ids` without special tokens; equal to a [`TextStream`] over them.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let (mut decoder, mut out) = (Decoder::default(), String::new());
        for id in ids {
            self.push_id(&mut decoder, *id, &mut out);
        }
        decoder.finish(&self.decoding, &mut out);
        out
    }

    pub fn stream(self: &Arc<Self>) -> TextStream {
        TextStream::new(self.clone())
    }

    pub(super) fn push_id(&self, decoder: &mut Decoder, id: TokenId, out: &mut String) {
        if !self.is_special(id)
            && let Some(piece) = self.piece(id)
        {
            decoder.push(&self.decoding, piece, out);
        }
    }

    pub(super) fn decoding(&self) -> &Decoding {
        &self.decoding
    }

    fn piece(&self, id: TokenId) -> Option<&str> {
        self.pieces.get(usize::try_from(id).ok()?)?.as_deref()
    }

    /// One token shown by itself, special tokens included: for logprobs and inspection.
    pub fn token_text(&self, id: TokenId) -> String {
        let (mut decoder, mut out) = (Decoder::default(), String::new());
        if self.is_special(id) {
            return self.piece(id).unwrap_or_default().to_string();
        }
        self.push_id(&mut decoder, id, &mut out);
        decoder.finish(&self.decoding, &mut out);
        out
    }

    /// The bytes of one token, also where they are only part of a character.
    pub fn token_bytes(&self, id: TokenId) -> Vec<u8> {
        match self.piece(id) {
            Some(piece) if !self.is_special(id) => {
                self.decoding.bytes(piece).unwrap_or_else(|| self.token_text(id).into_bytes())
            }
            piece => piece.unwrap_or_default().as_bytes().to_vec(),
        }
    }

    /// The bytes of one token where other text stands before it; `None` where it has no text.
    pub fn inner_bytes(&self, id: TokenId) -> Option<Vec<u8>> {
        let piece = self.piece(id).filter(|_| !self.is_special(id))?;
        Some(self.decoding.bytes(piece).unwrap_or_else(|| {
            let (mut decoder, mut out) = (Decoder::inside(), String::new());
            decoder.push(&self.decoding, piece, &mut out);
            decoder.finish(&self.decoding, &mut out);
            out.into_bytes()
        }))
    }

    pub fn token_id(&self, token: &str) -> Option<TokenId> {
        let added = self.markers.at(token, 0).find(|(content, _)| *content == token);
        added.map(|(_, a)| a.id).or_else(|| self.encoder.token_id(token))
    }

    pub fn is_special(&self, id: TokenId) -> bool {
        usize::try_from(id).is_ok_and(|id| self.special.get(id) == Some(&true))
    }

    /// One more than the largest id.
    pub fn vocab_size(&self) -> u32 {
        u32::try_from(self.pieces.len()).unwrap_or(u32::MAX)
    }

    /// Ids that a request may name: rows of the logits.
    pub fn logit_rows(&self) -> u32 {
        self.logit_rows.unwrap_or(self.vocab_size())
    }

    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// The EOS ids the tokenizer's own files name.
    pub fn eos(&self) -> &[TokenId] {
        &self.eos
    }

    pub fn adds_bos(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// All ids that end a generation: the tokenizer's, `more` from the model's configs, and
    /// control tokens that are end markers by name. Ascending, each once.
    pub fn stop_ids(&self, more: &[TokenId]) -> Vec<TokenId> {
        // Where an answer is several messages, `<|end|>` ends only one of them.
        let ends_message = self.token_id("<|return|>").is_some();
        let named = self.markers.iter().filter(|(content, added)| {
            added.hard && END_MARKERS.contains(content) && !(ends_message && *content == "<|end|>")
        });
        let mut out: Vec<TokenId> = named.map(|(_, added)| added.id).collect();
        out.extend(self.eos.iter().chain(more));
        out.sort_unstable();
        out.dedup();
        out
    }

    /// For [`ChatTemplate::compile`].
    pub fn markers(&self) -> &Arc<Markers> {
        &self.markers
    }

    /// `bos_token` as templates see it; empty without one.
    pub fn bos_text(&self) -> &str {
        self.bos.and_then(|id| self.piece(id)).unwrap_or_default()
    }

    /// `eos_token` as templates see it; empty without one.
    pub fn eos_text(&self) -> &str {
        self.eos.first().and_then(|id| self.piece(*id)).unwrap_or_default()
    }

    /// Compiles a chat template against this vocabulary.
    pub fn template(&self, source: &str) -> Result<ChatTemplate, TextError> {
        ChatTemplate::compile(source, self.bos_text(), self.eos_text(), &self.markers)
    }
}

/// Whether no text is written like this, but markers of turns are.
pub(super) fn reads_as_marker(token: &str) -> bool {
    (token.starts_with("<|") && token.ends_with("|>")) || TURN_MARKERS.contains(&token)
}

/// What both sources give.
struct Parts {
    encoder: Encoder,
    added: Vec<(String, Added)>,
    decoding: Decoding,
    pieces: Vec<Option<Box<str>>>,
    bos: Option<TokenId>,
    eos: Vec<TokenId>,
    prefix: Vec<TokenId>,
}

impl Parts {
    fn into_tokenizer(mut self, logit_rows: Option<u32>) -> Result<Tokenizer, TextError> {
        let rows = u32::try_from(self.pieces.len()).unwrap_or(u32::MAX);
        let vocab_size = rows.max(logit_rows.unwrap_or(0));
        let named = self.bos.iter().map(|id| ("bos_token_id", *id));
        for (field, id) in named.chain(self.eos.iter().map(|id| ("eos_token_id", *id))) {
            if id >= vocab_size {
                return Err(TextError::TokenId { field, id, vocab_size });
            }
        }
        let mut special = vec![false; self.pieces.len()];
        let named_both = self.bos.is_some() && !self.eos.is_empty();
        for (content, added) in &mut self.added {
            added.hard |= reads_as_marker(content)
                || (!named_both && OLD_TURN_MARKERS.contains(&content.as_str()))
                || self.bos == Some(added.id)
                || self.eos.contains(&added.id);
            // End markers that a file leaves unflagged still have no place in an answer.
            added.special |= added.hard && END_MARKERS.contains(&content.as_str());
            if let Some(slot) = usize::try_from(added.id).ok().and_then(|id| special.get_mut(id)) {
                *slot |= added.special;
            }
        }
        let tokenizer = Tokenizer {
            encoder: self.encoder,
            markers: Arc::new(Markers::new(self.added)),
            decoding: self.decoding,
            pieces: self.pieces,
            special,
            bos: self.bos,
            prefix: self.prefix,
            eos: self.eos,
            logit_rows,
        };
        // Letters, digits, a character of four bytes: what a vocabulary may fail to spell.
        tokenizer
            .encoder
            .encode("a 1\n\u{1F600}\u{10FFFF}", &[])
            .map_err(|e| TextError::File { file: FILE, reason: format!("cannot encode: {e}") })?;
        Ok(tokenizer)
    }
}

fn set_piece(
    pieces: &mut Vec<Option<Box<str>>>,
    id: TokenId,
    piece: String,
) -> Result<(), TextError> {
    // Ids index tables; a file cannot make one of unbounded size.
    const ID_MAX: u32 = 1 << 22;
    let slot = usize::try_from(id).ok().filter(|_| id < ID_MAX).ok_or_else(|| TextError::File {
        file: FILE,
        reason: format!("token `{piece}` has id {id}; ids end below {ID_MAX}"),
    })?;
    if pieces.len() <= slot {
        pieces.resize(slot + 1, None);
    }
    pieces[slot] = Some(piece.into_boxed_str());
    Ok(())
}

/// As [`Vocab`]'s: tokens of several characters come about by merges alone.
fn refuse_unmerged(pipeline: &Pipeline, tokenizer_json: &[u8]) -> Result<(), TextError> {
    #[derive(serde::Deserialize)]
    struct Model {
        #[serde(default)]
        merges: Vec<serde::de::IgnoredAny>,
    }
    #[derive(serde::Deserialize)]
    struct File {
        model: Model,
    }
    let ModelWrapper::BPE(model) = pipeline.get_model() else { return Ok(()) };
    let wrong = |reason| TextError::File { file: FILE, reason };
    let file: File = serde_json::from_slice(tokenizer_json).map_err(|e| wrong(e.to_string()))?;
    if !file.model.merges.is_empty() {
        return Ok(());
    }
    let added = pipeline.get_added_vocabulary().get_vocab();
    let unknown = model.get_unk_token().as_deref();
    let lead = model.get_continuing_subword_prefix().as_deref().unwrap_or_default();
    let merged = |piece: &str| {
        let rest = piece.strip_prefix(lead).unwrap_or(piece);
        rest.chars().nth(1).is_some() && byte_piece(piece).is_none()
    };
    let pieces = model.get_vocab();
    let mut pieces = pieces.keys().filter(|p| !added.contains_key(*p) && unknown != Some(&***p));
    match pieces.find(|piece| merged(piece)) {
        None => Ok(()),
        Some(piece) => Err(wrong(format!(
            "model.merges is empty, but nothing else makes tokens such as `{piece}`"
        ))),
    }
}

/// The ids that the post-processor puts before any text. An EOS after it is not taken over:
/// a prompt is there to be continued.
fn template_prefix(pipeline: &Pipeline) -> tokenizers::Result<Vec<TokenId>> {
    let bare = pipeline.encode_fast("a", false)?;
    let full = pipeline.encode_fast("a", true)?;
    let (bare, full) = (bare.get_ids(), full.get_ids());
    let at = full.windows(bare.len().max(1)).position(|window| window == bare);
    Ok(full[..at.unwrap_or(0)].to_vec())
}
