//! A request as a workload has it: when, for whom, how long. Token ids are made up from seeds, so
//! that equal pieces of prompts are equal ids and everything else differs.

use crate::base::{TokenId, threefry2x32};

/// One request of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Microseconds since the workload's start.
    pub micros: u64,
    pub prompt: Prompt,
    /// Tokens it will make.
    pub output: u32,
    /// Tokens it asks for at most; not below `output`.
    pub output_max: u32,
    pub tenant: u32,
    /// Priority class, 0 first.
    pub class: u8,
}

/// A prompt by its pieces, `(seed, tokens)` each. The same piece in the same place is the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prompt {
    pub pieces: Vec<(u64, u32)>,
}

impl Prompt {
    /// A prompt that shares nothing with one of another seed.
    pub fn unique(seed: u64, tokens: u32) -> Self {
        Self { pieces: vec![(seed, tokens)] }
    }

    /// Its length in tokens.
    pub fn tokens(&self) -> u32 {
        self.pieces.iter().fold(0, |all, piece| all.saturating_add(piece.1))
    }

    /// Its ids, each in `first..vocabulary`.
    pub fn ids(&self, first: TokenId, vocabulary: TokenId) -> Vec<TokenId> {
        let span = vocabulary.saturating_sub(first).max(1);
        let mut ids = Vec::with_capacity(self.tokens() as usize);
        for &(seed, tokens) in &self.pieces {
            let key = [seed as u32, (seed >> 32) as u32];
            for pair in 0..tokens.div_ceil(2) {
                let [a, b] = threefry2x32(key, [pair, 0]);
                ids.push(first + a % span);
                if 2 * pair + 1 < tokens {
                    ids.push(first + b % span);
                }
            }
        }
        ids
    }
}
