//! The `tojson` filter as Hugging Face defines it: Python's `json.dumps` to the character.
//!
//! minijinja's own escapes HTML, which changes every tool description with a `<` in it.

use super::jinja::MARK;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::fmt::Write;

/// Deeper values overflow a recursive writer's stack.
const DEPTH_MAX: usize = 128;

struct Style {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
    /// Written raw even under `ensure_ascii`.
    mark: Option<char>,
}

pub(super) fn tojson(
    state: &State,
    value: Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(named.or_else(|| positional.get(index).cloned()).filter(|v| !v.is_none()))
    };
    let flag = |value: Option<Value>| value.is_some_and(|v| v.is_true());
    let ascii = flag(argument(0, "ensure_ascii")?);
    let indent = argument(1, "indent")?.map(|v| indent_of(&v)).transpose()?;
    let separators = argument(2, "separators")?;
    let sort = flag(argument(3, "sort_keys")?);
    kwargs.assert_all_used()?;
    let (item, key) = match &separators {
        Some(pair) => (text_at(pair, 0)?, text_at(pair, 1)?),
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
    };
    let mark = state.lookup(MARK).and_then(|m| m.as_str().and_then(|m| m.chars().next()));
    let style = Style { ascii, indent, item, key, sort, mark };
    let mut out = String::new();
    write_value(&style, &value, 0, &mut out)?;
    state.consume_fuel(out.len() as u64 / 64)?;
    Ok(Value::from(out))
}

fn wrong(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {}", reason.into()))
}

fn indent_of(value: &Value) -> Result<String, Error> {
    const INDENT_MAX: usize = 64;
    if let Some(text) = value.as_str() {
        return Ok(text.chars().take(INDENT_MAX).collect());
    }
    let count = match value.kind() {
        ValueKind::Bool => i64::from(value.is_true()),
        _ => value.as_i64().ok_or_else(|| wrong("indent is neither a number nor text"))?,
    };
    Ok(" ".repeat(usize::try_from(count).unwrap_or(0).min(INDENT_MAX)))
}

fn text_at(pair: &Value, index: usize) -> Result<String, Error> {
    let part = pair.get_item_by_index(index)?;
    part.as_str().map(str::to_string).ok_or_else(|| wrong("separators are not two strings"))
}

fn write_value(style: &Style, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(wrong(format!("more than {DEPTH_MAX} levels deep")));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => write_float(f64::try_from(value.clone())?, out),
        ValueKind::String => write_text(style, value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_group(style, ('[', ']'), items.len(), depth, out, |index, out| {
                write_value(style, &items[index], depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort {
                keys.sort();
            }
            write_group(style, ('{', '}'), keys.len(), depth, out, |index, out| {
                write_key(style, &keys[index], out)?;
                out.push_str(&style.key);
                write_value(style, &value.get_item(&keys[index])?, depth + 1, out)
            })?;
        }
        kind => return Err(wrong(format!("a value of kind {kind} is not JSON"))),
    }
    Ok(())
}

fn write_group(
    style: &Style,
    (open, close): (char, char),
    count: usize,
    depth: usize,
    out: &mut String,
    mut member: impl FnMut(usize, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |out: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    out.push(open);
    for index in 0..count {
        if index > 0 {
            out.push_str(&style.item);
        }
        line(out, depth + 1);
        member(index, out)?;
    }
    if count > 0 {
        line(out, depth);
    }
    out.push(close);
    Ok(())
}

/// Keys that are not text are written as the text of their JSON.
fn write_key(style: &Style, key: &Value, out: &mut String) -> Result<(), Error> {
    match key.kind() {
        ValueKind::String => write_text(style, key.as_str().unwrap_or_default(), out),
        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
            out.push('"');
            write_value(style, key, 0, out)?;
            out.push('"');
        }
        kind => return Err(wrong(format!("a key of kind {kind} is not JSON"))),
    }
    Ok(())
}

fn write_text(style: &Style, text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            c if c < ' ' || (style.ascii && c > '~' && style.mark != Some(c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Python's `repr` of a float: shortest digits, exponent form outside 1e-4 ..< 1e16.
fn write_float(value: f64, out: &mut String) {
    if !value.is_finite() {
        out.push_str(match value {
            v if v.is_nan() => "NaN",
            v if v > 0.0 => "Infinity",
            _ => "-Infinity",
        });
        return;
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Writing to a String cannot fail.
    let _ = match exponent {
        -4..16 => write!(out, "{value:?}"),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(out, "{digits}e{sign}{:02}", exponent.abs())
        }
    };
}
