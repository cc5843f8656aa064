//! Hashes of files as a hub gives them, taken while a file comes.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The hash of one file under way.
pub(super) enum Hash {
    /// As git names a file: of its length, then its bytes.
    Git(Sha1),
    Sha256(Sha256),
}

impl Hash {
    /// For a file of `bytes` whose hash is written as `hex`.
    pub fn new(hex: &str, bytes: u64) -> Self {
        match hex.len() {
            40 => Self::Git(Sha1::new().chain_update(format!("blob {bytes}\0"))),
            _ => Self::Sha256(Sha256::new()),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Git(hash) => hash.update(bytes),
            Self::Sha256(hash) => hash.update(bytes),
        }
    }

    pub fn hex(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Git(hash) => hex(&hash.finalize()),
            Self::Sha256(hash) => hex(&hash.finalize()),
        }
    }
}

/// Hexadecimal digits of a hash that is known.
pub(super) fn is_hash(hex: &str) -> bool {
    matches!(hex.len(), 40 | 64)
        && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
