//! The cache on disk, laid out as the hub's own tools lay it out: `refs/REVISION` names a commit,
//! `snapshots/COMMIT/FILE` leads to `blobs/HASH`.

use super::HubError;
use super::choose::Listed;
use super::name::is_file;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders in a folder that are looked into for files.
const DEPTH_MAX: usize = 4;

/// One repository's part of the cache.
pub(super) struct Cache {
    root: PathBuf,
}

pub(super) fn io_error(path: &Path, doing: &'static str, source: io::Error) -> HubError {
    HubError::Io { path: path.display().to_string(), doing, source }
}

impl Cache {
    pub fn new(cache: &Path, repo: &str) -> Self {
        Self { root: cache.join(format!("models--{}", repo.replace('/', "--"))) }
    }

    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    pub fn blob(&self, hash: &str) -> PathBuf {
        self.root.join("blobs").join(hash)
    }

    /// The commit that a revision led to when it was last asked for.
    pub fn revision(&self, revision: &str) -> Result<String, HubError> {
        let path = self.root.join("refs").join(revision);
        match fs::read_to_string(&path) {
            Ok(commit) if is_file(commit.trim()) => Ok(commit.trim().to_string()),
            Ok(_) => Err(io_error(&path, "holds no commit", io::ErrorKind::InvalidData.into())),
            // A commit may be asked for by its own name.
            Err(_) if self.snapshot(revision).is_dir() => Ok(revision.to_string()),
            Err(error) => Err(io_error(&path, "cannot be read", error)),
        }
    }

    pub fn set_revision(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        let path = self.root.join("refs").join(revision);
        make_parent(&path)?;
        fs::write(&path, commit).map_err(|error| io_error(&path, "cannot be written", error))
    }

    /// Whether a file is here, whole.
    pub fn has(&self, commit: &str, file: &Listed) -> bool {
        let found = fs::metadata(self.snapshot(commit).join(&file.path));
        found.is_ok_and(|found| found.is_file() && found.len() == file.bytes)
    }

    /// The files of a snapshot.
    pub fn files(&self, commit: &str) -> Result<Vec<Listed>, HubError> {
        let mut files = Vec::new();
        walk(&self.snapshot(commit), "", DEPTH_MAX, &mut files)?;
        files.sort_by(|a: &Listed, b: &Listed| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Keeps the hub's list of a commit's files, which tells what is whole when it cannot be asked.
    pub fn set_listing(&self, commit: &str, files: &[Listed]) -> Result<(), HubError> {
        let path = self.root.join("listings").join(commit);
        make_parent(&path)?;
        let lines: String = files.iter().map(|f| format!("{} {}\n", f.bytes, f.path)).collect();
        fs::write(&path, lines).map_err(|error| io_error(&path, "cannot be written", error))
    }

    /// That list; empty where there is none, as for what the hub's own tools have fetched.
    pub fn listing(&self, commit: &str) -> Vec<Listed> {
        let lines = fs::read_to_string(self.root.join("listings").join(commit));
        let one = |line: &str| {
            let (bytes, path) = line.split_once(' ')?;
            let bytes = bytes.parse().ok()?;
            is_file(path).then(|| Listed { path: path.to_string(), bytes, hash: String::new() })
        };
        lines.unwrap_or_default().lines().filter_map(one).collect()
    }

    /// Makes a blob that is whole appear in a snapshot.
    pub fn link(&self, commit: &str, file: &Listed) -> Result<(), HubError> {
        let (blob, place) = (self.blob(&file.hash), self.snapshot(commit).join(&file.path));
        make_parent(&place)?;
        // What stands there led to another blob, or to none.
        match fs::remove_file(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error(&place, "cannot be replaced", error));
            }
            _ => {}
        }
        link(&blob, &place, &file.path)
            .or_else(|_| fs::hard_link(&blob, &place))
            .or_else(|_| copy(&blob, &place))
            .map_err(|error| io_error(&place, "cannot be linked", error))
    }
}

/// A copy, under another name until it is whole. Whatever stands at `place` by now is replaced, not
/// written to: it may be another process's link to the blob itself.
fn copy(blob: &Path, place: &Path) -> io::Result<()> {
    let mut part = place.as_os_str().to_os_string();
    part.push(".incomplete");
    fs::copy(blob, &part)?;
    fs::rename(&part, place)
}

/// A relative link, so that the cache can be moved.
#[cfg(unix)]
fn link(blob: &Path, place: &Path, file: &str) -> io::Result<()> {
    let up = "../".repeat(2 + file.matches('/').count());
    let name = blob.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    std::os::unix::fs::symlink(format!("{up}blobs/{name}"), place)
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn make_parent(path: &Path) -> Result<(), HubError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|error| io_error(folder, "cannot be made", error))
}

fn walk(folder: &Path, lead: &str, depth: usize, out: &mut Vec<Listed>) -> Result<(), HubError> {
    let io = |error| io_error(folder, "cannot be read", error);
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if lead.is_empty() { name } else { format!("{lead}/{name}") };
        // A link that leads nowhere is a file that is not here.
        let Ok(found) = fs::metadata(entry.path()) else { continue };
        if found.is_dir() && depth > 0 {
            walk(&entry.path(), &path, depth - 1, out)?;
        } else if found.is_file() {
            out.push(Listed { path, bytes: found.len(), hash: String::new() });
        }
    }
    Ok(())
}
