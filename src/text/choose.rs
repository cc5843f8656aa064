//! Which chat template a model has: explicit option, chat_template.jinja, tokenizer_config.json,
//! GGUF key, in this order.

use super::TextError;
use serde_json::Value;

/// Where a template may come from. Empty texts count as absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateSources<'a> {
    pub explicit: Option<&'a str>,
    pub jinja_file: Option<&'a str>,
    /// The whole of tokenizer_config.json.
    pub tokenizer_config: Option<&'a Value>,
    /// `tokenizer.chat_template`.
    pub gguf: Option<&'a str>,
    /// `tokenizer.chat_template.tool_use`.
    pub gguf_tool_use: Option<&'a str>,
}

/// A template and the source it was found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenTemplate {
    pub source: String,
    pub origin: &'static str,
}

impl TemplateSources<'_> {
    /// The template for a request with or without tools; `None` when there is none at all.
    pub fn choose(&self, with_tools: bool) -> Result<Option<ChosenTemplate>, TextError> {
        let gguf = if with_tools { self.gguf_tool_use.or(self.gguf) } else { self.gguf };
        let plain = |origin, source: Option<&str>| {
            let source = source.filter(|source| !source.is_empty())?.to_string();
            Some(ChosenTemplate { source, origin })
        };
        let before = plain("--chat-template", self.explicit)
            .or_else(|| plain("chat_template.jinja", self.jinja_file));
        if before.is_some() {
            return Ok(before);
        }
        let listed = match self.tokenizer_config.map(|config| &config["chat_template"]) {
            Some(value) => of_config(value, with_tools)?,
            None => None,
        };
        Ok(plain("tokenizer_config.json", listed)
            .or_else(|| plain("tokenizer.chat_template", gguf)))
    }
}

/// A string, a list of `{name, template}`, or an object by name.
fn of_config(value: &Value, with_tools: bool) -> Result<Option<&str>, TextError> {
    let named: Option<Vec<(&str, &str)>> = match value {
        Value::Null => return Ok(None),
        Value::String(one) => return Ok(Some(one)),
        Value::Array(list) => list
            .iter()
            .map(|entry| Some((entry["name"].as_str()?, entry["template"].as_str()?)))
            .collect(),
        Value::Object(map) => {
            map.iter().map(|(name, v)| Some((name.as_str(), v.as_str()?))).collect()
        }
        _ => None,
    };
    let Some(named) = named else {
        let reason = "`chat_template` is no text, no list of names and templates, and no table";
        return Err(TextError::File { file: "tokenizer_config.json", reason: reason.into() });
    };
    if named.is_empty() {
        return Ok(None);
    }
    let get = |name: &str| named.iter().find(|(n, _)| *n == name).map(|(_, source)| *source);
    let tool_use = if with_tools { get("tool_use") } else { None };
    match tool_use.or(get("default")) {
        Some(source) => Ok(Some(source)),
        None => Err(TextError::NoDefaultTemplate {
            found: named.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", "),
        }),
    }
}
