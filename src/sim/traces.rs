//! Recorded arrivals of others: the Azure LLM inference traces (CSV), Mooncake's (JSON lines with
//! hashes of prompt blocks), and conversations in the shape of ShareGPT (JSON).

use super::arrivals::{Arrival, Prompt};
use serde::Deserialize;
use std::ops::RangeInclusive;

/// A trace that cannot be read; names the line or entry.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    #[error("line {line}: {message}")]
    Line { line: usize, message: String },
    #[error("entry {entry}: {message}")]
    Entry { entry: usize, message: String },
    #[error("the file is not JSON: {0}")]
    Json(serde_json::Error),
    #[error("the trace has no requests")]
    Empty,
}

/// Tokens of prompt that one of Mooncake's hashes stands for.
const MOONCAKE_BLOCK: u32 = 512;

fn arrival(micros: u64, prompt: Prompt, output: u32) -> Arrival {
    Arrival { micros, prompt, output, output_max: output, tenant: 0, class: 0, said: Vec::new() }
}

/// By time, counted from the first.
fn settled(mut arrivals: Vec<Arrival>) -> Result<Vec<Arrival>, TraceFileError> {
    arrivals.sort_by_key(|a| a.micros);
    let start = arrivals.first().ok_or(TraceFileError::Empty)?.micros;
    arrivals.iter_mut().for_each(|a| a.micros -= start);
    Ok(arrivals)
}

/// Columns `TIMESTAMP` (date and time of day), `ContextTokens`, `GeneratedTokens`.
pub fn azure_csv(text: &str) -> Result<Vec<Arrival>, TraceFileError> {
    let mut arrivals = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || (n == 0 && line.starts_with("TIMESTAMP")) {
            continue;
        }
        let wrong = |message: &str| TraceFileError::Line { line: n + 1, message: message.into() };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, context, generated] = fields[..] else {
            return Err(wrong("expected TIMESTAMP,ContextTokens,GeneratedTokens"));
        };
        let micros = timestamp(time).ok_or_else(|| wrong("the timestamp is no date and time"))?;
        let count = |text: &str, name: &str| {
            text.parse::<u32>().map_err(|_| wrong(&format!("{name} is no count: {text}")))
        };
        let (prompt, output) =
            (count(context, "ContextTokens")?, count(generated, "GeneratedTokens")?);
        if prompt == 0 || output == 0 {
            continue;
        }
        arrivals.push(arrival(micros, Prompt::unique(n as u64, prompt), output));
    }
    settled(arrivals)
}

/// `2023-11-16 18:15:46.6805900`, the fraction optional, in microseconds since some day.
fn timestamp(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.split('-');
    let year = field(date.next()?, 1..=9999)?;
    let (month, day) = (field(date.next()?, 1..=12)?, field(date.next()?, 1..=31)?);
    // Days of the civil calendar, years beginning in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day;
    let time = time.trim_end_matches('Z').split('+').next()?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':');
    let (hours, minutes) = (field(time.next()?, 0..=23)?, field(time.next()?, 0..=59)?);
    // A minute may have a leap second.
    let seconds = field(time.next()?, 0..=60)?;
    let whole = date.next().is_none() && time.next().is_none();
    if !whole || fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    Some((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

fn field(text: &str, range: RangeInclusive<u64>) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|value| plain && range.contains(value))
}

#[derive(Deserialize)]
struct MooncakeLine {
    /// Milliseconds.
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

/// One object a line: `timestamp` in ms, `input_length`, `output_length`, `hash_ids` of the
/// prompt's blocks of 512 tokens, equal where the prompts are equal up to there.
pub fn mooncake_jsonl(text: &str) -> Result<Vec<Arrival>, TraceFileError> {
    let mut arrivals = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |message: String| TraceFileError::Line { line: n + 1, message };
        let line: MooncakeLine = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
        if line.input_length == 0 || line.output_length == 0 {
            continue;
        }
        let mut left = line.input_length;
        let mut pieces = Vec::new();
        for &hash in &line.hash_ids {
            let tokens = left.min(MOONCAKE_BLOCK);
            left -= tokens;
            if tokens > 0 {
                pieces.push((hash, tokens));
            }
        }
        if left > 0 {
            pieces.push((1 << 63 | n as u64, left));
        }
        let prompt = Prompt::Pieces(pieces);
        let micros = line.timestamp.checked_mul(1000);
        let micros = micros.ok_or_else(|| wrong("timestamp is too large".into()))?;
        arrivals.push(arrival(micros, prompt, line.output_length));
    }
    settled(arrivals)
}

#[derive(Deserialize)]
struct Conversation {
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    from: String,
    value: String,
}

/// A list of `{"conversations": [{"from": "human", "value": …}, {"from": "gpt", …}]}`: the first
/// question and answer of each, all at the start. `count` gives a text's tokens.
pub fn share_gpt(text: &str, count: &dyn Fn(&str) -> u32) -> Result<Vec<Arrival>, TraceFileError> {
    let list: Vec<serde_json::Value> = serde_json::from_str(text).map_err(TraceFileError::Json)?;
    let mut arrivals = Vec::new();
    for (entry, value) in list.into_iter().enumerate() {
        let conversation: Conversation = serde_json::from_value(value)
            .map_err(|e| TraceFileError::Entry { entry, message: e.to_string() })?;
        let mut turns = conversation.conversations.iter();
        let asked = turns.by_ref().find(|turn| turn.from == "human");
        let answered = turns.find(|turn| turn.from == "gpt");
        if let (Some(asked), Some(answered)) = (asked, answered) {
            let (prompt, output) = (count(&asked.value), count(&answered.value));
            if prompt > 0 && output > 0 {
                arrivals.push(arrival(0, Prompt::unique(entry as u64, prompt), output));
            }
        }
    }
    settled(arrivals)
}
