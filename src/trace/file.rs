//! A trace file written by a thread of its own, so that a slow disk never holds up a step.
//! The buffer between is bounded; what does not fit is lost, counted, and told in the file.

use super::codec::{Header, write_header, write_line};
use super::event::{Event, Stamped};
use super::sink::Sink;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Events between a simulation and the disk.
const PATIENT_EVENTS: usize = 1 << 12;

/// What became of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    pub events: u64,
    pub dropped: u64,
}

/// Writes the stream to a file as JSON lines.
pub struct FileSink {
    to: Option<SyncSender<Stamped>>,
    writer: Option<JoinHandle<std::io::Result<u64>>>,
    /// Waits for the disk rather than lose an event.
    patient: bool,
    dropped: u64,
    /// Of `dropped`, those the file does not tell of yet.
    untold: u64,
}

impl FileSink {
    /// Creates `path` with `header`; up to `capacity` events may wait for the disk.
    pub fn create(path: &Path, capacity: usize, header: &Header) -> std::io::Result<Self> {
        Self::to_writer(File::create(path)?, capacity, header)
    }

    /// Creates `path` for a stream that has no clock to keep up with: a simulation waits for the
    /// disk, and no event is lost.
    pub fn patient(path: &Path, header: &Header) -> std::io::Result<Self> {
        let mut sink = Self::create(path, PATIENT_EVENTS, header)?;
        sink.patient = true;
        Ok(sink)
    }

    /// The same over any writer.
    pub fn to_writer(
        to: impl Write + Send + 'static,
        capacity: usize,
        header: &Header,
    ) -> std::io::Result<Self> {
        let mut to = BufWriter::with_capacity(1 << 16, to);
        write_header(&mut to, header)?;
        let (sender, receiver) = sync_channel(capacity.max(1));
        let writer = std::thread::Builder::new()
            .name("trace-writer".to_string())
            .spawn(move || write_all(&receiver, to))?;
        Ok(Self { to: Some(sender), writer: Some(writer), patient: false, dropped: 0, untold: 0 })
    }

    /// Events lost so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes what waits and closes the file. An error of the disk shows here.
    pub fn finish(mut self) -> std::io::Result<Written> {
        let events = self.close()?;
        Ok(Written { events, dropped: self.dropped })
    }

    fn close(&mut self) -> std::io::Result<u64> {
        self.to = None;
        match self.writer.take().map(JoinHandle::join) {
            None => Ok(0),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(std::io::Error::other("the trace writer panicked")),
        }
    }

    fn send(&mut self, event: Stamped) -> bool {
        if self.patient {
            return self.to.as_ref().is_some_and(|to| to.send(event).is_ok());
        }
        match self.to.as_ref().map(|to| to.try_send(event)) {
            Some(Ok(())) => true,
            Some(Err(TrySendError::Full(_))) => false,
            // The writer met an error and left; `finish` reports it.
            Some(Err(TrySendError::Disconnected(_))) | None => false,
        }
    }
}

impl Sink for FileSink {
    fn push(&mut self, event: &Stamped) {
        if self.untold > 0 {
            let count = self.untold;
            let seq = event.seq.saturating_sub(count);
            let told = Stamped { seq, event: Event::EventsDropped { count }, ..event.clone() };
            if self.send(told) {
                self.untold = 0;
            }
        }
        if self.untold > 0 || !self.send(event.clone()) {
            self.dropped += 1;
            self.untold += 1;
        }
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        // A sink dropped without `finish` still writes what waits; its error has no taker.
        let _ = self.close();
    }
}

/// Writes until every sender is gone; flushes whenever nothing waits, so that a reader who
/// follows the file sees whole steps.
fn write_all(from: &Receiver<Stamped>, mut to: impl Write) -> std::io::Result<u64> {
    let mut events = 0;
    loop {
        let event = match from.try_recv() {
            Ok(event) => event,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                to.flush()?;
                match from.recv() {
                    Ok(event) => event,
                    Err(_) => break,
                }
            }
        };
        write_line(&mut to, &event)?;
        events += 1;
    }
    to.flush()?;
    Ok(events)
}
