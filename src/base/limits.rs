//! The sizes one engine runs with, fixed at start or changed between steps by an event.

use serde::{Deserialize, Serialize};

/// Bounds of the scheduler. All counts; nothing here is a guess made later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Sequences that may run at once (slots).
    pub sequences_max: u32,
    /// Tokens computed per step, decode and prefill together (the token budget).
    pub step_tokens_max: u32,
    /// Token positions per KV block.
    pub block_size: u32,
    /// KV blocks in the pool; fixed at start.
    pub blocks: u32,
    /// Blocks of host memory that preempted sequences may be swapped to; fixed at start.
    #[serde(default)]
    pub host_blocks: u32,
    /// Positions of one sequence (prompt + output) that the model can address.
    pub context_max: u32,
    /// Requests that may wait; one more is refused.
    pub queue_max: u32,
    /// How long a request may wait to be let in for the first time, in milliseconds; 0 for ever.
    #[serde(default)]
    pub queue_timeout_ms: u32,
    /// Share of the pool kept free at admission while something runs, in thousandths.
    pub watermark_permille: u32,
    /// Keys that the layer with the widest window sees; `None` if a layer sees all. A block that
    /// lies further back is given back.
    #[serde(default)]
    pub window: Option<u32>,
}

/// A size, or a number of a policy, that no engine runs with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} is {found}, and can be {least} to {most}")]
pub struct LimitsError {
    pub field: &'static str,
    pub found: u32,
    pub least: u32,
    pub most: u32,
}

impl Limits {
    /// The most that each size may be: beyond what any device holds, and tables of so much still
    /// fit the memory of the host.
    pub const MOST: u32 = 1 << 24;
    /// The whole, in thousandths.
    pub const PERMILLE_MAX: u32 = 1000;

    /// The first size that no engine runs with.
    pub fn check(&self) -> Result<(), LimitsError> {
        let sizes = [
            ("sequences_max", self.sequences_max, 1, 1 << 16),
            ("step_tokens_max", self.step_tokens_max, 1, 1 << 20),
            ("block_size", self.block_size, 1, 1 << 12),
            ("blocks", self.blocks, 1, Self::MOST),
            ("host_blocks", self.host_blocks, 0, Self::MOST),
            ("context_max", self.context_max, 1, Self::MOST),
            ("queue_max", self.queue_max, 0, Self::MOST),
            ("watermark_permille", self.watermark_permille, 0, Self::PERMILLE_MAX),
            ("window", self.window.unwrap_or(1), 1, u32::MAX),
        ];
        let wrong =
            sizes.into_iter().find(|(_, found, least, most)| !(least..=most).contains(&found));
        wrong.map_or(Ok(()), |(field, found, least, most)| {
            Err(LimitsError { field, found, least, most })
        })
    }

    /// Blocks that hold `tokens` positions.
    pub fn blocks_of(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_size)
    }

    /// Blocks at the front of a table that no query from `position` on sees.
    pub fn expired_blocks(&self, position: u32) -> u32 {
        let hidden = |window: u32| position.saturating_sub(window.max(1) - 1);
        self.window.map_or(0, hidden) / self.block_size
    }

    /// Token positions the whole pool holds.
    pub fn pool_tokens(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_size)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sequences_max: 64,
            step_tokens_max: 512,
            block_size: 16,
            blocks: 1024,
            host_blocks: 0,
            context_max: 2048,
            queue_max: 1024,
            queue_timeout_ms: 0,
            watermark_permille: 20,
            window: None,
        }
    }
}
