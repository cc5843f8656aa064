//! Where bytes come from: a positioned read of a file or of bytes in memory. All parsing asks
//! for ranges, so that no file is ever in memory as a whole. Offsets are u64 everywhere.

use super::WeightsError;
use std::borrow::Cow;
use std::path::Path;

/// Bytes that can be read at any offset, from several threads at once.
pub trait Source: Send + Sync {
    /// Bytes in all; fixed while the source is open.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` from `offset`, or fails; never fills a part of it.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), WeightsError>;

    /// What errors call this source.
    fn name(&self) -> &str;
}

/// A source that several hold.
impl<S: Source + ?Sized> Source for std::sync::Arc<S> {
    fn len(&self) -> u64 {
        self.as_ref().len()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), WeightsError> {
        self.as_ref().read(offset, into)
    }

    fn name(&self) -> &str {
        self.as_ref().name()
    }
}

/// A regular file. Reads carry their own position: no shared cursor, no lock.
pub struct FileSource {
    name: String,
    len: u64,
    file: std::fs::File,
}

impl FileSource {
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let name = path.display().to_string();
        let io = |doing: &str, source| WeightsError::Io {
            file: name.clone(),
            doing: doing.to_string(),
            source,
        };
        // Before opening: to open a pipe would wait for its writer.
        let found = std::fs::metadata(path).map_err(|e| io("cannot be opened", e))?;
        if !found.is_file() {
            return Err(WeightsError::header(&name, "path", "is not a regular file"));
        }
        let file = std::fs::File::open(path).map_err(|e| io("cannot be opened", e))?;
        let len = file.metadata().map_err(|e| io("cannot be measured", e))?.len();
        Ok(Self { name, len, file })
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), WeightsError> {
        read_exact_at(&self.file, offset, into).map_err(|source| WeightsError::Io {
            file: self.name.clone(),
            doing: format!("reading {} bytes at {offset} of {}", into.len(), self.len),
            source,
        })
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(unix)]
fn read_exact_at(file: &std::fs::File, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &std::fs::File, mut offset: u64, into: &mut [u8]) -> std::io::Result<()> {
    let mut rest = into;
    while !rest.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, rest, offset) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                rest = &mut rest[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(not(any(unix, windows)))]
fn read_exact_at(_: &std::fs::File, _: u64, _: &mut [u8]) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Bytes in memory, embedded in the program or owned.
pub struct BytesSource {
    name: String,
    bytes: Cow<'static, [u8]>,
}

impl BytesSource {
    pub fn new(name: impl Into<String>, bytes: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

impl Source for BytesSource {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), WeightsError> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|first| Some(first..first.checked_add(into.len())?))
            .and_then(|range| self.bytes.get(range));
        match found {
            Some(bytes) => into.copy_from_slice(bytes),
            None => {
                return Err(WeightsError::Io {
                    file: self.name.clone(),
                    doing: format!("reading {} bytes at {offset} of {}", into.len(), self.len()),
                    source: std::io::ErrorKind::UnexpectedEof.into(),
                });
            }
        }
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }
}
