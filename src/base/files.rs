//! Files that other processes may read at any time.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io, process};

/// Puts `bytes` at `path`, whole or not at all, and makes its folder where that is missing.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut part = path.as_os_str().to_os_string();
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    part.push(format!(".{}-{number}.part", process::id()));
    let done = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if done.is_err() {
        // It may never have been made.
        let _ = fs::remove_file(&part);
    }
    done
}

/// A number that tells damage and change of `parts`, not malice.
pub fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        let length = (part.len() as u64).to_le_bytes();
        for byte in length.iter().chain(part) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    sum
}
