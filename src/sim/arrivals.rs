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
    /// The tokens it made where it was recorded; else some are made up.
    pub said: Vec<TokenId>,
}

/// A prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prompt {
    /// Its pieces, `(seed, tokens)` each. The same piece in the same place is the same.
    Pieces(Vec<(u64, u32)>),
    /// As it was recorded.
    Ids(Vec<TokenId>),
}

impl Prompt {
    /// A prompt that shares nothing with one of another seed.
    pub fn unique(seed: u64, tokens: u32) -> Self {
        Self::Pieces(vec![(seed, tokens)])
    }

    /// Its length in tokens.
    pub fn tokens(&self) -> u32 {
        match self {
            Self::Pieces(pieces) => pieces.iter().fold(0, |all, piece| all.saturating_add(piece.1)),
            Self::Ids(ids) => u32::try_from(ids.len()).unwrap_or(u32::MAX),
        }
    }

    /// Its ids; those that are made up each in `first..vocabulary`.
    pub fn ids(&self, first: TokenId, vocabulary: TokenId) -> Vec<TokenId> {
        let pieces = match self {
            Self::Pieces(pieces) => pieces,
            Self::Ids(ids) => return ids.clone(),
        };
        let span = vocabulary.saturating_sub(first).max(1);
        let mut ids = Vec::with_capacity(self.tokens() as usize);
        for &(seed, tokens) in pieces {
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
