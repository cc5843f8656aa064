//! From a variant to the text a WGSL compiler reads: `enable` lines of the target, constants,
//! imports (`#import name`, each file once), unrolled text (`#for i in 0..8` … `#end` with `$i`
//! and `${i * 4 + 1}`). Pure text; a line's file and number survive into every error.

use super::expression::{Values, evaluate, name_length};
use super::sources;
use super::variants::{Need, Variant};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Who compiles the text: naga knows `subgroups` without being told, browsers must be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Naga,
    Browser,
}

/// A shader text that does not follow the rules above.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("shaders/{file}.wgsl line {line}: {message}")]
pub struct AssembleError {
    pub file: String,
    pub line: usize,
    pub message: String,
}

struct Line<'a> {
    file: String,
    number: usize,
    text: &'a str,
}

impl Line<'_> {
    fn fault(&self, message: impl Into<String>) -> AssembleError {
        AssembleError { file: self.file.clone(), line: self.number, message: message.into() }
    }
}

/// Rounds of all loops of one shader; more is a mistake, not a kernel.
const ROUNDS_MAX: i64 = 4096;

/// The whole text of `variant`, from the sources compiled in.
pub fn assemble(variant: &Variant, target: Target) -> Result<String, AssembleError> {
    assemble_from(variant, target, &sources::source)
}

/// As [`assemble`], with the texts that `source` gives by path below `shaders/`.
pub fn assemble_from<'a>(
    variant: &Variant,
    target: Target,
    source: &dyn Fn(&str) -> Option<&'a str>,
) -> Result<String, AssembleError> {
    let mut lines = Vec::new();
    let mut files = Files { variant, source, seen: BTreeSet::new(), aliases: BTreeSet::new() };
    let whole = Line { file: variant.shader.clone(), number: 0, text: "" };
    files.read(&variant.shader, &whole, &mut lines)?;
    if let Some(alias) = variant.imports.keys().find(|a| !files.aliases.contains(*a)) {
        let message = format!("`{}` binds `{alias}`, which no text imports", variant.name);
        return Err(whole.fault(message));
    }
    let mut out = String::new();
    for need in &variant.needs {
        match (need, target) {
            (Need::F16, _) => out.push_str("enable f16;\n"),
            (Need::Subgroups, Target::Browser) => out.push_str("enable subgroups;\n"),
            (Need::Units8 | Need::Units16, Target::Naga) => {
                out.push_str("enable wgpu_cooperative_matrix;\n");
            }
            // Chrome has neither 64-bit integers nor these matrix units; such variants never run
            // there.
            (Need::Units8 | Need::Units16, Target::Browser) => {}
            (Need::Subgroups, Target::Naga) | (Need::Int64 | Need::Texels, _) => {}
        }
    }
    for (name, value) in &variant.consts {
        let _ = writeln!(out, "const {name}: u32 = {value}u;");
    }
    let mut values: Values =
        variant.consts.iter().map(|(n, v)| (n.clone(), i64::from(*v))).collect();
    unroll(&lines, &mut values, &mut out)?;
    Ok(out)
}

struct Files<'v, 'a> {
    variant: &'v Variant,
    source: &'v dyn Fn(&str) -> Option<&'a str>,
    seen: BTreeSet<String>,
    aliases: BTreeSet<String>,
}

impl<'a> Files<'_, 'a> {
    /// Appends the lines of `path` with its imports in their places; `from` asked for it.
    fn read(
        &mut self,
        path: &str,
        from: &Line<'_>,
        out: &mut Vec<Line<'a>>,
    ) -> Result<(), AssembleError> {
        if !self.seen.insert(path.to_string()) {
            return Ok(());
        }
        let text = (self.source)(path)
            .ok_or_else(|| from.fault(format!("there is no shaders/{path}.wgsl")))?;
        for (index, text) in text.lines().enumerate() {
            let line = Line { file: path.to_string(), number: index + 1, text };
            match text.trim().strip_prefix("#import ") {
                Some(name) => {
                    let name = name.trim();
                    let stem = match self.variant.imports.get(name) {
                        Some(stem) => {
                            self.aliases.insert(name.to_string());
                            stem.clone()
                        }
                        None => name.to_string(),
                    };
                    self.read(&format!("lib/{stem}"), &line, out)?;
                }
                None => out.push(line),
            }
        }
        Ok(())
    }
}

fn unroll(lines: &[Line<'_>], values: &mut Values, out: &mut String) -> Result<(), AssembleError> {
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let body = line.text.trim();
        if let Some(head) = body.strip_prefix("#for ") {
            let length = loop_length(line, &lines[at..])?;
            let (name, range) = loop_head(head, values).map_err(|m| line.fault(m))?;
            if values.contains_key(&name) {
                return Err(line.fault(format!("`{name}` already has a value here")));
            }
            for round in range {
                values.insert(name.clone(), round);
                unroll(&lines[at..at + length], values, out)?;
            }
            values.remove(&name);
            at += length + 1;
        } else if body.starts_with('#') {
            return Err(line.fault(format!("`{body}` is not a directive that fits here")));
        } else if body.starts_with("//") {
            let _ = writeln!(out, "{}", line.text);
        } else {
            substitute(line.text, values, out).map_err(|m| line.fault(m))?;
        }
    }
    Ok(())
}

/// Lines between a `#for` and its `#end`.
fn loop_length(head: &Line<'_>, rest: &[Line<'_>]) -> Result<usize, AssembleError> {
    let mut depth = 0;
    for (index, line) in rest.iter().enumerate() {
        match line.text.trim() {
            "#end" if depth == 0 => return Ok(index),
            "#end" => depth -= 1,
            body if body.starts_with("#for ") => depth += 1,
            _ => {}
        }
    }
    Err(head.fault("`#for` without `#end`"))
}

fn loop_head(head: &str, values: &Values) -> Result<(String, std::ops::Range<i64>), String> {
    let wanted = "expected `#for NAME in FROM..TO`";
    let (name, range) = head.split_once(" in ").ok_or(wanted)?;
    let (from, to) = range.split_once("..").ok_or(wanted)?;
    let (from, to) = (evaluate(from, values)?, evaluate(to, values)?);
    if to - from > ROUNDS_MAX {
        return Err(format!("{} rounds are more than {ROUNDS_MAX}", to - from));
    }
    Ok((name.trim().to_string(), from..to))
}

/// `text` with `$name` and `${expression}` replaced.
fn substitute(text: &str, values: &Values, out: &mut String) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (expression, after) = match rest.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or("`${` without `}`")?,
            None => rest.split_at(name_length(rest)),
        };
        let _ = write!(out, "{}", evaluate(expression, values)?);
        rest = after;
    }
    out.push_str(rest);
    out.push('\n');
    Ok(())
}
