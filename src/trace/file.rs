//! A trace file written by a thread of its own, so that a slow disk never holds up a step.
//! The buffer between is bounded; what does not fit is lost, counted, and told in the file.

use super::codec::{Header, TRACE_START, write_header, write_line};
use super::event::{Event, Stamped};
use super::sink::Sink;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufWriter, Error, ErrorKind, Read, Seek, Write};
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
    /// Creates `path` with `header`; up to `capacity` events may wait for the disk. An older trace
    /// gives way, any other file is left as it is. `lost` hears of an error of the disk when it
    /// comes: nothing is written from there on.
    pub fn create(
        path: &Path,
        capacity: usize,
        header: &Header,
        lost: impl FnOnce(&Error) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::to_writer(open(path)?, capacity, header, lost)
    }

    /// Creates `path` for a stream that has no clock to keep up with: a simulation waits for the
    /// disk, and no event is lost.
    pub fn patient(path: &Path, header: &Header) -> std::io::Result<Self> {
        // `finish` tells.
        let mut sink = Self::create(path, PATIENT_EVENTS, header, |_| {})?;
        sink.patient = true;
        Ok(sink)
    }

    /// The same over any writer.
    pub fn to_writer(
        to: impl Write + Send + 'static,
        capacity: usize,
        header: &Header,
        lost: impl FnOnce(&Error) + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut to = BufWriter::with_capacity(1 << 16, to);
        write_header(&mut to, header)?;
        let (sender, receiver) = sync_channel(capacity.max(1));
        let writer = std::thread::Builder::new()
            .name("trace-writer".to_string())
            .spawn(move || write_all(&receiver, to).inspect_err(lost))?;
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

/// An empty file at `path`, held against other writers.
fn open(path: &Path) -> std::io::Result<File> {
    // Pipes and devices have nothing to lose.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return File::create(path);
    }
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let message = "another program is writing this file";
            return Err(Error::new(ErrorKind::ResourceBusy, message));
        }
        // Some file systems know no locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(TRACE_START.len() as u64).read_to_end(&mut start)?;
    if !TRACE_START.starts_with(&start) {
        let message = "there is a file of this name that is no trace; it was left as it is";
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    file.set_len(0)?;
    file.rewind()?;
    Ok(file)
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
