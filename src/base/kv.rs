//! How keys and values are stored in the paged cache. What the words mean is known in the pairs
//! `shaders/lib/kv_X` + `put_X` (read, write) and in `cpu::kv`.

use super::named::named;
use serde::{Deserialize, Serialize};

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

named!(KvType, "a KV storage type", F32 => "f32", F16 => "f16", Q8 => "q8");

impl KvType {
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
