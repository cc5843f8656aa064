//! The newest events and the picture that all of them add up to, for watchers that come late.

use crate::trace::{Asked, Event, HashList, Picture, RingSink, Sink, Stamped, WITHHELD, fold};

/// Events kept for watchers; one that is further behind gets a new snapshot.
const EVENTS_KEPT: usize = 4096;
/// Events handed out at once.
const BATCH_MAX: usize = 512;

/// Where a watcher is in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::server) enum Position {
    /// It has seen nothing yet, or has lost events: a snapshot comes next.
    Lost,
    /// It has a snapshot and every event below this place.
    At(u64),
}

pub(in crate::server) struct Feed {
    picture: Picture,
    recent: RingSink,
}

impl Default for Feed {
    fn default() -> Self {
        Self { picture: Picture::default(), recent: RingSink::new(EVENTS_KEPT) }
    }
}

impl Feed {
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    pub fn push(&mut self, event: &Stamped) {
        let mut event = event.clone();
        match &mut event.event {
            Event::TokenSampled { token, .. } => *token = WITHHELD,
            Event::PromptGiven { tokens, .. } => tokens.clear(),
            // Whoever guesses a text could see from them that the guess is right.
            Event::BlocksHashed { hashes, .. } => *hashes = HashList::default(),
            Event::RequestAsked { asked, .. } => {
                let Asked { choices, max_tokens, tenant, class, .. } = **asked;
                **asked = Asked { choices, max_tokens, tenant, class, ..Asked::default() };
            }
            _ => {}
        }
        fold(&mut self.picture, &event);
        self.recent.push(&event);
    }

    /// Events from `seq` on, as many as go at once; `None` if some of them are gone.
    pub fn since(&self, seq: u64) -> Option<Vec<Stamped>> {
        let oldest = self.recent.events().next().map_or(self.picture.seq, |event| event.seq);
        let skip = usize::try_from(seq.checked_sub(oldest)?).ok()?;
        Some(self.recent.events().skip(skip).take(BATCH_MAX).cloned().collect())
    }
}
