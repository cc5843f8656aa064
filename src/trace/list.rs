//! Short lists in events, held inline so that a step is traced without allocating.

use crate::base::{BlockHash, BlockId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Block ids, in pieces.
pub type BlockList = List<BlockId, 8>;
/// Hashes of blocks, in pieces.
pub type HashList = List<BlockHash, 4>;

/// Up to `N` items.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct List<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self { len: 0, items: [T::default(); N] }
    }
}

impl<T, const N: usize> List<T, N> {
    pub const MAX: usize = N;

    /// Adds an item; false when the list is full.
    pub fn push(&mut self, item: T) -> bool {
        let at = usize::from(self.len);
        if at == N {
            return false;
        }
        self.items[at] = item;
        self.len += 1;
        true
    }

    pub fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }

    pub fn is_full(&self) -> bool {
        usize::from(self.len) == N
    }
}

impl<T: std::fmt::Display, const N: usize> std::fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let items: Vec<String> = self.as_slice().iter().map(ToString::to_string).collect();
        write!(f, "[{}]", items.join(", "))
    }
}

impl<T: Serialize, const N: usize> Serialize for List<T, N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.as_slice())
    }
}

impl<'de, T: Copy + Default + Deserialize<'de>, const N: usize> Deserialize<'de> for List<T, N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let items = Vec::<T>::deserialize(from)?;
        let mut list = Self::default();
        for &item in &items {
            if !list.push(item) {
                let most = format!("at most {N}");
                return Err(serde::de::Error::invalid_length(items.len(), &most.as_str()));
            }
        }
        Ok(list)
    }
}
