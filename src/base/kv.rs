//! How keys and values are stored in the paged cache. What the words mean is known in the pairs
//! `shaders/lib/kv_X` + `put_X` (read, write) and in `cpu::kv`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A storage type of the KV cache.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    #[default]
    F32,
    /// Two values a word, rounded to nearest even. A value beyond 65504 is stored as NaN, so that
    /// it fails the request that made it.
    F16,
    /// Four values a word, with one f32 scale per (token, kv head): max |x| / 127.
    Q8,
}

impl KvType {
    pub const ALL: [KvType; 3] = [KvType::F32, KvType::F16, KvType::Q8];

    /// The name used in flags, variants and shader files.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Q8 => "q8",
        }
    }

    /// Bytes of K, or of V, of one token and kv head.
    pub fn row_bytes(self, head_dim: u32) -> u64 {
        let values = u64::from(head_dim);
        match self {
            KvType::F32 => values * 4,
            KvType::F16 => values * 2,
            KvType::Q8 => values + 4,
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        KvType::ALL.into_iter().find(|kv| kv.name() == text).ok_or_else(|| {
            let names = KvType::ALL.map(KvType::name).join(", ");
            format!("`{text}` is not a KV storage type; there are {names}")
        })
    }
}
