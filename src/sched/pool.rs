//! The KV block pool: a flat array, reference counts, and a free list threaded through it.
//!
//! The list is in order of use: blocks are taken from its front (free for longest) and put at its
//! back. Every operation is O(1), removal from the middle included, and none allocates. Invariant:
//! a block is in the list exactly when no table holds it.

use crate::base::BlockId;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Tables that hold it.
    tables: u32,
    prev: u32,
    next: u32,
}

/// Blocks `0 .. total`.
#[derive(Clone, Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    first: u32,
    last: u32,
    free: u32,
}

impl BlockPool {
    pub fn new(total: u32) -> Self {
        let mut pool = Self { blocks: Vec::new(), first: NONE, last: NONE, free: 0 };
        pool.blocks.resize(total as usize, Block { tables: 0, prev: NONE, next: NONE });
        (0..total).for_each(|block| pool.push_back(block));
        pool
    }

    pub fn total(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(NONE)
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    /// Tables that hold `block`.
    pub fn tables(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].tables
    }

    /// Takes the block that has been free for longest.
    pub fn take(&mut self) -> Option<BlockId> {
        if self.first == NONE {
            return None;
        }
        let block = self.first;
        self.unlink(block);
        self.blocks[block as usize].tables = 1;
        Some(BlockId(block))
    }

    /// Puts a block, free or held, into one more table.
    pub fn share(&mut self, block: BlockId) {
        if self.blocks[block.index()].tables == 0 {
            self.unlink(block.0);
        }
        self.blocks[block.index()].tables += 1;
    }

    /// Takes the block out of one table; the last one to let go frees it.
    pub fn release(&mut self, block: BlockId) {
        let tables = &mut self.blocks[block.index()].tables;
        assert!(*tables > 0, "block {block} is released but no table holds it");
        *tables -= 1;
        if *tables == 0 {
            self.push_back(block.0);
        }
    }

    /// The free list from its front, ended where it is longer than the pool.
    pub fn free_list(&self) -> Vec<BlockId> {
        let mut list = Vec::with_capacity(self.free as usize);
        let mut at = self.first;
        while at != NONE && list.len() <= self.blocks.len() {
            list.push(BlockId(at));
            at = self.blocks[at as usize].next;
        }
        list
    }

    fn push_back(&mut self, block: u32) {
        let last = self.last;
        let entry = &mut self.blocks[block as usize];
        (entry.prev, entry.next) = (last, NONE);
        match last {
            NONE => self.first = block,
            last => self.blocks[last as usize].next = block,
        }
        self.last = block;
        self.free += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Block { prev, next, .. } = self.blocks[block as usize];
        match prev {
            NONE => self.first = next,
            prev => self.blocks[prev as usize].next = next,
        }
        match next {
            NONE => self.last = prev,
            next => self.blocks[next as usize].prev = prev,
        }
        self.free -= 1;
    }
}
