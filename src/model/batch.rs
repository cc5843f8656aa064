//! [`Batch`]: the rows of one step as the model takes them.

use crate::kernels::{mul, sample};

/// How one row is sampled, what changes its logits, and what comes back: the kernels' own words.
pub type SampleRow = sample::SampleRow;
pub type Edit = sample::Edit;
pub type SampleResult = sample::SampleResult;

/// One sequence's part of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchRow {
    /// First token of the row in [`Batch::tokens`], and how many.
    pub first: u32,
    pub len: u32,
    /// Position of the first token.
    pub start: u32,
    /// Where the row's block table begins in [`Batch::tables`]; it covers `start + len` positions.
    pub table: u32,
}

/// The rows of a step, flat. Kept between steps, so that steady state allocates nothing.
#[derive(Clone, Default, Debug)]
pub struct Batch {
    /// Ids, or what [`Batch::chosen`] gives.
    pub tokens: Vec<u32>,
    pub rows: Vec<BatchRow>,
    /// Block ids.
    pub tables: Vec<u32>,
    /// (index in `tokens` whose logits are wanted, how to sample from them).
    pub samples: Vec<(u32, SampleRow)>,
    /// Ordered by row.
    pub edits: Vec<Edit>,
    /// Which ids the rows that name a mask may take, one bit each, mask after mask.
    pub masks: Vec<u32>,
    /// Indices in `tokens` whose final hidden states (normed) come back too.
    pub hidden: Vec<u32>,
    /// Whole blocks to copy before anything else, (from, to).
    pub copies: Vec<(u32, u32)>,
    /// Also bring back the raw logits of the sampled rows (for verification).
    pub logits: bool,
}

impl Batch {
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.rows.clear();
        self.tables.clear();
        self.samples.clear();
        self.edits.clear();
        self.masks.clear();
        self.copies.clear();
        self.hidden.clear();
        self.logits = false;
    }

    /// Stands for the token that the step before chose for row `sample` of its samples.
    pub fn chosen(sample: u32) -> u32 {
        mul::SAMPLED | sample
    }

    /// Lets row `sample` of [`Batch::samples`] take only the ids of `mask`, one bit each.
    pub fn hold(&mut self, sample: usize, mask: &[u32]) {
        self.masks.extend_from_slice(mask);
        self.samples[sample].1.mask = (self.masks.len() / mask.len().max(1)) as u32;
    }

    /// Adds a row; returns the index of its first token.
    pub fn push_row(&mut self, tokens: &[u32], start: u32, table: &[u32]) -> u32 {
        let first = self.tokens.len() as u32;
        self.rows.push(BatchRow {
            first,
            len: tokens.len() as u32,
            start,
            table: self.tables.len() as u32,
        });
        self.tokens.extend_from_slice(tokens);
        self.tables.extend_from_slice(table);
        first
    }
}
