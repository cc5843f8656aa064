//! Typed access to a JSON object whose every error names the field. `null` is the same as
//! absent, everywhere.

use super::error::{ApiError, ApiResult};
use serde_json::{Map, Value};

/// An object of the request and the names that were asked for.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Put before names in errors: `messages[2].`.
    path: String,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub fn new(map: &'a Map<String, Value>, path: impl Into<String>) -> Self {
        Self { map, path: path.into(), known: Vec::new() }
    }

    /// The object at `value`, or an error that names `path`.
    pub fn of(value: &'a Value, path: &str) -> ApiResult<Self> {
        match value {
            Value::Object(map) => Ok(Self::new(map, format!("{path}."))),
            _ => Err(ApiError::field(path, format!("{path} must be an object"))),
        }
    }

    pub fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// The field's full name.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    pub fn wrong(&self, name: &str, message: impl std::fmt::Display) -> ApiError {
        let path = self.path(name);
        let message = format!("{path} {message}");
        ApiError::field(path, message)
    }

    pub fn string(&mut self, name: &'static str) -> ApiResult<Option<&'a str>> {
        self.typed(name, "must be a string", Value::as_str)
    }

    pub fn boolean(&mut self, name: &'static str) -> ApiResult<Option<bool>> {
        self.typed(name, "must be true or false", Value::as_bool)
    }

    pub fn array(&mut self, name: &'static str) -> ApiResult<Option<&'a Vec<Value>>> {
        self.typed(name, "must be an array", Value::as_array)
    }

    pub fn object(&mut self, name: &'static str) -> ApiResult<Option<&'a Map<String, Value>>> {
        self.typed(name, "must be an object", Value::as_object)
    }

    pub fn number(&mut self, name: &'static str) -> ApiResult<Option<f32>> {
        // Too large a number becomes an infinity, which every range check refuses.
        Ok(self.typed(name, "must be a number", Value::as_f64)?.map(|value| value as f32))
    }

    /// A count. Values above `u32::MAX` mean "as many as possible".
    pub fn count(&mut self, name: &'static str) -> ApiResult<Option<u32>> {
        let value = self.typed(name, "must be an integer of 0 or more", Value::as_u64)?;
        Ok(value.map(|value| u32::try_from(value).unwrap_or(u32::MAX)))
    }

    /// Any 64-bit integer, as its bits.
    pub fn bits(&mut self, name: &'static str) -> ApiResult<Option<u64>> {
        let bits = |value: &Value| value.as_u64().or(value.as_i64().map(|v| v as u64));
        self.typed(name, "must be a 64-bit integer", bits)
    }

    fn typed<T>(
        &mut self,
        name: &'static str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> ApiResult<Option<T>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(name, what)),
        }
    }

    /// Names in the object that nothing asked for.
    pub fn unknown(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str).filter(|name| !self.known.contains(name))
    }
}
