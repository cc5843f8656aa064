//! The KV block pool: a flat array, reference counts, and two free lists threaded through it.
//!
//! A free block is *blank*, or *cached*: the prefix index knows its tokens, and whoever needs them
//! takes it back as it is. Blank ones are given out first, then the cached one unused for longest.
//! A sequence gives its blocks back from its tail, so a chain's tail goes before its head. Every
//! operation is O(1), removal from the middle included, and none allocates. Invariant: a block is
//! in one of the lists exactly when no table holds it.

use super::prefix::{Key, PrefixIndex};
use super::snapshot::CachedBlock;
use crate::base::BlockId;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Tables that hold it.
    tables: u32,
    prev: u32,
    next: u32,
    /// When the last table let it go.
    freed: u64,
}

/// The ends of one list.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    const EMPTY: Self = Self { first: NONE, last: NONE, len: 0 };
}

/// A block given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    pub block: BlockId,
    /// How long its cached content had not been used, where it lost some.
    pub evicted: Option<u64>,
}

/// Blocks `0 .. total`.
#[derive(Clone, Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    blank: List,
    cached: List,
    /// Blocks that several tables hold.
    shared: u32,
    pub(super) index: PrefixIndex,
}

impl BlockPool {
    pub fn new(total: u32, block_size: u32) -> Self {
        let block = Block { tables: 0, prev: NONE, next: NONE, freed: 0 };
        let mut pool = Self {
            blocks: vec![block; total as usize],
            blank: List::EMPTY,
            cached: List::EMPTY,
            shared: 0,
            index: PrefixIndex::new(total, block_size),
        };
        (0..total).for_each(|block| pool.push_back(block));
        pool
    }

    pub fn total(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(NONE)
    }

    /// Blocks that no table holds, blank and cached.
    pub fn free(&self) -> u32 {
        self.blank.len + self.cached.len
    }

    /// Of the free ones, those whose content can be used again.
    pub fn cached(&self) -> u32 {
        self.cached.len
    }

    /// Blocks that several tables hold.
    pub fn shared(&self) -> u32 {
        self.shared
    }

    /// Tables that hold `block`.
    pub fn tables(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].tables
    }

    /// Takes a free block, whose content is lost.
    pub fn take(&mut self, now_micros: u64) -> Option<Taken> {
        let (first, evicts) = match self.blank.first {
            NONE => (self.cached.first, true),
            first => (first, false),
        };
        if first == NONE {
            return None;
        }
        let block = BlockId(first);
        self.unlink(first);
        self.index.remove(block);
        let entry = &mut self.blocks[block.index()];
        entry.tables = 1;
        let evicted = evicts.then(|| now_micros.saturating_sub(entry.freed));
        Some(Taken { block, evicted })
    }

    /// Puts a block, free or held, into one more table.
    pub fn share(&mut self, block: BlockId) {
        if self.blocks[block.index()].tables == 0 {
            self.unlink(block.0);
        }
        let tables = &mut self.blocks[block.index()].tables;
        *tables += 1;
        self.shared += u32::from(*tables == 2);
    }

    /// Takes the block out of one table; the last one to let go frees it.
    pub fn release(&mut self, block: BlockId, now_micros: u64) {
        let entry = &mut self.blocks[block.index()];
        assert!(entry.tables > 0, "block {block} is released but no table holds it");
        entry.tables -= 1;
        self.shared -= u32::from(entry.tables == 1);
        if entry.tables == 0 {
            entry.freed = now_micros;
            self.push_back(block.0);
        }
    }

    pub(super) fn find(&self, key: &Key<'_>) -> Option<(BlockId, u64)> {
        self.index.find(key)
    }

    /// The number under which the index knows a block.
    pub(super) fn number(&self, block: BlockId) -> Option<u64> {
        self.index.number(block)
    }

    /// Enters a held block into the index, which may know it as another; its number.
    pub(super) fn cache(&mut self, block: BlockId, key: &Key<'_>) -> u64 {
        debug_assert!(self.tables(block) > 0, "block {block} changes its list");
        self.index.remove(block);
        self.index.insert(block, key)
    }

    /// Makes the index forget a held block.
    pub(super) fn forget(&mut self, block: BlockId) {
        debug_assert!(self.tables(block) > 0, "block {block} changes its list");
        self.index.remove(block);
    }

    /// Every block that the index knows.
    pub(super) fn cached_blocks(&self) -> impl Iterator<Item = CachedBlock> {
        let known = (0..self.total()).map(BlockId).filter(|&b| self.number(b).is_some());
        known.map(|block| CachedBlock {
            block,
            hash: self.index.hash_of(block),
            tokens: self.index.tokens_of(block).to_vec(),
        })
    }

    /// The free blocks in the order they are given out, ended where they are more than the pool.
    pub fn free_list(&self) -> Vec<BlockId> {
        let mut list = Vec::with_capacity(self.free() as usize);
        for mut at in [self.blank.first, self.cached.first] {
            while at != NONE && list.len() <= self.blocks.len() {
                list.push(BlockId(at));
                at = self.blocks[at as usize].next;
            }
        }
        list
    }

    fn list(&mut self, block: u32) -> &mut List {
        match self.index.number(BlockId(block)) {
            None => &mut self.blank,
            Some(_) => &mut self.cached,
        }
    }

    fn push_back(&mut self, block: u32) {
        let list = self.list(block);
        let last = std::mem::replace(&mut list.last, block);
        list.len += 1;
        if last == NONE {
            list.first = block;
        } else {
            self.blocks[last as usize].next = block;
        }
        let entry = &mut self.blocks[block as usize];
        (entry.prev, entry.next) = (last, NONE);
    }

    fn unlink(&mut self, block: u32) {
        let Block { prev, next, .. } = self.blocks[block as usize];
        let list = self.list(block);
        list.len -= 1;
        if prev == NONE {
            list.first = next;
        }
        if next == NONE {
            list.last = prev;
        }
        if prev != NONE {
            self.blocks[prev as usize].next = next;
        }
        if next != NONE {
            self.blocks[next as usize].prev = prev;
        }
    }
}
