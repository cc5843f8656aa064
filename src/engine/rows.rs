//! The plan's rows as values for the runner. Padding is a row like any other, but for its tokens
//! (zeros), its table (the scratch block, one beyond the pool) and its answer, which nobody asks
//! for.

use super::runner_api::{NextIds, SampleInput, StepRow};
use super::table::Table;
use crate::base::{BlockId, Limits, SequenceId, TokenId};
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
        let (pad, drafts, chosen, probe, sample) = (true, 0, None, None, None);
        StepRow { sequence, slot, start, tokens, chosen, drafts, blocks, pad, probe, sample }
    }
}

/// Stands for an id that only the device knows.
const UNKNOWN: [TokenId; 1] = [0];

/// The rows of `plan`, which may start from answers of the step `before` it.
pub(super) fn step_rows<'a>(
    plan: &'a Plan,
    before: Option<&Plan>,
    sched: &'a Scheduler,
    table: &'a Table,
    padding: &'a Padding,
) -> Vec<StepRow<'a>> {
    // Who gave the answers of the step before, in their order: it has no guesses and no questions.
    let sampling = before.iter().flat_map(|plan| &plan.rows).filter(|row| row.samples && !row.pad);
    let givers: Vec<_> = sampling.map(|row| row.sequence).collect();
    let place = |at: usize, sequence: SequenceId| match givers.get(at) == Some(&sequence) {
        true => Some(at),
        false => givers.iter().position(|giver| *giver == sequence),
    };
    let rows = plan.rows.iter().enumerate().map(|(at, row)| {
        if row.pad {
            return padding.row(row);
        }
        let history = sched.tokens(row.sequence);
        let (start, end) = (row.start as usize, row.start as usize + row.len as usize);
        let request = table.get(&row.sequence);
        let known = &history[..end.min(history.len())];
        let chosen = if end > known.len() { place(at, row.sequence) } else { None };
        let chosen = chosen.map(|at| at as u32);
        // The one known token of a row that guesses stands before its guesses.
        let tokens = match request.filter(|_| row.drafts > 0) {
            Some(request) => &request.drafts[..row.tokens() as usize],
            None if chosen.is_some() => &UNKNOWN[..],
            None => &history[start..end],
        };
        let asked = request.and_then(|request| request.asked.as_ref());
        StepRow {
            sequence: row.sequence,
            slot: row.slot,
            start: row.start,
            tokens,
            chosen,
            drafts: row.drafts,
            blocks: sched.blocks(row.sequence),
            pad: false,
            probe: asked.and_then(|asked| asked.probe(row.start, row.start + row.len, history)),
            sample: request.filter(|r| row.samples && r.generates()).map(|request| SampleInput {
                sampling: &request.sampling,
                seed: request.seed,
                position: row.start + row.len,
                history: known,
                drafts: &[],
                prompt_len: request.prompt_tokens,
                banned: request.banned(),
                guide: request.guide.as_ref().map(|guide| guide as &dyn NextIds),
            }),
        }
    });
    rows.collect()
}
