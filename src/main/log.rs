//! Where the program speaks to its operator: standard error, as lines for people or as JSON, one
//! object a line. Nothing that a client sent but field names and request ids comes here.

use clap::ValueEnum;
use std::fmt;
use std::sync::OnceLock;
#[cfg(feature = "server")]
use tracing_subscriber::filter::{ParseError, Targets};

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Levels, the most urgent first.
#[cfg(feature = "server")]
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Parts that may have a level of their own: who sent which request, and all else.
#[cfg(feature = "server")]
const PARTS: [&str; 2] = ["http", "tilewright"];

/// A level, or a list with levels of single parts. What names neither would silence the log.
#[cfg(feature = "server")]
pub fn levels(text: &str) -> Result<Targets, String> {
    for one in text.split(',') {
        let (part, level) = one.split_once('=').map_or((None, one), |(p, l)| (Some(p), l));
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            return Err(format!("`{level}` is no level; there are {}", LEVELS.join(", ")));
        }
        if let Some(part) = part.filter(|part| !PARTS.contains(part)) {
            return Err(format!("`{part}` is no part; there are {}", PARTS.join(", ")));
        }
    }
    text.parse().map_err(|error: ParseError| error.to_string())
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Starts logging; a server does. `level` is a level, or targets with levels: `info,http=off`.
#[cfg(feature = "server")]
pub fn start(format: LogFormat, level: &Targets) {
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    use tracing_subscriber::{Layer, fmt as lines};
    let out = lines::layer().with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Text => out.with_ansi(false).boxed(),
        LogFormat::Json => out.json().flatten_event(true).boxed(),
    };
    // A program has one log; what was there first stays.
    if tracing_subscriber::registry().with(layer.with_filter(level.clone())).try_init().is_ok() {
        let _ = FORMAT.set(format);
    }
}

/// Tells of a stage of the start or of the end: plain unless the log is JSON.
pub fn line(text: fmt::Arguments<'_>) {
    match FORMAT.get() {
        Some(LogFormat::Json) => tracing::info!("{text}"),
        _ => eprintln!("{text}"),
    }
}
