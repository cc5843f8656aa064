//! The plan's rows as values for the runner. Padding is a row like any other, but for its tokens
//! (zeros), its table (the scratch block, one beyond the pool) and its answer, which nobody asks
//! for.

use super::runner_api::{NextIds, SampleInput, StepRow};
use super::table::Table;
use crate::base::{BlockId, Limits, TokenId};
use crate::sched::{Plan, PlanRow, Scheduler};

/// What padding rows are made of.
pub(super) struct Padding {
    tokens: Vec<TokenId>,
    blocks: Vec<BlockId>,
}

impl Padding {
    pub fn new(limits: &Limits) -> Self {
        let positions = limits.context_max.max(1).div_ceil(limits.block_size.max(1)) as usize;
        let scratch = BlockId(limits.blocks);
        Self { tokens: vec![0; limits.context_max as usize], blocks: vec![scratch; positions] }
    }

    fn row(&self, row: &PlanRow) -> StepRow<'_> {
        let PlanRow { sequence, slot, start, len, .. } = *row;
        let (tokens, blocks) = (&self.tokens[..len as usize], &self.blocks[..]);
        StepRow { sequence, slot, start, tokens, blocks, pad: true, probe: None, sample: None }
    }
}

pub(super) fn step_rows<'a>(
    plan: &'a Plan,
    sched: &'a Scheduler,
    table: &'a Table,
    padding: &'a Padding,
) -> Vec<StepRow<'a>> {
    let rows = plan.rows.iter().map(|row| {
        if row.pad {
            return padding.row(row);
        }
        let history = sched.tokens(row.sequence);
        let (start, end) = (row.start as usize, row.start as usize + row.len as usize);
        let request = table.get(&row.sequence);
        let asked = request.and_then(|request| request.asked.as_ref());
        StepRow {
            sequence: row.sequence,
            slot: row.slot,
            start: row.start,
            tokens: &history[start..end],
            blocks: sched.blocks(row.sequence),
            pad: false,
            probe: asked.and_then(|asked| asked.probe(row.start, row.start + row.len, history)),
            sample: request.filter(|r| row.samples && r.generates()).map(|request| SampleInput {
                sampling: &request.sampling,
                seed: request.seed,
                position: row.start + row.len,
                history: &history[..end],
                prompt_len: request.prompt_tokens,
                banned: request.banned(),
                guide: request.guide.as_ref().map(|guide| guide as &dyn NextIds),
            }),
        }
    });
    rows.collect()
}
