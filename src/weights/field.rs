//! Typed access to one metadata field, the same for GGUF keys and JSON files. Writers of files
//! disagree on integer widths, on a number against a list of equal numbers, and on one id against
//! a list; all of these are read. Anything else is an error that names the file and the key.

use super::WeightsError;
use super::error::shown;
use std::fmt::{Display, Formatter};

/// Items of a list that an error repeats.
const SHOWN_ITEMS: usize = 8;

/// A value as both kinds of file can give it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum View<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(&'a str),
    List(Vec<View<'a>>),
    /// A JSON object.
    Table,
}

/// In the words of who wrote the file.
impl Display for View<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "the text `{value}`"),
            Self::Table => write!(f, "an object"),
            Self::List(items) => {
                write!(f, "a list of {}", items.len())?;
                // More would be cut off anyway.
                for (at, item) in items.iter().take(SHOWN_ITEMS).enumerate() {
                    write!(f, "{}{item}", if at == 0 { ": " } else { ", " })?;
                }
                if items.len() > SHOWN_ITEMS { write!(f, ", …") } else { Ok(()) }
            }
        }
    }
}

/// A field that is there.
pub(super) struct Field<'a, 'k> {
    pub file: &'k str,
    pub key: &'k str,
    pub view: View<'a>,
}

impl<'a> Field<'a, '_> {
    fn wrong(&self, expected: &str) -> WeightsError {
        let found = shown(&self.view.to_string());
        WeightsError::key(self.file, self.key, format!("found {found}; expected {expected}"))
    }

    /// The value itself, or the one value of a list of equal values.
    fn single(&self) -> &View<'a> {
        match &self.view {
            View::List(items) => match items.split_first() {
                Some((first, rest)) if rest.iter().all(|item| item == first) => first,
                _ => &self.view,
            },
            view => view,
        }
    }

    fn items(&self) -> &[View<'a>] {
        match &self.view {
            View::List(items) => items,
            view => std::slice::from_ref(view),
        }
    }

    pub fn u64(&self) -> Result<u64, WeightsError> {
        integer(self.single()).ok_or_else(|| self.wrong("an integer from 0"))
    }

    pub fn positive(&self) -> Result<u64, WeightsError> {
        match integer(self.single()) {
            Some(value) if value > 0 => Ok(value),
            _ => Err(self.wrong("an integer from 1")),
        }
    }

    pub fn f32(&self) -> Result<f32, WeightsError> {
        number(self.single()).ok_or_else(|| self.wrong("a finite number"))
    }

    pub fn bool(&self) -> Result<bool, WeightsError> {
        match self.view {
            View::Bool(value) => Ok(value),
            _ => Err(self.wrong("a bool")),
        }
    }

    pub fn str(&self) -> Result<&'a str, WeightsError> {
        match self.view {
            View::Text(value) => Ok(value),
            _ => Err(self.wrong("a string")),
        }
    }

    pub fn u32s(&self) -> Result<Vec<u32>, WeightsError> {
        let one = |view: &View| integer(view).and_then(|value| u32::try_from(value).ok());
        let all: Option<Vec<u32>> = self.items().iter().map(one).collect();
        all.ok_or_else(|| self.wrong("integers from 0 to 4294967295"))
    }

    pub fn f32s(&self) -> Result<Vec<f32>, WeightsError> {
        let all: Option<Vec<f32>> = self.items().iter().map(number).collect();
        all.ok_or_else(|| self.wrong("finite numbers"))
    }

    pub fn strs(&self) -> Result<Vec<&'a str>, WeightsError> {
        let one = |view: &View<'a>| match view {
            View::Text(text) => Some(*text),
            _ => None,
        };
        let all: Option<Vec<&str>> = self.items().iter().map(one).collect();
        all.ok_or_else(|| self.wrong("strings"))
    }
}

fn integer(view: &View) -> Option<u64> {
    match *view {
        View::Unsigned(value) => Some(value),
        View::Signed(value) => u64::try_from(value).ok(),
        // Some exporters write 8192.0; above 2^53 a float no longer says which integer.
        View::Float(value) if value.fract() == 0.0 && (0.0..=9e15).contains(&value) => {
            Some(value as u64)
        }
        _ => None,
    }
}

fn number(view: &View) -> Option<f32> {
    let value = match *view {
        View::Unsigned(value) => value as f32,
        View::Signed(value) => value as f32,
        View::Float(value) => value as f32,
        _ => return None,
    };
    value.is_finite().then_some(value)
}

/// Gives a type with `fn field(&self, key) -> Option<Field>` and `fn missing(&self, key)` its
/// getters: `NAME(key)` for a field that must be there, `find_NAME(key)` for one that may.
macro_rules! typed_getters {
    ($($(#[$doc:meta])* $name:ident, $find:ident -> $out:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self, key: &str) -> Result<$out, WeightsError> {
                self.$find(key)?.ok_or_else(|| self.missing(key))
            }

            /// The same, or `None` if the key is absent.
            pub fn $find(&self, key: &str) -> Result<Option<$out>, WeightsError> {
                match self.view(key) {
                    Some(view) => Field { file: &self.file, key, view }.$name().map(Some),
                    None => Ok(None),
                }
            }
        )*
    };
}

macro_rules! all_getters {
    () => {
        typed_getters! {
            /// An integer of any width, or a list of equal ones.
            u64, find_u64 -> u64;
            /// An integer above 0: counts and sizes.
            positive, find_positive -> u64;
            /// A finite number.
            f32, find_f32 -> f32;
            bool, find_bool -> bool;
            str, find_str -> &str;
            /// Integers; a single one is a list of one.
            u32s, find_u32s -> Vec<u32>;
            /// Finite numbers; a single one is a list of one.
            f32s, find_f32s -> Vec<f32>;
            /// Strings; a single one is a list of one.
            strs, find_strs -> Vec<&str>;
        }
    };
}

pub(super) use {all_getters, typed_getters};
