//! Integer expressions inside shader templates: `${i * 4 + 1}`, `#for i in 0..ROWS / 2`.

use std::collections::BTreeMap;

/// What names stand for: the variant's constants and the loops around a line.
pub type Values = BTreeMap<String, i64>;

/// Bytes of the name or number that `text` starts with.
pub fn name_length(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// An integer expression of names, numbers, `+ - * / %` and parentheses.
pub fn evaluate(text: &str, values: &Values) -> Result<i64, String> {
    let mut rest = text.trim();
    let value = sum(&mut rest, values)?;
    if rest.is_empty() { Ok(value) } else { Err(format!("`{text}`: `{rest}` is left over")) }
}

fn sum(rest: &mut &str, values: &Values) -> Result<i64, String> {
    let mut value = product(rest, values)?;
    while let Some(sign) = rest.chars().next().filter(|c| "+-".contains(*c)) {
        *rest = rest[1..].trim_start();
        let right = product(rest, values)?;
        let result = if sign == '+' { value.checked_add(right) } else { value.checked_sub(right) };
        value = result.ok_or("the expression overflows")?;
    }
    Ok(value)
}

fn product(rest: &mut &str, values: &Values) -> Result<i64, String> {
    let mut value = atom(rest, values)?;
    while let Some(sign) = rest.chars().next().filter(|c| "*/%".contains(*c)) {
        *rest = rest[1..].trim_start();
        let right = atom(rest, values)?;
        let result = match sign {
            '*' => value.checked_mul(right),
            '/' => value.checked_div(right),
            _ => value.checked_rem(right),
        };
        value = result.ok_or("the expression overflows or divides by zero")?;
    }
    Ok(value)
}

fn atom(rest: &mut &str, values: &Values) -> Result<i64, String> {
    if let Some(inner) = rest.strip_prefix('(') {
        *rest = inner.trim_start();
        let value = sum(rest, values)?;
        *rest = rest.strip_prefix(')').ok_or("`(` without `)`")?.trim_start();
        return Ok(value);
    }
    let (word, after) = rest.split_at(name_length(rest));
    *rest = after.trim_start();
    match values.get(word) {
        Some(value) => Ok(*value),
        None => word.parse().map_err(|_| format!("`{word}` is no number and has no value here")),
    }
}
