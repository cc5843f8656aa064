//! The stream as a server tells it to watchers: server-sent events (HTML standard, section 9.2),
//! first a picture under the name `snapshot`, then one stamped event a frame; a watcher that fell
//! behind gets a new snapshot in between.

use super::codec::TraceError;
use super::event::{Event, Stamped};
use super::picture::Picture;
use crate::base::TokenId;

/// Stands for a token that a server does not tell.
pub const WITHHELD: TokenId = u32::MAX;
/// The name of a frame that holds a picture.
pub const SNAPSHOT: &str = "snapshot";

/// Bytes of one frame; a longer one is no feed.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// What a frame says.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    /// The state from which the events that follow go on.
    Snapshot(Box<Picture>),
    Event(Stamped),
}

/// Puts frames together from lines. Bounded, so that a server without frame ends cannot fill the
/// memory.
#[derive(Default)]
pub struct FeedReader {
    name: String,
    data: String,
    line: u64,
}

impl FeedReader {
    /// The next line, without its end; a frame's meaning when the line ends one. Comments, frames
    /// without data and events of unknown kinds mean nothing.
    pub fn line(&mut self, line: &str) -> Result<Option<Told>, TraceError> {
        self.line += 1;
        if line.is_empty() {
            return self.frame();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        let room = FRAME_BYTES_MAX.saturating_sub(self.data.len());
        match field {
            "data" if value.len() > room => {
                return Err(self.damaged(format!("longer than {FRAME_BYTES_MAX} bytes")));
            }
            "data" => self.data.push_str(value),
            "event" => self.name = value.to_string(),
            _ => {}
        }
        Ok(None)
    }

    fn frame(&mut self) -> Result<Option<Told>, TraceError> {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        if data.is_empty() {
            return Ok(None);
        }
        let damaged = |error: serde_json::Error| self.damaged(error.to_string());
        if name == SNAPSHOT {
            let picture = serde_json::from_str(&data).map_err(damaged)?;
            return Ok(Some(Told::Snapshot(Box::new(picture))));
        }
        let stamped: Stamped = serde_json::from_str(&data).map_err(damaged)?;
        Ok((stamped.event != Event::Unknown).then_some(Told::Event(stamped)))
    }

    fn damaged(&self, message: String) -> TraceError {
        TraceError::Line { line: self.line, message }
    }
}
