//! A request of the wire as the engine takes it.

use super::io;
use super::wire::{Ask, Texts};
use crate::engine::{GenerateRequest, ModelCard};
use crate::text::{Message, RenderOptions};
use serde::Deserialize;
use serde_json::{Value, json};

/// What is wrong, and with which field.
pub type Wrong = (String, Option<String>);

fn wrong(field: &str, message: impl Into<String>) -> Wrong {
    (message.into(), Some(field.to_string()))
}

/// The fields of a request; the first that cannot be read is named.
fn fields(request: &Value) -> Result<Ask, Wrong> {
    Ask::deserialize(request).map_err(|error| {
        let wrong = request.as_object().into_iter().flatten().find_map(|(name, value)| {
            let alone = json!({ name: value });
            Ask::deserialize(&alone).err().map(|error| (format!("{name}: {error}"), name))
        });
        match wrong {
            Some((message, name)) => (message, Some(name.clone())),
            None => (error.to_string(), None),
        }
    })
}

/// Checks the form; the engine checks the values.
pub fn read(request: &Value, card: &ModelCard) -> Result<GenerateRequest, Wrong> {
    let ask = fields(request)?;
    let max_tokens = match (ask.max_completion_tokens, ask.max_tokens) {
        (Some(new), Some(old)) if new != old => {
            return Err(wrong("max_completion_tokens", "differs from max_tokens; give one"));
        }
        (new, old) => new.or(old),
    };
    let logprobs = match (ask.logprobs, ask.top_logprobs) {
        (false, Some(_)) => return Err(wrong("top_logprobs", "needs logprobs: true")),
        (true, top) => Some(top.unwrap_or(0)),
        (false, None) => None,
    };
    Ok(GenerateRequest {
        prompt: prompt(&ask, card)?,
        max_tokens,
        n: ask.n,
        temperature: ask.temperature,
        top_k: ask.top_k,
        top_p: ask.top_p,
        min_p: ask.min_p,
        repetition_penalty: ask.repetition_penalty,
        presence_penalty: ask.presence_penalty,
        frequency_penalty: ask.frequency_penalty,
        seed: ask.seed,
        stop: match ask.stop {
            None => Vec::new(),
            Some(Texts::One(one)) => vec![one],
            Some(Texts::Several(several)) => several,
        },
        logprobs,
        ignore_eos: ask.ignore_eos,
        tenant: ask.user,
        ..GenerateRequest::default()
    })
}

fn prompt(ask: &Ask, card: &ModelCard) -> Result<Vec<u32>, Wrong> {
    let turns = match (&ask.messages, &ask.prompt) {
        (None, Some(text)) => {
            let ids = card.tokenizer.encode_prompt(text);
            return ids.map_err(|error| wrong("prompt", error.to_string()));
        }
        (Some(turns), None) if !turns.is_empty() => turns,
        _ => return Err(wrong("messages", "must hold a message, or prompt a text; not both")),
    };
    let Some(template) = &card.template else {
        return Err(wrong("messages", "this model has no chat template; use prompt"));
    };
    let messages: Vec<Message> =
        turns.iter().map(|turn| Message::new(turn.role.as_str(), turn.content.as_str())).collect();
    let options = RenderOptions {
        add_generation_prompt: true,
        now: i64::try_from(io::wall_millis() / 1000).ok(),
        ..RenderOptions::default()
    };
    let rendered = template.render(&messages, &options);
    let rendered = rendered.map_err(|error| wrong("messages", error.to_string()))?;
    let ids = card.tokenizer.encode_rendered(&rendered);
    ids.map_err(|error| wrong("messages", error.to_string()))
}
