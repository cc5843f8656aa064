//! The whole state as plain data, and the invariants it must satisfy. Checked in release builds
//! too, whenever asked; a test plants each fault in a snapshot and sees it found.

use super::scheduler::Scheduler;
use crate::base::{BlockHash, BlockId, Limits, RequestId, SequenceId, TokenId};
use crate::trace::FinishReason;

/// The scheduler's state at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    pub limits: Limits,
    /// Tables that hold each block.
    pub tables: Vec<u32>,
    /// In the order they are given out.
    pub free_list: Vec<BlockId>,
    pub free: u32,
    /// Of the free blocks, those whose content can be used again.
    pub cached_free: u32,
    /// Blocks that several tables hold.
    pub shared: u32,
    /// What the prefix index knows.
    pub cached: Vec<CachedBlock>,
    /// What is wrong with the prefix index itself.
    pub index_fault: Option<String>,
    /// Host blocks that hold nothing.
    pub host_free: Vec<u32>,
    /// The most senior first.
    pub running: Vec<SequenceState>,
    /// Lane by lane, each in the order of admission.
    pub waiting: Vec<SequenceState>,
    /// Tokens and budget of the last plan.
    pub planned_tokens: u32,
    pub budget: u32,
    /// Steps planned and not committed.
    pub in_flight: u64,
    /// The last plan had no row although something waited and nothing was in flight.
    pub stuck: bool,
}

/// A block whose content can be used again.
#[derive(Clone, PartialEq, Debug)]
pub struct CachedBlock {
    pub block: BlockId,
    pub hash: BlockHash,
    pub tokens: Vec<TokenId>,
}

/// One sequence of a [`Snapshot`].
#[derive(Clone, PartialEq, Debug)]
pub struct SequenceState {
    pub sequence: SequenceId,
    pub request: RequestId,
    pub order: u64,
    pub rank: u64,
    /// What the queue goes by.
    pub key: u64,
    pub slot: Option<u32>,
    pub prompt: u32,
    pub max_new_tokens: u32,
    pub known: u32,
    /// Those the host knows.
    pub tokens: Vec<TokenId>,
    /// Of `known`, tokens that only the device knows.
    pub pending: u32,
    /// Guesses of a row in flight.
    pub drafted: u32,
    pub computed: u32,
    pub blocks: Vec<BlockId>,
    /// Blocks at the table's head that the prefix index knows.
    pub published: u32,
    /// Host blocks that hold what it computed.
    pub host: Vec<u32>,
    pub preemptions: u32,
    pub ending: Option<FinishReason>,
}

impl Scheduler {
    /// Copies the state. Allocates; not for the step loop.
    pub fn snapshot(&self) -> Snapshot {
        let state = |entry: u32| {
            let s = &self.table[entry as usize];
            SequenceState {
                sequence: s.id,
                request: s.request,
                order: s.order,
                rank: s.rank,
                key: s.key,
                slot: s.slot,
                prompt: s.prompt,
                max_new_tokens: s.max_new,
                known: s.known(),
                tokens: s.tokens.clone(),
                pending: s.pending,
                drafted: s.drafted,
                computed: s.computed,
                blocks: s.blocks.clone(),
                published: s.published,
                host: s.host.clone(),
                preemptions: s.preemptions,
                ending: s.ending,
            }
        };
        Snapshot {
            limits: self.limits,
            tables: (0..self.pool.total()).map(|b| self.pool.tables(BlockId(b))).collect(),
            free_list: self.pool.free_list(),
            free: self.pool.free(),
            cached_free: self.pool.cached(),
            shared: self.pool.shared(),
            cached: self.pool.cached_blocks().collect(),
            index_fault: self.pool.index.check().err(),
            host_free: self.host_free.clone(),
            running: self.running.iter().copied().map(state).collect(),
            waiting: self.queue.iter().map(|w| state(w.entry)).collect(),
            planned_tokens: self.last_tokens,
            budget: self.last_budget,
            in_flight: self.planned - self.committed,
            stuck: self.stuck,
        }
    }

    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.snapshot().check()
    }
}

impl Snapshot {
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.check_pool()?;
        self.check_host()?;
        self.check_sequences()?;
        self.check_prefixes()?;
        let (tokens, budget) = (self.planned_tokens, self.budget);
        ensure(tokens <= budget, || format!("{tokens} tokens were planned, budget {budget}"))?;
        ensure(!self.stuck, || {
            let (waiting, free) = (self.waiting.len(), self.free);
            format!("{waiting} wait, nothing runs or is in flight, {free} blocks are free")
        })
    }

    fn check_pool(&self) -> Result<(), String> {
        let total = self.tables.len();
        ensure(total == self.limits.blocks as usize, || {
            format!("the pool has {total} blocks, the limits say {}", self.limits.blocks)
        })?;
        let listed = self.free_list.len();
        ensure(listed == self.free as usize, || {
            format!("{} blocks are counted as free, the list holds {listed}", self.free)
        })?;
        let mut held = vec![0u32; total];
        let mut is_free = vec![false; total];
        for block in &self.free_list {
            let place = is_free.get_mut(block.index());
            let place = place.ok_or_else(|| format!("free block {block} is not in the pool"))?;
            ensure(!std::mem::replace(place, true), || format!("block {block} is free twice"))?;
        }
        for s in self.running.iter().chain(&self.waiting) {
            for block in s.blocks.iter().filter(|b| **b != BlockId::EXPIRED) {
                let place = held.get_mut(block.index());
                *place.ok_or_else(|| format!("{}: no block {block}", s.sequence))? += 1;
            }
        }
        for (block, (&tables, &held)) in self.tables.iter().zip(&held).enumerate() {
            ensure(tables == held, || {
                format!("block {block} counts {tables} tables, {held} hold it")
            })?;
            ensure((tables == 0) == is_free[block], || {
                format!("block {block}: {tables} tables, in the free list: {}", is_free[block])
            })?;
        }
        let used = held.iter().filter(|&&h| h > 0).count();
        ensure(used + listed == total, || format!("{used} used + {listed} free, not {total}"))
    }

    /// Every host block is free or holds something of one sequence, which waits.
    fn check_host(&self) -> Result<(), String> {
        let all = self.running.iter().chain(&self.waiting).flat_map(|s| &s.host);
        let mut seen: Vec<u32> = all.chain(&self.host_free).copied().collect();
        seen.sort_unstable();
        ensure(seen.iter().copied().eq(0..self.limits.host_blocks), || {
            format!("host blocks are lost or held twice: {seen:?} of {}", self.limits.host_blocks)
        })?;
        ensure(self.running.iter().all(|s| s.host.is_empty()), || {
            "a running sequence still holds host blocks".to_string()
        })
    }

    /// What is cached says what the tables say, and nobody can write into a block of others.
    fn check_prefixes(&self) -> Result<(), String> {
        self.index_fault.clone().map_or(Ok(()), Err)?;
        let size = self.limits.block_size as usize;
        let mut cached: Vec<Option<&[TokenId]>> = vec![None; self.tables.len()];
        for CachedBlock { block, tokens, .. } in &self.cached {
            let place = cached.get_mut(block.index());
            *place.ok_or_else(|| format!("cached block {block} is not in the pool"))? =
                Some(tokens);
        }
        let at = self.free_list.len().saturating_sub(self.cached_free as usize);
        let (blank, kept) = self.free_list.split_at(at);
        let misplaced = blank.iter().find(|b| cached[b.index()].is_some());
        let misplaced = misplaced.or(kept.iter().find(|b| cached[b.index()].is_none()));
        ensure(misplaced.is_none(), || {
            format!("free block {misplaced:?} is in the wrong list: blank and cached are two")
        })?;
        let shared = self.tables.iter().filter(|&&t| t > 1).count();
        ensure(shared == self.shared as usize, || {
            format!("{} blocks are counted as shared, {shared} are", self.shared)
        })?;
        for s in &self.running {
            let id = s.sequence;
            let held = s.blocks.iter().enumerate().filter(|(_, b)| **b != BlockId::EXPIRED);
            for (index, block) in held {
                let own = s.tokens.get(index * size..(index + 1) * size);
                let known = cached[block.index()];
                ensure(known.is_none() || known == own, || {
                    format!("{id}: block {block} is cached with other tokens than its own")
                })?;
                ensure(known.is_some() || index >= s.published as usize, || {
                    format!("{id}: block {block} is published and not cached")
                })?;
                let written = (index + 1) * size > s.computed as usize;
                ensure(!written || self.tables[block.index()] == 1, || {
                    format!("{id}: block {block} is to be written and others hold it")
                })?;
            }
        }
        Ok(())
    }

    fn check_sequences(&self) -> Result<(), String> {
        let mut slots: Vec<u32> = Vec::with_capacity(self.running.len());
        for s in &self.running {
            let slot = s.slot.ok_or_else(|| format!("{} runs without a slot", s.sequence))?;
            ensure(!slots.contains(&slot), || format!("slot {slot} is held twice"))?;
            slots.push(slot);
            self.check_sequence(s)?;
        }
        for s in &self.waiting {
            ensure(s.slot.is_none() && s.blocks.is_empty() && s.computed == 0, || {
                format!("{} waits but holds a slot, blocks or computed tokens", s.sequence)
            })?;
            self.check_sequence(s)?;
        }
        ensure(self.running.is_sorted_by_key(|s| (s.rank, s.order)), || {
            "running out of order".to_string()
        })
    }

    fn check_sequence(&self, s: &SequenceState) -> Result<(), String> {
        let (id, known, computed) = (s.sequence, s.known, s.computed);
        ensure(computed <= known, || format!("{id}: {computed} computed of {known} known"))?;
        ensure(known >= s.prompt && known - s.prompt <= s.max_new_tokens, || {
            format!("{id}: {known} tokens for a prompt of {} and {}", s.prompt, s.max_new_tokens)
        })?;
        let expired = s.blocks.iter().rposition(|b| *b == BlockId::EXPIRED).map_or(0, |at| at + 1);
        ensure(expired <= self.limits.expired_blocks(computed) as usize, || {
            format!("{id}: {expired} blocks expired with {computed} computed")
        })?;
        let most = self.limits.blocks_of(known + s.drafted) as usize;
        ensure(s.blocks.len() <= most, || {
            format!("{id}: {} blocks for {known} known and {} guesses", s.blocks.len(), s.drafted)
        })?;
        let room = s.blocks.len() as u64 * u64::from(self.limits.block_size);
        ensure(u64::from(computed) <= room, || {
            format!("{id}: {computed} computed, blocks hold {room}")
        })
    }
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}
