//! The JSON files beside a Hugging Face checkpoint, with typed getters over config.json.

use super::super::WeightsError;
use super::super::field::{Field, View, all_getters, typed_getters};
use serde_json::Value;

pub struct HfMeta {
    file: String,
    /// config.json; `null` where a single .safetensors file has none beside it.
    pub config: Value,
    /// generation_config.json.
    pub generation: Option<Value>,
    /// tokenizer_config.json.
    pub tokenizer: Option<Value>,
}

impl HfMeta {
    /// `file` is what errors call config.json.
    pub(super) fn new(
        file: String,
        config: Value,
        generation: Option<Value>,
        tokenizer: Option<Value>,
    ) -> Self {
        Self { file, config, generation, tokenizer }
    }

    /// The value at a key of config.json; dots lead into objects (`rope_parameters.rope_theta`).
    /// `null` counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let found = key.split('.').try_fold(&self.config, |value, part| value.get(part))?;
        (!found.is_null()).then_some(found)
    }

    /// `model_type`, the family's name.
    pub fn architecture(&self) -> Result<&str, WeightsError> {
        self.str("model_type")
    }

    fn view(&self, key: &str) -> Option<View<'_>> {
        self.get(key).map(view_of)
    }

    fn missing(&self, key: &str) -> WeightsError {
        WeightsError::key(&self.file, key, "is missing, and there is no default for it")
    }

    all_getters!();
}

fn view_of(value: &Value) -> View<'_> {
    match value {
        Value::Null | Value::Object(_) => View::Table,
        Value::Bool(value) => View::Bool(*value),
        Value::String(value) => View::Text(value),
        Value::Array(items) => View::List(items.iter().map(view_of).collect()),
        Value::Number(value) => match (value.as_u64(), value.as_i64(), value.as_f64()) {
            (Some(value), _, _) => View::Unsigned(value),
            (_, Some(value), _) => View::Signed(value),
            (_, _, value) => View::Float(value.unwrap_or(f64::NAN)),
        },
    }
}
