//! Stop strings over a stream of text pieces: nothing that may be part of a stop string leaves
//! before it is known not to be.

use super::TextError;

/// Entries a request may give.
const STOPS_MAX: usize = 4;

/// Refuses a request's stop list: an empty string, or too many.
pub fn check_stops(stops: &[String]) -> Result<(), TextError> {
    if let Some(index) = stops.iter().position(String::is_empty) {
        return Err(TextError::EmptyStop { index });
    }
    if stops.len() > STOPS_MAX {
        return Err(TextError::TooManyStops { count: stops.len(), max: STOPS_MAX });
    }
    Ok(())
}

/// What a push released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    pub text: String,
    /// A stop string was met; it and all that follows is dropped.
    pub stopped: bool,
}

/// Cuts a stream of pieces before the stop string that *begins* first, whichever is complete first.
#[derive(Clone, Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    stopped: bool,
}

impl StopMatcher {
    /// Empty strings never match.
    pub fn new(mut stops: Vec<String>) -> Self {
        stops.retain(|stop| !stop.is_empty());
        Self { stops, ..Self::default() }
    }

    /// True when nothing can ever match.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// Takes the next piece; after a stop everything is dropped.
    pub fn push(&mut self, piece: &str) -> StopStep {
        if self.stopped {
            return StopStep { text: String::new(), stopped: true };
        }
        self.held.push_str(piece);
        let found = self.first_found();
        let open = self.first_open(found.unwrap_or(self.held.len()));
        let release = match (open, found) {
            (Some(open), _) => open,
            (None, Some(found)) => {
                self.stopped = true;
                found
            }
            (None, None) => self.held.len(),
        };
        let rest = self.held.split_off(release);
        let text = std::mem::replace(&mut self.held, rest);
        if self.stopped {
            self.held.clear();
        }
        StopStep { text, stopped: self.stopped }
    }

    /// The end of the stream: releases what was held, up to a stop string that is complete in it.
    /// [`StopMatcher::stopped`] then says whether there was one.
    pub fn finish(&mut self) -> String {
        if let Some(found) = self.first_found() {
            self.held.truncate(found);
            self.stopped = true;
        }
        std::mem::take(&mut self.held)
    }

    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Start of the complete stop string that begins first.
    fn first_found(&self) -> Option<usize> {
        self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min()
    }

    /// First position before `limit` from which the held text runs into a stop string's prefix.
    fn first_open(&self, limit: usize) -> Option<usize> {
        let longest = self.stops.iter().map(String::len).max()?;
        let from = self.held.len().saturating_sub(longest - 1);
        (from..limit).filter(|at| self.held.is_char_boundary(*at)).find(|at| {
            let tail = &self.held[*at..];
            self.stops.iter().any(|stop| stop.len() > tail.len() && stop.starts_with(tail))
        })
    }
}
