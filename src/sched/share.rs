//! Positions that need not be computed again: full blocks that the prefix index knows, and the
//! prompt of another sequence of the same request. A block that another table holds is never
//! written: a sequence that goes on within one gets a copy.
//!
//! Prompts go first come, first served through the token budget, and a block is entered when the
//! step that computes it is planned. So of equal prompts that arrive together the first is computed
//! as fast as the budget allows, the next finds all of it when its own turn comes, and none waits
//! for anything but the budget. The order on the device makes that right even within one step: in
//! every layer all keys and values are written before any is read.

use super::admit::Delay;
use super::plan::{BlockCopy, Plan};
use super::prefix::{Key, ROOT};
use super::scheduler::Scheduler;
use super::sequence::{Sequence, count};
use crate::base::{Batching, BlockHash, BlockId, PrefixCache};
use crate::trace::{BlockList, DelayReason, Event, EvictReason, HashList};
use std::ops::Range;

/// Where positions were found computed; the blocks are in `Scheduler::found`.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    pub tokens: u32,
    /// Of the blocks, those in the free list.
    pub revived: u32,
    /// The sequence of the request they belong to.
    pub sibling: Option<u32>,
    /// Its block that holds the last of `tokens`, if that one is to be copied.
    pub copied: Option<BlockId>,
}

impl Scheduler {
    /// Looks for what a waiting sequence need not compute; at least its last token it must.
    pub(super) fn look_up(&mut self, entry: u32) -> Result<Found, Delay> {
        let found = self.find_prefix(entry);
        if !self.table[entry as usize].siblings {
            return Ok(found);
        }
        let s = &self.table[entry as usize];
        let shared = s.prompt - 1;
        // Of one token each, none is there any more when the next could copy its last block.
        if shared <= found.tokens || s.max_new == 1 {
            return Ok(found);
        }
        let siblings = self.running.iter().copied().filter(|&e| self.is_sibling(s, e));
        // Computed in an earlier step, so that a copy finds it, and still there as far as the first
        // token to be computed sees.
        let seen = self.limits.expired_blocks(shared);
        let ready = |e: &u32| {
            let o = &self.table[*e as usize];
            (1..=self.planned).contains(&o.prompt_step) && o.expired <= seen
        };
        if let Some(sibling) = siblings.clone().find(ready) {
            return Ok(self.find_sibling(sibling, shared));
        }
        let coming = |e: &u32| {
            let o = &self.table[*e as usize];
            o.ending.is_none() && (o.prompt_step == 0 || o.prompt_step > self.planned)
        };
        match siblings.clone().find(coming) {
            // In a batch nobody starts later.
            Some(sibling) if self.policies.batching == Batching::Continuous => {
                let available = self.table[sibling as usize].computed;
                Err(Delay { reason: DelayReason::Sibling, needed: s.prompt, available })
            }
            _ => Ok(found),
        }
    }

    fn is_sibling(&self, s: &Sequence, other: u32) -> bool {
        let o = &self.table[other as usize];
        let prompt = |s: &Sequence| s.prompt as usize;
        let alike = o.siblings && o.request == s.request && o.prompt == s.prompt && o.tag == s.tag;
        alike && o.tokens[..prompt(o)] == s.tokens[..prompt(s)]
    }

    fn find_sibling(&mut self, sibling: u32, shared: u32) -> Found {
        let blocks = &self.table[sibling as usize].blocks;
        let full = (shared / self.limits.block_size) as usize;
        self.found.clear();
        self.found.extend_from_slice(&blocks[..full]);
        let partial = !shared.is_multiple_of(self.limits.block_size);
        let copied = partial.then(|| blocks[full]);
        Found { tokens: shared, revived: 0, sibling: Some(sibling), copied }
    }

    pub(super) fn find_prefix(&mut self, entry: u32) -> Found {
        self.found.clear();
        let off = self.policies.prefix_cache == PrefixCache::Off;
        if off || self.table[entry as usize].uncached {
            return Found::default();
        }
        let size = self.limits.block_size;
        let most = (self.table[entry as usize].known() - 1) / size;
        let (mut parent, mut revived) = (ROOT, 0);
        for index in 0..most {
            let Some((block, number)) = self.find_block(entry, index, parent) else { break };
            parent = number;
            revived += u32::from(self.pool.tables(block) == 0);
            self.found.push(block);
        }
        Found { tokens: count(self.found.len()) * size, revived, ..Found::default() }
    }

    /// The cached block that holds what the sequence's table has at `index`, and its number.
    fn find_block(&mut self, entry: u32, index: u32, parent: u64) -> Option<(BlockId, u64)> {
        self.hash_to(entry, index);
        self.pool.find(&key(&self.table[entry as usize], index, parent, self.limits.block_size))
    }

    /// Hashes the chain as far as the block at `index`, which is full.
    fn hash_to(&mut self, entry: u32, index: u32) {
        let s = &mut self.table[entry as usize];
        let size = self.limits.block_size as usize;
        while s.hashes.len() <= index as usize {
            let before = s.hashes.last().copied();
            let before = before.unwrap_or_else(|| self.pool.index.seed(&s.tag));
            let first = s.hashes.len() * size;
            s.hashes.push(self.pool.index.hash(before, &s.tokens[first..first + size]));
        }
    }

    /// Gives a sequence that enters what was found for it.
    pub(super) fn adopt(&mut self, entry: u32, found: Found, events: &mut Vec<Event>) {
        let blocks = std::mem::take(&mut self.found);
        let size = self.limits.block_size;
        let sequence = self.table[entry as usize].id;
        let sibling = found.sibling.map(|e| (self.table[e as usize].id, e));
        let full = count(blocks.len()) * size;
        for (piece, part) in (1..).zip(blocks.chunks(BlockList::MAX)) {
            let mut blocks = BlockList::default();
            for &block in part {
                let s = &mut self.table[entry as usize];
                s.blocks.push(block);
                match block {
                    BlockId::EXPIRED => s.expired += 1,
                    block => self.pool.share(block),
                }
                blocks.push(block);
            }
            let tokens = full.min(piece * count(BlockList::MAX) * size);
            events.push(match sibling {
                None => Event::PrefixMatched { sequence, blocks, tokens },
                Some((sibling, _)) => Event::PromptShared { sequence, sibling, blocks, tokens },
            });
        }
        if let (Some((sibling, _)), true) = (sibling, found.tokens > full) {
            let (blocks, tokens) = (BlockList::default(), found.tokens);
            events.push(Event::PromptShared { sequence, sibling, blocks, tokens });
        }
        // A sibling may not have entered all of them yet; then the rest is entered anew.
        let known = |b: &&BlockId| **b != BlockId::EXPIRED && self.pool.number(**b).is_some();
        let last = blocks.iter().take_while(known).count();
        let number = last.checked_sub(1).and_then(|at| self.pool.number(blocks[at]));
        let s = &mut self.table[entry as usize];
        (s.computed, s.matched) = (found.tokens, count(blocks.len()));
        (s.published, s.number) = number.map_or((0, ROOT), |number| (count(last), number));
        self.found = blocks;
    }

    /// Notes the copy that [`Scheduler::adopt`] left to do, now that the fresh blocks are there.
    pub(super) fn copy_partial(
        &mut self,
        entry: u32,
        found: Found,
        plan: &mut Plan,
        events: &mut Vec<Event>,
    ) {
        let Some(from) = found.copied else { return };
        let size = self.limits.block_size;
        let s = &self.table[entry as usize];
        let (sequence, to) = (s.id, s.blocks[(found.tokens / size) as usize]);
        plan.copies.push(BlockCopy { from, to });
        events.push(Event::BlockCopied { sequence, from, to, tokens: found.tokens % size });
    }

    /// Enters the full blocks of a sequence whose tokens are known and whose positions are planned
    /// or computed. One that is there already makes way for the cached one, but only when a commit
    /// asks, at this time: nobody writes into a block that others hold. What a row computes that
    /// started from a token which only the device knew waits for that row's commit: the token may
    /// turn out to be the last, and then nothing after it counts.
    pub(super) fn publish(
        &mut self,
        entry: u32,
        commit_micros: Option<u64>,
        events: &mut Vec<Event>,
    ) {
        if self.policies.prefix_cache == PrefixCache::Off {
            return;
        }
        let size = u64::from(self.limits.block_size);
        let from = self.table[entry as usize].published;
        let mut fresh = (from, 0);
        loop {
            let s = &self.table[entry as usize];
            let (index, parent) = (s.published, s.number);
            let sure = (s.computed - s.ahead).min(count(s.tokens.len()));
            if (u64::from(index) + 1) * size > u64::from(sure) {
                break;
            }
            let own = s.blocks[index as usize];
            let number = match self.find_block(entry, index, parent) {
                Some((block, number)) if block == own || own == BlockId::EXPIRED => number,
                Some((block, number)) => {
                    let Some(now_micros) = commit_micros else { break };
                    self.merge(entry, index, block, now_micros, events);
                    number
                }
                // A window passed it by before it was entered.
                None if own == BlockId::EXPIRED => break,
                None => {
                    if fresh.0 + fresh.1 != index {
                        self.tell_cached(entry, fresh, events);
                        fresh = (index, 0);
                    }
                    fresh.1 += 1;
                    let s = &self.table[entry as usize];
                    self.pool.cache(own, &key(s, index, parent, self.limits.block_size))
                }
            };
            let s = &mut self.table[entry as usize];
            (s.published, s.number) = (index + 1, number);
        }
        self.tell_cached(entry, fresh, events);
    }

    fn tell_cached(&self, entry: u32, (from, count): (u32, u32), events: &mut Vec<Event>) {
        if count > 0 {
            let sequence = self.table[entry as usize].id;
            events.push(Event::BlocksCached { sequence, from, count });
            self.tell_hashes(entry, from..from + count, events);
        }
    }

    fn tell_hashes(&self, entry: u32, blocks: Range<u32>, events: &mut Vec<Event>) {
        let s = &self.table[entry as usize];
        let all = &s.hashes[blocks.start as usize..blocks.end as usize];
        for (from, piece) in blocks.step_by(HashList::MAX).zip(all.chunks(HashList::MAX)) {
            let mut hashes = HashList::default();
            for &hash in piece {
                hashes.push(BlockHash(hash));
            }
            events.push(Event::BlocksHashed { sequence: s.id, from, hashes });
        }
    }

    fn merge(&mut self, entry: u32, index: u32, to: BlockId, now: u64, events: &mut Vec<Event>) {
        self.pool.share(to);
        let s = &mut self.table[entry as usize];
        let from = std::mem::replace(&mut s.blocks[index as usize], to);
        self.pool.release(from, now);
        events.push(Event::BlockMerged { sequence: s.id, index, from, to });
    }

    /// Takes what a failed sequence computed out of the index, from its tail, as far as nobody
    /// else has taken it up.
    pub(super) fn distrust(&mut self, entry: u32, events: &mut Vec<Event>) {
        let s = &self.table[entry as usize];
        for index in (s.matched..s.published).rev() {
            let block = s.blocks[index as usize];
            if block == BlockId::EXPIRED || self.pool.tables(block) > 1 {
                return;
            }
            self.pool.forget(block);
            let reason = EvictReason::Failed;
            events.push(Event::BlockEvicted { block, reason, idle_micros: 0 });
        }
    }
}

fn key(s: &Sequence, index: u32, parent: u64, size: u32) -> Key<'_> {
    let first = index as usize * size as usize;
    Key {
        hash: s.hashes[index as usize],
        parent,
        tag: &s.tag,
        tokens: &s.tokens[first..first + size as usize],
    }
}
