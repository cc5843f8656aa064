//! Reads a GGUF header front to back, a window at a time. Every length is held against the bytes
//! left before anything is allocated, and the header as a whole against a bound.

use super::super::{Source, WeightsError};

/// Bytes fetched at once.
const WINDOW: u64 = 256 * 1024;

/// The most bytes a header may have. The largest vocabularies in use need 15 MB.
pub(super) const HEADER_BYTES_MAX: u64 = 256 << 20;

/// What is being read, for errors.
pub(super) enum Place {
    Header,
    KeyName(u64),
    Key(String),
    TensorName(u64),
    Tensor(String),
}

pub(super) struct Cursor<'a> {
    source: &'a dyn Source,
    pub place: Place,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(source: &'a dyn Source) -> Self {
        let end = source.len().min(HEADER_BYTES_MAX);
        Self { source, place: Place::Header, at: 0, end, window: Vec::new(), window_at: 0 }
    }

    pub fn file(&self) -> &'a str {
        self.source.name()
    }

    /// Offset of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes that may still be read.
    pub fn left(&self) -> u64 {
        self.end - self.at
    }

    pub fn error(&self, field: &'static str, problem: impl std::fmt::Display) -> WeightsError {
        let file = self.source.name();
        match &self.place {
            Place::Header => WeightsError::header(file, field, problem),
            Place::KeyName(n) => {
                WeightsError::header(file, format_args!("metadata key {n}: {field}"), problem)
            }
            Place::Key(key) => WeightsError::key(file, key, format!("{field}: {problem}")),
            Place::TensorName(n) => {
                WeightsError::header(file, format_args!("tensor {n}: {field}"), problem)
            }
            Place::Tensor(name) => WeightsError::tensor(file, name, field, problem),
        }
    }

    /// `n` items of at least `item` bytes each, as a count that the bytes left can hold.
    pub fn count(&self, field: &'static str, n: u64, item: u64) -> Result<usize, WeightsError> {
        let fits = n <= self.left() / item.max(1);
        usize::try_from(n).ok().filter(|_| fits).ok_or_else(|| {
            let left = self.left();
            self.error(
                field,
                format!(
                    "{n} (at least {item} bytes each), but {left} bytes are left; \
                     the file is cut short or damaged"
                ),
            )
        })
    }

    /// Moves the next `into.len()` bytes out.
    fn fill(&mut self, field: &'static str, into: &mut [u8]) -> Result<(), WeightsError> {
        self.count(field, into.len() as u64, 1)?;
        let mut done = 0;
        while done < into.len() {
            let skip = usize::try_from(self.at - self.window_at).unwrap_or(usize::MAX);
            let Some(ready) = self.window.get(skip..).filter(|ready| !ready.is_empty()) else {
                let n = self.left().min(WINDOW);
                self.window.resize(n as usize, 0);
                self.source.read(self.at, &mut self.window)?;
                self.window_at = self.at;
                continue;
            };
            let n = ready.len().min(into.len() - done);
            into[done..done + n].copy_from_slice(&ready[..n]);
            done += n;
            self.at += n as u64;
        }
        Ok(())
    }

    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WeightsError> {
        let mut out = [0; N];
        self.fill(field, &mut out)?;
        Ok(out)
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, WeightsError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, WeightsError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// `n` bytes, held against the bytes left before they are allocated.
    pub fn bytes(&mut self, field: &'static str, n: u64) -> Result<Vec<u8>, WeightsError> {
        let mut out = vec![0; self.count(field, n, 1)?];
        self.fill(field, &mut out)?;
        Ok(out)
    }

    /// A length and that many bytes of UTF-8.
    pub fn text(&mut self, field: &'static str) -> Result<String, WeightsError> {
        let n = self.u64(field)?;
        let bytes = self.bytes(field, n)?;
        String::from_utf8(bytes).map_err(|e| self.error(field, format!("is not UTF-8: {e}")))
    }
}
