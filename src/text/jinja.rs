//! The Jinja dialect of chat templates on minijinja: what Hugging Face adds, and the caps.

use super::TextError;
use super::pyjson::tojson;
use super::strftime::strftime;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::io;

/// Hidden variable: the mark of this render, which `tojson` must not escape.
pub(super) const MARK: &str = "__mark__";
/// Hidden variable: the time of this render.
pub(super) const NOW: &str = "__now__";
const NAME: &str = "chat_template";

/// Roughly instructions plus 64-byte units of data: bounds a render to about a second and
/// 256 MB, far above what a full context needs.
const FUEL: u64 = 4_000_000;
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Carries the message of `raise_exception` through minijinja's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

pub(super) fn environment(source: &str) -> Result<Environment<'static>, TextError> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.map_err(|e| syntax_error(&e))?);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    // Filters and functions of Jinja that minijinja leaves to its companion.
    minijinja_contrib::add_to_environment(&mut env);
    env.add_filter("tojson", tojson);
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        let message = message.to_string();
        let error = Error::new(ErrorKind::InvalidOperation, message.clone());
        Err(error.with_source(Raised(message)))
    });
    env.add_function("strftime_now", |state: &State, format: &str| -> Result<String, Error> {
        let now = state.lookup(NOW).and_then(|now| now.as_i64());
        let wrong = |reason: String| Error::new(ErrorKind::InvalidOperation, reason);
        let now = now.ok_or_else(|| wrong("strftime_now: the caller gave no time".into()))?;
        strftime(format, now).map_err(wrong)
    });
    env.add_template_owned(NAME, plain_generation(source)).map_err(|e| syntax_error(&e))?;
    Ok(env)
}

pub(super) fn render(env: &Environment, variables: Value) -> Result<String, TextError> {
    let mut out = Capped { bytes: Vec::new(), full: false };
    let result = env.get_template(NAME).and_then(|t| t.render_captured_to(variables, &mut out));
    if out.full {
        return Err(TextError::OutputTooLong { max: OUTPUT_BYTES_MAX });
    }
    match result {
        Ok(_) => String::from_utf8(out.bytes)
            .map_err(|e| TextError::Render { line: 0, reason: e.to_string() }),
        Err(error) => Err(render_error(&error)),
    }
}

fn render_error(error: &Error) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = cause {
        if let Some(Raised(message)) = at.downcast_ref() {
            return TextError::Raised(message.clone());
        }
        if at.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return TextError::Fuel;
        }
        cause = at.source();
    }
    TextError::Render { line: error.line().unwrap_or(0), reason: reason(error) }
}

fn syntax_error(error: &Error) -> TextError {
    TextError::TemplateSyntax { line: error.line().unwrap_or(0), reason: reason(error) }
}

fn reason(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// `{% generation %}` marks what the assistant says, for training; for a prompt it is a scope.
fn plain_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (inside, after) = tag.split_at(end);
        let word = inside.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match word {
            "generation" => out.push_str(&inside.replace(word, "with")),
            "endgeneration" => out.push_str(&inside.replace(word, "endwith")),
            _ => out.push_str(inside),
        }
        rest = after;
    }
    out + rest
}

struct Capped {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_BYTES_MAX {
            self.full = true;
            return Err(io::Error::other("the output is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
