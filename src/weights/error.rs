//! What can be wrong with a weight file. Every error names the file and the tensor, key or
//! header field, says what was found and what was expected.

use std::fmt::Display;

/// Longest piece of a file that an error repeats, in characters.
const SHOWN_MAX: usize = 120;

#[derive(thiserror::Error, Debug)]
pub enum WeightsError {
    #[error("{file}: {doing}: {source}")]
    Io { file: String, doing: String, source: std::io::Error },
    /// The file as a whole: its size, magic, version, counts, or a JSON side file.
    #[error("{file}: {field}: {problem}")]
    Header { file: String, field: String, problem: String },
    /// A metadata key: missing, of the wrong type, or out of range.
    #[error("{file}: key `{key}`: {problem}")]
    Key { file: String, key: String, problem: String },
    #[error("{file}: tensor `{tensor}`: {field}: {problem}")]
    Tensor { file: String, tensor: String, field: &'static str, problem: String },
}

impl WeightsError {
    pub(super) fn header(file: &str, field: impl Display, problem: impl Display) -> Self {
        Self::Header {
            file: file.to_string(),
            field: field.to_string(),
            problem: problem.to_string(),
        }
    }

    pub(super) fn key(file: &str, key: &str, problem: impl Display) -> Self {
        Self::Key { file: file.to_string(), key: shown(key), problem: problem.to_string() }
    }

    pub(super) fn tensor(
        file: &str,
        tensor: &str,
        field: &'static str,
        problem: impl Display,
    ) -> Self {
        Self::Tensor {
            file: file.to_string(),
            tensor: shown(tensor),
            field,
            problem: problem.to_string(),
        }
    }
}

/// Text out of a file as an error may repeat it: escaped, and cut when it is long.
pub(super) fn shown(text: &str) -> String {
    let mut out: String =
        text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).take(2 * SHOWN_MAX).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        out.push('…');
    }
    out
}
