//! Ids are u32 newtypes, so that a block is never taken for a sequence.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A token of the vocabulary. An alias, because tokens are data that kernels read as `u32`.
pub type TokenId = u32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into a table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// What a caller asked for. Counts up from 0 in one engine's life.
    RequestId
);
id!(
    /// The tokens in flight of one request (with `n` > 1 a request has several).
    SequenceId
);
id!(
    /// One page of the KV cache: `block_size` token positions, in every layer.
    BlockId
);

impl BlockId {
    /// In a block table: the block here was given back because no layer's window reaches it any
    /// more. Never read, and never the id of a block.
    pub const EXPIRED: BlockId = BlockId(u32::MAX);
}

/// What a full block's content is looked up by: a hash over its tokens and all before them in the
/// sequence, and what else keys and values depend on. Text of 16 digits, because numbers of JSON
/// are exact only up to 2⁵³.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockHash(pub u64);

impl fmt::Display for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for BlockHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlockHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}
