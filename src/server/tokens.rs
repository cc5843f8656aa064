//! POST /tokenize, /detokenize and /apply-template: what the model would read, for clients that
//! count and for people who write templates. The field names of both llama-server (`content`,
//! `add_special`) and vLLM (`prompt`, `messages`, `add_special_tokens`) are known.

use super::app::App;
use super::body;
use super::error::{ApiError, ApiResult, json_response};
use super::fields::Fields;
use super::params::{check_ids, check_model, note_unknown, token_ids};
use super::prompt::Conversation;
use crate::base::TokenId;
use crate::engine::{EngineHandle, ModelCard};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// What to encode.
enum Source {
    Chat(Box<Conversation>),
    Text { text: String, markers: bool, begin: bool },
}

impl Source {
    fn read(app: &App, fields: &mut Fields<'_>) -> ApiResult<Self> {
        // Only one of these is used; the others are not unknown for that.
        for name in ["prompt", "content", "messages"].iter().chain(Conversation::FIELDS) {
            fields.get(name);
        }
        let asked = fields.boolean("add_special")?;
        let begin = fields.boolean("add_special_tokens")?.or(asked);
        let markers = fields.boolean("parse_special")?;
        // A prompt is read as /v1/completions reads it, content as a message's is.
        if let Some(text) = fields.string("prompt")? {
            let (markers, begin) = (markers.unwrap_or(true), begin.unwrap_or(true));
            return Ok(Self::Text { text: text.to_string(), markers, begin });
        }
        if let Some(text) = fields.string("content")? {
            let (markers, begin) = (markers.unwrap_or(false), begin.unwrap_or(false));
            return Ok(Self::Text { text: text.to_string(), markers, begin });
        }
        if fields.get("messages").is_some() {
            return Ok(Self::Chat(Box::new(Conversation::read(app, fields)?)));
        }
        Err(fields.wrong("prompt", "is required (or content, or messages)"))
    }

    fn encode(&self, engine: &EngineHandle) -> ApiResult<Vec<TokenId>> {
        let tokenizer = &engine.card().tokenizer;
        let ids = match self {
            Self::Chat(chat) => tokenizer.encode_rendered(&chat.render(engine)?),
            Self::Text { text, markers, begin } => tokenizer.encode_as(text, *markers, *begin),
        };
        ids.map_err(|error| ApiError::encode(&error))
    }
}

pub(super) async fn tokenize(State(app): State<Arc<App>>, request: Request) -> ApiResult<Response> {
    let engine = app.engine()?;
    let body = body::object(&app, request).await?;
    let mut fields = Fields::new(&body, "");
    check_model(&mut fields, &engine)?;
    let pieces = fields.boolean("with_pieces")?.unwrap_or(false);
    let texts = fields.boolean("return_token_strs")?.unwrap_or(false);
    let source = Source::read(&app, &mut fields)?;
    note_unknown(&app, "/tokenize", &mut fields);
    let encode = move |engine: &EngineHandle| {
        let ids = source.encode(engine)?;
        let card = engine.card();
        let text = |id: &TokenId| json!(card.tokenizer.token_text(*id));
        let tokens: Vec<Value> = match pieces {
            true => ids.iter().map(|id| json!({"id": id, "piece": piece(card, *id)})).collect(),
            false => ids.iter().map(|id| json!(id)).collect(),
        };
        let mut answer = json!({
            "tokens": tokens,
            "count": ids.len(),
            "max_model_len": engine.sequence_tokens_max(),
        });
        if texts {
            answer["token_strs"] = ids.iter().map(text).collect();
        }
        Ok(answer)
    };
    let answer = app.off_thread(&engine, encode).await?;
    Ok(json_response(StatusCode::OK, &answer))
}

/// A token's text, or its bytes where they are only part of a character.
fn piece(card: &ModelCard, id: TokenId) -> Value {
    match String::from_utf8(card.tokenizer.token_bytes(id)) {
        Ok(text) => json!(text),
        Err(error) => json!(error.into_bytes()),
    }
}

pub(super) async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> ApiResult<Response> {
    let engine = app.engine()?;
    let body = body::object(&app, request).await?;
    let mut fields = Fields::new(&body, "");
    check_model(&mut fields, &engine)?;
    let Some(list) = fields.array("tokens")? else {
        return Err(fields.wrong("tokens", "is required"));
    };
    let ids = token_ids(list, "tokens")?;
    check_ids(&ids, "tokens", &engine)?;
    note_unknown(&app, "/detokenize", &mut fields);
    let decode = move |engine: &EngineHandle| Ok(decoded(engine.card(), &ids));
    let text = app.off_thread(&engine, decode).await?;
    let answer = json!({"content": text, "prompt": text});
    Ok(json_response(StatusCode::OK, &answer))
}

/// The text of `ids`, control tokens shown as they are written.
fn decoded(card: &ModelCard, ids: &[TokenId]) -> String {
    let (mut text, mut stream) = (String::new(), card.tokenizer.stream());
    for &id in ids {
        if card.tokenizer.is_special(id) {
            text.push_str(&stream.finish());
            stream = card.tokenizer.stream();
            text.push_str(&card.tokenizer.token_text(id));
        } else {
            text.push_str(&stream.push(id));
        }
    }
    text + &stream.finish()
}

pub(super) async fn apply_template(
    State(app): State<Arc<App>>,
    request: Request,
) -> ApiResult<Response> {
    let engine = app.engine()?;
    let body = body::object(&app, request).await?;
    let mut fields = Fields::new(&body, "");
    check_model(&mut fields, &engine)?;
    let conversation = Conversation::read(&app, &mut fields)?;
    note_unknown(&app, "/apply-template", &mut fields);
    let render = move |engine: &EngineHandle| {
        conversation.render(engine).map(|rendered| rendered.text().to_string())
    };
    let prompt = app.off_thread(&engine, render).await?;
    Ok(json_response(StatusCode::OK, &json!({"prompt": prompt})))
}
