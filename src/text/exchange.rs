//! A vocabulary of GGUF keys as tokenizer.json, and back: byte-level BPE, and SentencePiece's BPE
//! whose scores are merges in Hugging Face's form.

use super::sentence::SPACE_MARK;
use super::stream::byte_piece;
use super::vocab::{BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED};
use super::{TextError, TokenizerExtra, Vocab, pre};
use crate::base::TokenId;
use serde_json::{Value, json};
use std::collections::HashMap;

fn wrong(reason: impl Into<String>) -> TextError {
    TextError::File { file: "tokenizer.json", reason: reason.into() }
}

impl Vocab {
    /// From a tokenizer.json and what the files beside it say.
    pub fn from_json(tokenizer_json: &[u8], extra: &TokenizerExtra) -> Result<Self, TextError> {
        let json: Value =
            serde_json::from_slice(tokenizer_json).map_err(|e| wrong(e.to_string()))?;
        let model = &json["model"];
        if model["type"].as_str().is_some_and(|kind| kind != "BPE") {
            return Err(wrong(format!("a model of type {} has no form in GGUF", model["type"])));
        }
        let table = model["vocab"].as_object().ok_or_else(|| wrong("model.vocab is no table"))?;
        let added = json["added_tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut out = Vocab { bos: extra.bos, eos: extra.eos.first().copied(), ..Vocab::default() };
        let id = |value: &Value| value.as_u64().filter(|id| *id < 1 << 22).map(|id| id as usize);
        for (piece, value) in table {
            out.place(id(value), piece, NORMAL)?;
        }
        for token in added {
            let content = token["content"].as_str().unwrap_or_default();
            let kind = if token["special"] == true { CONTROL } else { USER_DEFINED };
            out.place(id(&token["id"]), content, kind)?;
        }
        let merges = model["merges"].as_array().map(Vec::as_slice).unwrap_or_default();
        let merges: Vec<String> = merges.iter().filter_map(merge).collect();
        out.unk = model["unk_token"].as_str().and_then(|unk| out.id(unk));
        out.bos = out.bos.or(extra.bos_token.as_deref().and_then(|token| out.id(token)));
        out.eos = out.eos.or(extra.eos_token.as_deref().and_then(|token| out.id(token)));
        out.add_bos = extra.add_bos;
        if model["byte_fallback"] == true {
            out.become_sentence_piece(&json, &merges);
        } else {
            out.model = "gpt2".into();
            out.pre = Some(pre::name_of(&json)?.to_string());
            out.merges = merges;
        }
        Ok(out)
    }

    fn id(&self, token: &str) -> Option<TokenId> {
        self.tokens.iter().position(|t| t == token).and_then(|at| u32::try_from(at).ok())
    }

    fn place(&mut self, id: Option<usize>, piece: &str, kind: u32) -> Result<(), TextError> {
        let at = id.ok_or_else(|| wrong(format!("token `{piece}` has no id below 2^22")))?;
        while self.tokens.len() <= at {
            // A hole in the ids: nothing may become it.
            self.tokens.push(format!("[unused{}]", self.tokens.len()));
            self.token_types.push(UNUSED);
        }
        self.tokens[at] = piece.to_string();
        self.token_types[at] = kind;
        Ok(())
    }

    /// Merges as scores: a piece is as good as the first merge that makes it.
    fn become_sentence_piece(&mut self, json: &Value, merges: &[String]) {
        let mut rank: HashMap<String, usize> = HashMap::new();
        for (at, merge) in merges.iter().enumerate() {
            rank.entry(merge.replacen(' ', "", 1)).or_insert(at);
        }
        self.model = "llama".into();
        if let Some(unk) = self.unk {
            self.token_types[unk as usize] = UNKNOWN;
        }
        for (at, token) in self.tokens.iter().enumerate() {
            if byte_piece(token).is_some() {
                self.token_types[at] = BYTE;
            }
            let score = rank.get(token).map_or(-1e6, |rank| -(*rank as f32));
            self.scores.push(score);
        }
        let text = json["normalizer"].to_string() + &json["pre_tokenizer"].to_string();
        let prefix = text.contains("\"Prepend\"")
            || (text.contains("Metaspace") && !text.contains("\"prepend_scheme\":\"never\""));
        self.add_space_prefix = Some(prefix);
    }

    /// Whether BOS comes before a prompt.
    pub fn adds_bos(&self) -> Result<bool, TextError> {
        match (self.add_bos, self.model.as_str()) {
            (Some(adds), _) => Ok(adds),
            (None, "llama") => Ok(true),
            (None, _) => pre::kind(self.pre.as_deref()).map(|kind| kind.add_bos),
        }
    }

    /// A tokenizer.json that encodes alike.
    pub fn to_json(&self) -> Result<Vec<u8>, TextError> {
        let table: serde_json::Map<String, Value> =
            self.tokens.iter().cloned().zip((0u32..).map(Value::from)).collect();
        let added: Vec<Value> = self
            .added()
            .into_iter()
            .map(|(content, added)| {
                json!({"id": added.id, "content": content, "single_word": false, "lstrip": false,
                       "rstrip": added.rstrip, "normalized": false, "special": added.special})
            })
            .collect();
        let mut out = json!({"version": "1.0", "truncation": null, "padding": null,
                             "added_tokens": added, "post_processor": null});
        let model = match self.model.as_str() {
            "llama" => {
                self.sentence_parts(&mut out);
                json!({"type": "BPE", "dropout": null, "unk_token": self.unk_piece(),
                       "fuse_unk": true, "byte_fallback": true, "vocab": table,
                       "merges": self.score_merges()})
            }
            _ => {
                let kind = pre::kind(self.pre.as_deref())?;
                out["normalizer"] = if kind.nfc { json!({"type": "NFC"}) } else { Value::Null };
                out["pre_tokenizer"] = pre::to_json(kind);
                out["decoder"] = json!({"type": "ByteLevel", "add_prefix_space": false,
                                        "trim_offsets": true, "use_regex": false});
                let merges: Vec<[&str; 2]> = self
                    .merges
                    .iter()
                    .filter_map(|m| m.split_once(' ').map(|(left, right)| [left, right]))
                    .collect();
                json!({"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
                       "byte_fallback": false, "ignore_merges": kind.whole_pieces,
                       "vocab": table, "merges": merges})
            }
        };
        out["model"] = model;
        serde_json::to_vec(&out).map_err(|e| wrong(e.to_string()))
    }

    fn unk_piece(&self) -> Option<&str> {
        self.tokens.get(self.unk? as usize).map(String::as_str)
    }

    fn sentence_parts(&self, out: &mut Value) {
        let mark = SPACE_MARK.to_string();
        let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": mark});
        let prefix = self.add_space_prefix.unwrap_or(true);
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": mark}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        out["normalizer"] = spaces.clone();
        if prefix {
            let prepend = json!({"type": "Prepend", "prepend": mark});
            out["normalizer"] = json!({"type": "Sequence", "normalizers": [prepend, spaces]});
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        out["pre_tokenizer"] = Value::Null;
        out["decoder"] = json!({"type": "Sequence", "decoders": decoders});
    }

    /// Every way to make a piece of two, the best score first.
    fn score_merges(&self) -> Vec<[&str; 2]> {
        let pieces = self.tokens.iter().enumerate().filter(|(at, _)| self.kind_of(*at) == NORMAL);
        let ids: HashMap<&str, usize> = pieces.map(|(at, piece)| (piece.as_str(), at)).collect();
        let mut merges = Vec::new();
        for (piece, at) in &ids {
            let score = self.scores.get(*at).copied().unwrap_or(0.0);
            for (cut, _) in piece.char_indices().skip(1) {
                let (left, right) = piece.split_at(cut);
                if let (Some(l), Some(r)) = (ids.get(left), ids.get(right)) {
                    merges.push((-score, *l, *r, [left, right]));
                }
            }
        }
        merges.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        merges.into_iter().map(|merge| merge.3).collect()
    }
}

const UNUSED: u32 = 5;

/// A merge in either spelling.
fn merge(value: &Value) -> Option<String> {
    match value {
        Value::String(merge) => Some(merge.clone()),
        Value::Array(pair) => {
            Some(format!("{} {}", pair.first()?.as_str()?, pair.get(1)?.as_str()?))
        }
        _ => None,
    }
}
