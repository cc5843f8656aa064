//! A folder of files, on disk or behind sources of any kind. Names are plain file names: what a
//! checkpoint's index says must not lead out of its folder.

use super::super::source::FileSource;
use super::super::{Source, WeightsError};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// The most bytes of a file that is read as a whole. tokenizer.json is the largest, at 35 MB.
const SIDE_FILE_MAX: u64 = 256 << 20;

pub(in super::super) enum Folder {
    Disk(PathBuf),
    Given { name: String, files: Vec<(String, Arc<dyn Source>)> },
}

impl Folder {
    /// What errors call a file of this folder.
    pub fn name_of(&self, file: &str) -> String {
        match self {
            Self::Disk(dir) => dir.join(file).display().to_string(),
            Self::Given { name, .. } => format!("{name}/{file}"),
        }
    }

    /// Opens a file; `None` if there is none of this name.
    pub fn source(&self, file: &str) -> Result<Option<Box<dyn Source>>, WeightsError> {
        let name = self.name_of(file);
        if file.is_empty() || file == ".." || file == "." || file.contains(['/', '\\', ':', '\0']) {
            return Err(WeightsError::header(&name, "file name", "is no plain file name"));
        }
        match self {
            Self::Disk(dir) => {
                let path = dir.join(file);
                match path.try_exists() {
                    Ok(false) => Ok(None),
                    _ => Ok(Some(Box::new(FileSource::open(&path)?))),
                }
            }
            Self::Given { files, .. } => Ok(files
                .iter()
                .find(|(found, _)| *found == file)
                .map(|(_, source)| Box::new(source.clone()) as _)),
        }
    }

    /// A file as a whole.
    pub fn bytes(&self, file: &str) -> Result<Option<Vec<u8>>, WeightsError> {
        let Some(source) = self.source(file)? else { return Ok(None) };
        let len = source.len();
        if len > SIDE_FILE_MAX {
            let problem = format!("{len} bytes; at most {SIDE_FILE_MAX} are read as a whole");
            return Err(WeightsError::header(source.name(), "file length", problem));
        }
        let mut out = vec![0; len as usize];
        source.read(0, &mut out)?;
        Ok(Some(out))
    }

    pub fn json(&self, file: &str) -> Result<Option<Value>, WeightsError> {
        let Some(bytes) = self.bytes(file)? else { return Ok(None) };
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(e) => Err(WeightsError::header(&self.name_of(file), "JSON", e)),
        }
    }
}
