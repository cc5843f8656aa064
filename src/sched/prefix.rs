//! The prefix index: which blocks hold the keys and values of which tokens, so that a sequence
//! that begins like an earlier one finds them computed.
//!
//! A full block is known by its tokens and by the block before it in its chain; the first of a
//! chain by a tag. A hash over the chain only says where to look: a hit compares parent, tag and
//! tokens themselves, so a collision costs time and never a wrong block. Blocks before it are
//! named by the number they were entered under, which is given once, so that a block whose content
//! has changed is nobody's parent. Sized at start; no operation allocates.

use crate::base::{BlockHash, BlockId, TokenId};
use std::sync::Arc;

/// What keys and values depend on beside the tokens before them: the model, its rope, the type
/// they are stored in, and the salt of a request. Compared as a whole.
pub type Tag = Arc<str>;

const NONE: u32 = u32::MAX;

/// The parent of a chain's first block.
pub(super) const ROOT: u64 = 0;

/// What a block is asked for by.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    /// Of the whole chain, this block included: [`PrefixIndex::hash`].
    pub hash: u64,
    /// Number of the block before it.
    pub parent: u64,
    /// Looked at where the parent is [`ROOT`].
    pub tag: &'a Tag,
    /// As many as a block holds.
    pub tokens: &'a [TokenId],
}

/// What is known of one block of the pool.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// Its number, from 1; 0 where the index does not know it.
    number: u64,
    parent: u64,
    hash: u64,
    /// The next of the same bucket.
    next: u32,
    /// Of a chain's first block.
    tag: Option<Tag>,
}

#[derive(Clone, Debug)]
pub(super) struct PrefixIndex {
    block_size: usize,
    entries: Vec<Entry>,
    /// Of every block, `block_size` apiece.
    tokens: Vec<TokenId>,
    /// First block of each bucket; a power of two of them.
    buckets: Vec<u32>,
    /// Blocks entered so far.
    last: u64,
    hash_mask: u64,
}

impl PrefixIndex {
    pub fn new(blocks: u32, block_size: u32) -> Self {
        let (blocks, block_size) = (blocks as usize, block_size as usize);
        Self {
            block_size,
            entries: vec![Entry::default(); blocks],
            tokens: vec![0; blocks * block_size],
            buckets: vec![NONE; blocks.next_power_of_two()],
            last: ROOT,
            hash_mask: u64::MAX,
        }
    }

    /// Narrows hashes to `bits`, so that a test can see collisions. Before anything is entered.
    pub fn narrow(&mut self, bits: u32) {
        assert_eq!(self.last, ROOT, "blocks were entered under wider hashes");
        self.hash_mask = 1u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1);
    }

    /// Where a chain under `tag` starts.
    pub fn seed(&self, tag: &Tag) -> u64 {
        let seed = tag.bytes().fold(SEED, |hash, byte| mix(hash, u64::from(byte)));
        finish(seed) & self.hash_mask
    }

    /// Of a chain that went on from `before` with a block of these tokens.
    pub fn hash(&self, before: u64, tokens: &[TokenId]) -> u64 {
        let hash = tokens.iter().fold(before ^ SEED, |hash, &t| mix(hash, u64::from(t)));
        finish(hash) & self.hash_mask
    }

    /// A block with these tokens, and the number it was entered under.
    pub fn find(&self, key: &Key<'_>) -> Option<(BlockId, u64)> {
        let mut at = self.buckets[self.bucket(key.hash)];
        while at != NONE {
            let entry = &self.entries[at as usize];
            let alike = entry.hash == key.hash && entry.parent == key.parent;
            if alike && self.tokens_of(BlockId(at)) == key.tokens && same_tag(entry, key) {
                return Some((BlockId(at), entry.number));
            }
            at = entry.next;
        }
        None
    }

    /// The number `block` was entered under; `None` when the index does not know it.
    pub fn number(&self, block: BlockId) -> Option<u64> {
        Some(self.entries[block.index()].number).filter(|&n| n != ROOT)
    }

    /// Enters a block that [`PrefixIndex::find`] does not find; its number.
    pub fn insert(&mut self, block: BlockId, key: &Key<'_>) -> u64 {
        debug_assert!(self.number(block).is_none(), "block {block} is in the index already");
        let bucket = self.bucket(key.hash);
        let first = block.index() * self.block_size;
        self.tokens[first..first + self.block_size].copy_from_slice(key.tokens);
        self.last += 1;
        self.entries[block.index()] = Entry {
            number: self.last,
            parent: key.parent,
            hash: key.hash,
            next: std::mem::replace(&mut self.buckets[bucket], block.0),
            tag: (key.parent == ROOT).then(|| key.tag.clone()),
        };
        self.last
    }

    /// Forgets a block; one that is not there is none.
    pub fn remove(&mut self, block: BlockId) {
        let Entry { number, hash, next, .. } = std::mem::take(&mut self.entries[block.index()]);
        if number == ROOT {
            return;
        }
        let bucket = self.bucket(hash);
        if self.buckets[bucket] == block.0 {
            self.buckets[bucket] = next;
            return;
        }
        let mut at = self.buckets[bucket];
        while at != NONE {
            let entry = &mut self.entries[at as usize];
            if entry.next == block.0 {
                entry.next = next;
                return;
            }
            at = entry.next;
        }
    }

    /// The tokens `block` was entered with.
    pub fn tokens_of(&self, block: BlockId) -> &[TokenId] {
        let first = block.index() * self.block_size;
        &self.tokens[first..first + self.block_size]
    }

    /// What `block` was entered with.
    pub fn hash_of(&self, block: BlockId) -> BlockHash {
        BlockHash(self.entries[block.index()].hash)
    }

    /// The first entry that its own key does not lead to.
    pub fn check(&self) -> Result<(), String> {
        for (at, entry) in (0u32..).zip(&self.entries).filter(|(_, e)| e.number != ROOT) {
            let none = Tag::default();
            let key = Key {
                hash: entry.hash,
                parent: entry.parent,
                tag: entry.tag.as_ref().unwrap_or(&none),
                tokens: self.tokens_of(BlockId(at)),
            };
            match self.find(&key) {
                Some((found, _)) if found == BlockId(at) => {}
                Some((found, _)) => {
                    return Err(format!("blocks {at} and {found} are cached as one"));
                }
                None => return Err(format!("cached block {at} is not found by its tokens")),
            }
        }
        Ok(())
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }
}

fn same_tag(entry: &Entry, key: &Key<'_>) -> bool {
    match &entry.tag {
        // Below the first block the parent stands for it.
        None => true,
        Some(tag) => Arc::ptr_eq(tag, key.tag) || tag == key.tag,
    }
}

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// A multiplication spreads upwards, the rotation brings the top down again.
fn mix(hash: u64, value: u64) -> u64 {
    (hash.rotate_left(23) ^ value).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// The low bits choose the bucket, so the high ones go into them.
fn finish(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    hash ^ (hash >> 32)
}
