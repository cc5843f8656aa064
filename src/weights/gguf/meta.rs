//! A GGUF file's metadata with typed getters.

use super::super::WeightsError;
use super::super::field::{Field, View, all_getters, typed_getters};
use super::value::GgufValue;
use std::collections::BTreeMap;

pub struct GgufMeta {
    file: String,
    values: BTreeMap<String, GgufValue>,
}

impl GgufMeta {
    pub(super) fn new(file: &str, values: BTreeMap<String, GgufValue>) -> Self {
        Self { file: file.to_string(), values }
    }

    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.values.get(key)
    }

    /// All keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// `general.architecture`, which the model's own keys begin with.
    pub fn architecture(&self) -> Result<&str, WeightsError> {
        self.str("general.architecture")
    }

    fn view(&self, key: &str) -> Option<View<'_>> {
        self.get(key).map(GgufValue::view)
    }

    fn missing(&self, key: &str) -> WeightsError {
        WeightsError::key(&self.file, key, "is missing, and there is no default for it")
    }

    all_getters!();
}
