//! The form that an answer is held to: `response_format`, and by other names of vLLM
//! (`structured_outputs`, `guided_*`) and llama-server (`json_schema`).

use super::error::{ApiError, ApiResult};
use super::fields::Fields;
use crate::text::{GrammarSource, JSON_OBJECT};
use serde_json::{Map, Value, json};

/// A form, and the field that a fault of it is told under.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Form {
    pub source: GrammarSource,
    pub field: String,
}

/// The form that the request asks for; only one of the fields may.
pub(super) fn read(fields: &mut Fields<'_>) -> ApiResult<Option<Form>> {
    let mut forms: Vec<Form> = response_format(fields)?.into_iter().collect();
    forms.extend(structured_outputs(fields)?);
    for name in ["guided_json", "json_schema"] {
        if let Some(value) = fields.get(name) {
            forms.push(schema(value, &fields.path(name))?);
        }
    }
    if let Some(regex) = fields.string("guided_regex")? {
        forms.push(form(GrammarSource::Regex(regex.to_string()), fields.path("guided_regex")));
    }
    if let Some(list) = fields.array("guided_choice")? {
        forms.push(choice(list, &fields.path("guided_choice"))?);
    }
    if let Some(lark) = fields.string("guided_grammar")? {
        forms.push(form(GrammarSource::Lark(lark.to_string()), fields.path("guided_grammar")));
    }
    if fields.get("grammar").is_some() {
        let message = "in GBNF is not supported; give structured_outputs: {\"grammar\": …} in \
                       llguidance's dialect of Lark";
        return Err(fields.wrong("grammar", message));
    }
    if forms.len() > 1 {
        let message = format!("{} and {} ask for two forms", forms[0].field, forms[1].field);
        return Err(ApiError::field(&forms[1].field, message));
    }
    Ok(forms.pop())
}

/// What could cut an answer before it has its form is refused together with one.
pub(super) fn check(fields: &mut Fields<'_>, by: &str) -> ApiResult<()> {
    let stop = fields.get("stop").is_some_and(|stop| stop != &json!([]));
    let ids = fields.array("stop_token_ids")?.is_some_and(|ids| !ids.is_empty());
    let eos = fields.boolean("ignore_eos")?.unwrap_or(false);
    let min = fields.count("min_tokens")?.unwrap_or(0) > 0;
    for (given, name) in
        [(stop, "stop"), (ids, "stop_token_ids"), (eos, "ignore_eos"), (min, "min_tokens")]
    {
        if given {
            let message = format!("cannot be used with {by}, which says where the answer ends");
            return Err(fields.wrong(name, message));
        }
    }
    Ok(())
}

fn form(source: GrammarSource, field: impl Into<String>) -> Form {
    Form { source, field: field.into() }
}

fn object() -> Value {
    serde_json::from_str(JSON_OBJECT).unwrap_or_default()
}

fn response_format(fields: &mut Fields<'_>) -> ApiResult<Option<Form>> {
    let Some(map) = fields.object("response_format")? else { return Ok(None) };
    let mut format = Fields::new(map, "response_format.");
    match format.string("type")? {
        Some("text") => Ok(None),
        Some("json_object") => match format.get("schema") {
            Some(value) => schema(value, "response_format.schema").map(Some),
            None => Ok(Some(form(GrammarSource::JsonSchema(object()), "response_format"))),
        },
        Some("json_schema") => {
            let Some(map) = format.object("json_schema")? else {
                return Err(format.wrong("json_schema", "is required"));
            };
            named_schema(map).map(Some)
        }
        Some(_) => Err(format.wrong("type", "must be one of text, json_object, json_schema")),
        None => Err(format.wrong("type", "is required")),
    }
}

fn named_schema(map: &Map<String, Value>) -> ApiResult<Form> {
    let path = "response_format.json_schema.";
    let mut fields = Fields::new(map, path);
    let word = |name: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (1..=64).contains(&name.len()) && name.chars().all(fits)
    };
    match fields.string("name")? {
        Some(name) if word(name) => {}
        Some(_) => {
            let message = "must be 1 to 64 letters, digits, underscores and dashes";
            return Err(fields.wrong("name", message));
        }
        None => return Err(fields.wrong("name", "is required")),
    }
    fields.boolean("strict")?;
    fields.string("description")?;
    match fields.get("schema") {
        Some(value) => schema(value, &format!("{path}schema")),
        None => Ok(form(GrammarSource::JsonSchema(object()), "response_format")),
    }
}

/// A schema, as JSON or as the text of it.
fn schema(value: &Value, field: &str) -> ApiResult<Form> {
    let value = match value {
        Value::String(text) => serde_json::from_str(text).map_err(|error| {
            ApiError::field(field, format!("{field} is a text that is not JSON: {error}"))
        })?,
        other => other.clone(),
    };
    match value {
        Value::Object(_) | Value::Bool(_) => Ok(form(GrammarSource::JsonSchema(value), field)),
        _ => {
            let message = format!("{field} must be a JSON schema: an object, true or false");
            Err(ApiError::field(field, message))
        }
    }
}

fn choice(list: &[Value], field: &str) -> ApiResult<Form> {
    let quoted = |value: &Value| value.as_str().filter(|s| !s.is_empty()).map(|s| json!(s));
    let words: Option<Vec<String>> =
        list.iter().map(|value| quoted(value).map(|word| word.to_string())).collect();
    match words {
        Some(words) if !words.is_empty() => {
            Ok(form(GrammarSource::Lark(format!("start: {}", words.join(" | "))), field))
        }
        _ => Err(ApiError::field(field, format!("{field} must hold texts that are not empty"))),
    }
}

fn structured_outputs(fields: &mut Fields<'_>) -> ApiResult<Option<Form>> {
    let Some(map) = fields.object("structured_outputs")? else { return Ok(None) };
    let path = "structured_outputs";
    let mut found: Vec<Form> = Vec::new();
    for (name, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        let field = format!("{path}.{name}");
        let text = || {
            let wrong = || ApiError::field(&field, format!("{field} must be a string"));
            value.as_str().map(str::to_string).ok_or_else(wrong)
        };
        found.push(match name.as_str() {
            "json" => schema(value, &field)?,
            "regex" => form(GrammarSource::Regex(text()?), field.clone()),
            "grammar" => form(GrammarSource::Lark(text()?), field.clone()),
            "choice" => choice(value.as_array().map_or(&[], Vec::as_slice), &field)?,
            "json_object" if value == &json!(true) => {
                form(GrammarSource::JsonSchema(object()), field.clone())
            }
            "json_object" if value == &json!(false) => continue,
            _ => {
                let message = format!(
                    "{field} is not supported; json, json_object, regex, choice and grammar are"
                );
                return Err(ApiError::field(&field, message));
            }
        });
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(ApiError::field(path, format!("{path} must ask for one form only"))),
    }
}
