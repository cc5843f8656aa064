//! The stream as lines of JSON: first a header with the version, then one stamped event a line.
//! Additive: a reader skips variants it does not know, and refuses only a later major version.

use super::event::{Event, Stamped};
use crate::base::{Activations, Invariance, KvType};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Write};

/// Raised only when old readers would misread a file.
pub const TRACE_VERSION: u32 = 1;

/// How a trace begins that is not compressed.
pub(super) const TRACE_START: &[u8] = b"{\"trace\":\"tilewright\"";

/// Bytes of one line; a longer one is not a trace.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The first line of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Tells the file from other JSON lines; always `tilewright`.
    pub trace: String,
    pub version: u32,
    /// The program that wrote it, for people.
    #[serde(default)]
    pub writer: String,
    /// The model that ran, so that a reader finds the words of its tokens.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// How the engine was made, beside its limits and policies: what a replay needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Made>,
}

/// How a recorded engine was made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Made {
    pub device: String,
    pub kv: Option<KvType>,
    pub activations: Activations,
    pub invariance: Invariance,
    /// Steps measured before the start: tokens, pairs of query and key, microseconds.
    pub measured: Vec<(u64, u64, u64)>,
    /// Picoseconds of moving one block to host memory or back, as measured; 0 if unknown.
    pub block_picos: u64,
}

impl Header {
    /// That of a simulated run, in which moving a block takes so long.
    pub fn simulated(block_picos: u64) -> Self {
        let engine = Some(Made { block_picos, ..Made::default() });
        Self { model: "simulated".to_string(), engine, ..Self::default() }
    }

    /// What moving a block was measured to take before the start; 0 if unknown.
    pub fn block_picos(&self) -> u64 {
        self.engine.as_ref().map_or(0, |made| made.block_picos)
    }
}

impl Default for Header {
    fn default() -> Self {
        let writer = concat!("tilewright ", env!("CARGO_PKG_VERSION")).to_string();
        Self {
            trace: "tilewright".to_string(),
            version: TRACE_VERSION,
            writer,
            model: String::new(),
            engine: None,
        }
    }
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("the trace cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("line 1 is no trace header ({0}): was this file written by `--record`?")]
    Header(String),
    #[error("the trace has version {found}, this program reads up to {known}: use a newer one")]
    Version { found: u32, known: u32 },
    #[error("line {line} of the trace is damaged: {message}")]
    Line { line: u64, message: String },
}

/// Writes the header line.
pub fn write_header(to: &mut impl Write, header: &Header) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, header)?;
    to.write_all(b"\n")
}

/// Writes one event as a line.
pub fn write_line(to: &mut impl Write, event: &Stamped) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, event)?;
    to.write_all(b"\n")
}

/// How a file starts that is compressed with gzip.
#[cfg(any(feature = "viewer", feature = "cli"))]
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The content of a file, which may be compressed with gzip.
#[cfg(any(feature = "viewer", feature = "cli"))]
pub fn unpacked<'a>(from: impl Read + 'a) -> std::io::Result<Box<dyn BufRead + 'a>> {
    let mut from = std::io::BufReader::with_capacity(1 << 16, from);
    if from.fill_buf()?.starts_with(&GZIP) {
        let unpacked = flate2::read::MultiGzDecoder::new(from);
        return Ok(Box::new(std::io::BufReader::with_capacity(1 << 16, unpacked)));
    }
    Ok(Box::new(from))
}

/// Reads a trace line by line; an iterator of events.
pub struct Reader<R> {
    from: R,
    header: Header,
    line: u64,
    skipped: u64,
    /// Number of the next event, once there was one: a trace may begin late, but has no gaps.
    due: Option<u64>,
    text: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads and checks the header.
    pub fn new(mut from: R) -> Result<Self, TraceError> {
        let mut text = Vec::new();
        read_line(&mut from, &mut text, 1)?;
        let header: Header =
            serde_json::from_slice(&text).map_err(|e| TraceError::Header(e.to_string()))?;
        if header.trace != "tilewright" {
            return Err(TraceError::Header(format!("`trace` is `{}`", header.trace)));
        }
        if header.version > TRACE_VERSION {
            return Err(TraceError::Version { found: header.version, known: TRACE_VERSION });
        }
        Ok(Self { from, header, line: 1, skipped: 0, due: None, text })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Events of unknown kinds passed over so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn read(&mut self) -> Result<Option<Stamped>, TraceError> {
        loop {
            self.line += 1;
            if !read_line(&mut self.from, &mut self.text, self.line)? {
                return Ok(None);
            }
            if self.text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let event: Stamped = serde_json::from_slice(&self.text)
                .map_err(|e| TraceError::Line { line: self.line, message: e.to_string() })?;
            let seq = event.seq;
            if let Some(due) = self.due.filter(|due| *due != seq) {
                let message =
                    format!("event {seq} where {due} is due: lines are missing, or out of order");
                return Err(TraceError::Line { line: self.line, message });
            }
            // Events that were lost are told of in place of the first of them.
            let told = if let Event::EventsDropped { count } = event.event { count } else { 1 };
            self.due = Some(seq.saturating_add(told));
            if event.event == Event::Unknown {
                self.skipped += 1;
                continue;
            }
            return Ok(Some(event));
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Stamped, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// The events of lines without a header, as a part of a stream comes; unknown kinds are passed
/// over.
pub fn read_lines(bytes: &[u8]) -> impl Iterator<Item = Result<Stamped, TraceError>> {
    let lines = (1..).zip(bytes.split(|byte| *byte == b'\n'));
    let lines = lines.filter(|(_, text)| !text.iter().all(u8::is_ascii_whitespace));
    let read = |(line, text)| -> Result<Stamped, TraceError> {
        serde_json::from_slice(text).map_err(|e| TraceError::Line { line, message: e.to_string() })
    };
    let known = |event: &Result<Stamped, _>| !matches!(event, Ok(e) if e.event == Event::Unknown);
    lines.map(read).filter(known)
}

/// Reads one line into `text`; false at the end. Bounded, so that a file without line ends
/// cannot fill the memory.
fn read_line(from: &mut impl BufRead, text: &mut Vec<u8>, line: u64) -> Result<bool, TraceError> {
    text.clear();
    let read = Read::take(&mut *from, LINE_BYTES_MAX).read_until(b'\n', text)?;
    if read as u64 == LINE_BYTES_MAX && !text.ends_with(b"\n") {
        let message = format!("longer than {LINE_BYTES_MAX} bytes");
        return Err(TraceError::Line { line, message });
    }
    Ok(read > 0)
}
