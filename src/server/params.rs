//! The parameters that both generating routes share: JSON types are checked here, values by
//! the engine, which knows the model.

use super::app::App;
use super::choice::{Asked, Reading, Shape};
use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use super::structured::{self, Form};
use crate::base::TokenId;
use crate::engine::{EngineHandle, GenerateRequest};
use axum::http::StatusCode;
use serde_json::Value;

/// Fields of OpenAI's API that change nothing here.
const WITHOUT_EFFECT: [&str; 5] =
    ["metadata", "store", "service_tier", "prompt_cache_key", "verbosity"];

/// Fields of other servers that would change an answer and are not here, each with the value under
/// which it changes nothing.
const NOT_HERE: [(&str, &str); 22] = [
    ("prompt_logprobs", "null"),
    ("use_beam_search", "false"),
    ("length_penalty", "1.0"),
    ("allowed_token_ids", "null"),
    ("bad_words", "[]"),
    ("include_stop_str_in_output", "false"),
    ("skip_special_tokens", "true"),
    ("spaces_between_special_tokens", "true"),
    ("truncate_prompt_tokens", "null"),
    ("logits_processors", "null"),
    ("documents", "null"),
    ("continue_final_message", "false"),
    ("kv_transfer_params", "null"),
    ("audio", "null"),
    ("prediction", "null"),
    ("web_search_options", "null"),
    ("n_probs", "0"),
    ("mirostat", "0"),
    ("typical_p", "1.0"),
    ("dry_multiplier", "0.0"),
    ("xtc_probability", "0.0"),
    ("dynatemp_range", "0.0"),
];

/// A parsed request, its prompt still missing.
pub(super) struct Params {
    pub stream: bool,
    pub include_usage: bool,
    pub return_token_ids: bool,
    pub timings: bool,
    /// The prompt comes back before the answer.
    pub echo: bool,
    /// What the answer is held to.
    pub form: Option<Form>,
    /// How the parts of an answer are told apart.
    pub reading: Option<Reading>,
    pub request: GenerateRequest,
    /// The name under which the token limit came.
    limit_name: &'static str,
}

impl Params {
    pub fn read(fields: &mut Fields<'_>) -> ApiResult<Self> {
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let (limit_name, max_tokens) = token_limit(fields)?;
        refuse_unsupported(fields)?;
        let form = structured::read(fields)?;
        if let Some(form) = &form {
            structured::check(fields, &form.field)?;
        }
        let request = GenerateRequest {
            max_tokens,
            min_tokens: fields.count("min_tokens")?,
            temperature: fields.number("temperature")?,
            top_k: top_k(fields)?,
            top_p: fields.number("top_p")?,
            min_p: fields.number("min_p")?,
            repetition_penalty: repetition(fields)?,
            presence_penalty: fields.number("presence_penalty")?,
            frequency_penalty: fields.number("frequency_penalty")?,
            logit_bias: logit_bias(fields)?,
            seed: fields.bits("seed")?,
            stop: stop(fields)?,
            stop_token_ids: match fields.array("stop_token_ids")? {
                Some(ids) => token_ids(ids, "stop_token_ids")?,
                None => Vec::new(),
            },
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
            n: choices(fields)?,
            cache_salt: fields.string("cache_salt")?.map(str::to_string),
            priority: fields.count("priority")?,
            tenant: tenant(fields)?,
            timeout_ms: timeout(fields)?,
            ..GenerateRequest::default()
        };
        Ok(Self {
            stream,
            include_usage: include_usage(fields, stream)?,
            return_token_ids: fields.boolean("return_token_ids")?.unwrap_or(false),
            timings: timings(fields)?,
            echo: false,
            form,
            reading: None,
            request,
            limit_name,
        })
    }

    /// What every choice is asked for.
    pub fn asked(&self, shape: Shape) -> Asked {
        let logprobs = self.request.logprobs.is_some();
        Asked { shape, logprobs, token_ids: self.return_token_ids, echo: self.echo }
    }

    /// The engine's errors in the words of this request.
    pub fn rename(&self, mut error: ApiError) -> ApiError {
        if self.limit_name != "max_tokens" {
            error.message = error.message.replace("max_tokens", self.limit_name);
            error.param = error.param.map(|param| match param.as_str() {
                "max_tokens" => self.limit_name.to_string(),
                _ => param,
            });
        }
        error
    }
}

/// Checks `model`, and tells of fields that no route asked for.
pub(super) fn check_model(fields: &mut Fields<'_>, engine: &EngineHandle) -> ApiResult<()> {
    match fields.string("model")? {
        Some(name) if name != engine.card().name => Err(model_not_found(name, engine)),
        _ => Ok(()),
    }
}

pub(super) fn model_not_found(name: &str, engine: &EngineHandle) -> ApiError {
    let own = &engine.card().name;
    let message = format!("the model {name:?} does not exist here; this server has {own:?}");
    ApiError::new(StatusCode::NOT_FOUND, Some("model_not_found"), message).with_param("model")
}

/// Tells of a field that is accepted and changes nothing.
pub(super) fn note(app: &App, route: &str, name: &str) {
    app.note(route, name, "is accepted and changes nothing here");
}

pub(super) fn note_unknown(app: &App, route: &str, fields: &mut Fields<'_>) {
    for name in WITHOUT_EFFECT {
        if fields.get(name).is_some() {
            note(app, route, name);
        }
    }
    for name in fields.unknown() {
        app.note(route, name, "is not known and is ignored");
    }
}

/// `max_completion_tokens`, or by its older name `max_tokens`.
fn token_limit(fields: &mut Fields<'_>) -> ApiResult<(&'static str, Option<u32>)> {
    let new = fields.count("max_completion_tokens")?;
    let old = fields.count("max_tokens")?;
    match (new, old) {
        (Some(new), Some(old)) if new != old => {
            let message = "differs from max_tokens; give one of the two";
            Err(fields.wrong("max_completion_tokens", message))
        }
        (Some(new), _) => Ok(("max_completion_tokens", Some(new))),
        (None, old) => Ok(("max_tokens", old)),
    }
}

/// `n`. Of `best_of` all must be asked for: none is thrown away.
fn choices(fields: &mut Fields<'_>) -> ApiResult<Option<u32>> {
    let (n, best_of) = (fields.count("n")?, fields.count("best_of")?);
    match best_of {
        Some(best) if best != n.unwrap_or(1) => {
            Err(fields.wrong("best_of", "must be n: every choice computed is sent"))
        }
        _ => Ok(n),
    }
}

/// What other servers have and this one does not: refused, so that nobody takes the answer for it.
fn refuse_unsupported(fields: &mut Fields<'_>) -> ApiResult<()> {
    for (name, neutral) in NOT_HERE {
        let Some(value) = fields.get(name) else { continue };
        let neutral: Value = serde_json::from_str(neutral).unwrap_or_default();
        let same = match (value.as_f64(), neutral.as_f64()) {
            (Some(value), Some(neutral)) => value == neutral,
            _ => *value == neutral,
        };
        if !same {
            let message = format!("is not supported here; leave it out, or give {neutral}");
            return Err(fields.wrong(name, message));
        }
    }
    match fields.array("modalities")? {
        Some(list) if list.iter().any(|kind| kind != "text") => {
            Err(fields.wrong("modalities", "can be [\"text\"] only"))
        }
        _ => Ok(()),
    }
}

/// `user`, or `safety_identifier` in its place. (Where clients bring keys, the key counts.)
pub(super) fn tenant(fields: &mut Fields<'_>) -> ApiResult<Option<String>> {
    let newer = fields.string("safety_identifier")?;
    Ok(fields.string("user")?.or(newer).map(str::to_string))
}

/// `timeout`, in seconds.
pub(super) fn timeout(fields: &mut Fields<'_>) -> ApiResult<Option<u64>> {
    match fields.number("timeout")? {
        Some(seconds) if seconds.is_finite() && seconds > 0.0 => {
            Ok(Some((f64::from(seconds) * 1000.0).ceil() as u64))
        }
        Some(_) => Err(fields.wrong("timeout", "must be a number of seconds above 0")),
        None => Ok(None),
    }
}

/// 0 and −1 keep all.
fn top_k(fields: &mut Fields<'_>) -> ApiResult<Option<u32>> {
    match fields.get("top_k") {
        Some(value) if value.as_i64() == Some(-1) => Ok(Some(0)),
        _ => fields.count("top_k"),
    }
}

fn repetition(fields: &mut Fields<'_>) -> ApiResult<Option<f32>> {
    let alias = fields.number("repeat_penalty")?;
    Ok(fields.number("repetition_penalty")?.or(alias))
}

fn stop(fields: &mut Fields<'_>) -> ApiResult<Vec<String>> {
    let wrong = "must be a string or an array of strings";
    match fields.get("stop") {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(many)) => many
            .iter()
            .map(|one| one.as_str().map(str::to_string).ok_or_else(|| fields.wrong("stop", wrong)))
            .collect(),
        Some(_) => Err(fields.wrong("stop", wrong)),
    }
}

fn logit_bias(fields: &mut Fields<'_>) -> ApiResult<Vec<(TokenId, f32)>> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let entry = |(key, value): (&String, &Value)| {
        let id = key.parse::<TokenId>().map_err(|_| {
            fields.wrong("logit_bias", format!("has the key {key:?}, which is no token id"))
        })?;
        let bias = value.as_f64().ok_or_else(|| {
            fields.wrong("logit_bias", format!("has a value at {key:?} that is no number"))
        })?;
        Ok((id, bias as f32))
    };
    map.iter().map(entry).collect()
}

/// `timings`, also by llama-server's name; they come once, at the end.
fn timings(fields: &mut Fields<'_>) -> ApiResult<bool> {
    let alias = fields.boolean("timings_per_token")?.unwrap_or(false);
    Ok(fields.boolean("timings")?.unwrap_or(alias))
}

/// `stream_options.include_usage`; only for streams.
fn include_usage(fields: &mut Fields<'_>, stream: bool) -> ApiResult<bool> {
    let Some(options) = fields.object("stream_options")? else { return Ok(false) };
    if !stream {
        return Err(fields.wrong("stream_options", "is allowed only with stream: true"));
    }
    let mut options = Fields::new(options, "stream_options.");
    Ok(options.boolean("include_usage")?.unwrap_or(false))
}

/// Ids that the model has.
pub(super) fn check_ids(ids: &[TokenId], field: &str, engine: &EngineHandle) -> ApiResult<()> {
    let rows = engine.card().logit_rows;
    match ids.iter().find(|id| **id >= rows) {
        None => Ok(()),
        Some(id) => {
            let message = format!("{field}: token id {id} is outside the vocabulary of {rows} ids");
            Err(ApiError::field(field, message))
        }
    }
}

/// An array of token ids; which ids exist is the engine's to say.
pub(super) fn token_ids(values: &[Value], field: &str) -> ApiResult<Vec<TokenId>> {
    let id = |value: &Value| {
        value.as_u64().and_then(|id| TokenId::try_from(id).ok()).ok_or_else(|| {
            let message = format!("{field} must hold token ids, which are integers of 0 or more");
            ApiError::field(field, message)
        })
    };
    values.iter().map(id).collect()
}
