//! Ids are u32 newtypes, so that a block is never taken for a sequence.

use std::fmt;

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
