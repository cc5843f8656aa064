//! A recording as a source for the window: read on a thread of its own, so that a long one is seen
//! to grow and nothing waits for it.

use crate::cli::ModelArgs;
use crate::recording;
use crate::wake::Wake;
use anyhow::{Result, anyhow};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use tilewright::engine::ModelCard;
use tilewright::trace::{Header, Stamped};
use tilewright::viewer::Viewer;

/// Events that go to the window at once, how many times they do before a frame, and how many times
/// they wait for one.
const EVENTS: usize = 4096;
const PER_FRAME: usize = 4;
const WAITING: usize = 8;

enum Read {
    Events(Vec<Stamped>),
    End(Result<Box<(Header, Option<ModelCard>)>>),
}

/// A recording that is being read.
pub struct Reading {
    told: Receiver<Read>,
    wake: Wake,
}

impl Reading {
    /// Begins to read; returns at once.
    pub fn start(path: PathBuf, args: ModelArgs, wake: Wake) -> Result<Self> {
        let (tell, told) = sync_channel(WAITING);
        let woken = wake.clone();
        let thread = std::thread::Builder::new().name("tilewright-reading".to_string());
        thread.spawn(move || {
            // Nobody takes it any more where the window looks at something else by now.
            let send = |read| {
                if tell.send(read).is_ok() {
                    woken();
                }
            };
            let mut events = Vec::with_capacity(EVENTS);
            let end = recording::read(&path, &args, &mut |event| {
                events.push(event);
                if events.len() == EVENTS {
                    send(Read::Events(std::mem::replace(&mut events, Vec::with_capacity(EVENTS))));
                }
            });
            send(Read::Events(events));
            send(Read::End(end.map(Box::new)));
        })?;
        Ok(Self { told, wake })
    }

    /// Shows some of what was read; the outcome, once it is all.
    pub fn pump(&self, viewer: &mut Viewer) -> Option<Result<()>> {
        for _ in 0..PER_FRAME {
            match self.told.try_recv() {
                Ok(Read::Events(events)) => events.iter().for_each(|event| viewer.push(event)),
                Ok(Read::End(Ok(found))) => {
                    let (header, card) = *found;
                    recording::opened(viewer, header, card);
                    return Some(Ok(()));
                }
                Ok(Read::End(Err(error))) => return Some(Err(error)),
                Err(TryRecvError::Empty) => return None,
                // Whoever reads tells the end: without one it has panicked.
                Err(TryRecvError::Disconnected) => {
                    return Some(Err(anyhow!(
                        "the recording was not read to its end, by a fault of this program"
                    )));
                }
            }
        }
        // There may be more, and nothing else tells of it.
        (self.wake)();
        None
    }
}
