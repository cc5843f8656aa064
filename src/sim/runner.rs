//! A runner that computes nothing: a step moves the clock by what its model of step time says, and
//! a request ends when it has made the tokens its workload gave it.

use super::cost::Cost;
use crate::base::{ManualClock, TokenId};
use crate::engine::{RunFuture, Runner, SampleInput, Sampled, StepInput, SwapFuture};
use crate::sched::BlockSwap;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The model that a simulation runs has every id below this one, and ends with the last.
pub(super) const VOCABULARY: TokenId = 1 << 30;
pub(super) const STOP: TokenId = VOCABULARY - 1;
/// Of tokens that nobody said.
const SOME: TokenId = STOP - 1;

/// What requests say, by their number in the workload.
pub(super) type Scripts = Rc<RefCell<BTreeMap<u32, Vec<TokenId>>>>;

/// The seed of a request says all that the runner has to know: its number in the workload, if what
/// it says is in the scripts, and how many tokens it makes.
pub(super) fn seed(number: u32, output: u32) -> u64 {
    u64::from(number) << 32 | u64::from(output)
}

/// See the module.
pub(super) struct SimRunner {
    pub cost: Cost,
    /// Of moving one block, one way.
    pub block_picos: u64,
    pub clock: Arc<ManualClock>,
    pub scripts: Scripts,
}

impl SimRunner {
    fn answer(&self, sample: &SampleInput<'_>) -> Sampled {
        let made = sample.position - sample.prompt_len;
        let (number, output) = ((sample.seed >> 32) as u32, sample.seed as u32);
        let mut scripts = self.scripts.borrow_mut();
        if made + 1 >= output {
            scripts.remove(&number);
            return Sampled::new(STOP);
        }
        let said = scripts.get(&number).and_then(|script| script.get(made as usize));
        Sampled::new(said.copied().filter(|&token| token < STOP).unwrap_or(SOME))
    }
}

impl Runner for SimRunner {
    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        let rows = input.rows.iter().map(|row| (row.start, row.tokens.len() as u32));
        self.clock.advance(self.cost.micros(rows));
        let answers: Vec<_> = input.sampling().map(|(_, sample)| self.answer(&sample)).collect();
        Box::pin(std::future::ready(Ok(answers.into())))
    }

    fn swap<'a>(&'a mut self, out: &'a [BlockSwap], back: &'a [BlockSwap]) -> SwapFuture<'a> {
        let blocks = (out.len() + back.len()) as u64;
        self.clock.advance(self.block_picos.saturating_mul(blocks).div_ceil(1_000_000));
        // Nothing is moved: a block has no bytes.
        Box::pin(std::future::ready(Ok(0)))
    }
}
