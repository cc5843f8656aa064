//! Log-probabilities in the two shapes of the API. The chosen token's value and its entry
//! among the alternatives are the same float, because clients compare them for equality.

use crate::base::TokenId;
use crate::engine::{ModelCard, TokenLogprobs};
use serde_json::{Map, Value, json};

/// Stands for minus infinity, which JSON cannot write.
const LOWEST: f64 = -9999.0;

/// One entry of `logprobs.content` of a chat choice.
pub(super) fn chat(card: &ModelCard, id: TokenId, found: &TokenLogprobs) -> Value {
    let entry = |id: TokenId, logprob: f32| {
        json!({
            "token": card.tokenizer.token_text(id),
            "logprob": number(logprob),
            "bytes": card.tokenizer.token_bytes(id),
        })
    };
    let top: Vec<Value> = found.top.iter().map(|&(id, logprob)| entry(id, logprob)).collect();
    let mut chosen = entry(id, found.chosen);
    chosen["top_logprobs"] = Value::Array(top);
    chosen
}

/// The parallel lists of a plain completion.
#[derive(Default)]
pub(super) struct TextLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
}

impl TextLogprobs {
    /// Adds a token whose text begins after `offset` characters of the answer. The first token of
    /// a prompt has nothing before it to be likely after.
    pub fn push(
        &mut self,
        card: &ModelCard,
        id: TokenId,
        found: Option<&TokenLogprobs>,
        offset: usize,
    ) {
        let text = |id: TokenId| card.tokenizer.token_text(id);
        self.tokens.push(text(id));
        self.text_offset.push(offset);
        let Some(found) = found else {
            self.token_logprobs.push(None);
            return self.top_logprobs.push(Value::Null);
        };
        let mut top = Map::new();
        for &(id, logprob) in &found.top {
            // Two ids may read the same; the more likely one stays.
            top.entry(text(id)).or_insert_with(|| json!(number(logprob)));
        }
        top.entry(text(id)).or_insert_with(|| json!(number(found.chosen)));
        self.token_logprobs.push(Some(number(found.chosen)));
        self.top_logprobs.push(Value::Object(top));
    }

    pub fn append(&mut self, mut more: Self) {
        self.tokens.append(&mut more.tokens);
        self.token_logprobs.append(&mut more.token_logprobs);
        self.top_logprobs.append(&mut more.top_logprobs);
        self.text_offset.append(&mut more.text_offset);
    }

    pub fn value(&self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        })
    }
}

fn number(logprob: f32) -> f64 {
    if logprob.is_finite() { f64::from(logprob) } else { LOWEST }
}
