//! Where the program speaks to its operator: standard error, as lines for people or as JSON, one
//! object a line. Nothing that a client sent but field names and request ids comes here.

use clap::ValueEnum;
use std::fmt;
use std::sync::OnceLock;

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Starts logging; a server does. `level` is a level, or targets with levels: `info,http=off`.
#[cfg(feature = "server")]
pub fn start(format: LogFormat, level: &tracing_subscriber::filter::Targets) {
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
