//! Taking a step's results: tokens become known, sequences end.

use super::plan::{Outcome, Plan, PlanRow};
use super::scheduler::Scheduler;
use super::sequence::count;
use super::submit::OUTPUT_COST;
use crate::base::{FairUnit, TokenId};
use crate::trace::{Event, FinishReason};

impl Scheduler {
    /// Takes the results of `plan`: one outcome a row, in the rows' order, and after it one for
    /// each guess of the row that was right, in their order. Plans are committed in the order they
    /// were made.
    ///
    /// # Panics
    /// When the outcomes are not those of the plan, which is a fault of the caller.
    pub fn commit(
        &mut self,
        plan: &Plan,
        outcomes: &[Outcome],
        now_micros: u64,
        events: &mut Vec<Event>,
    ) {
        if plan.rows.is_empty() {
            return;
        }
        assert_eq!(plan.step, self.committed + 1, "plans are committed once, in order");
        self.committed += 1;
        let mut rest = outcomes;
        for row in &plan.rows {
            let most = rest.iter().take(1 + row.drafts as usize);
            let of_row = most.take_while(|o| o.sequence == row.sequence).count();
            assert!(of_row > 0, "outcomes come in the rows' order");
            let (own, later) = rest.split_at(of_row);
            if !row.pad {
                self.commit_row(row, own, now_micros, events);
            }
            rest = later;
        }
        assert!(rest.is_empty(), "one outcome a row, and one for each guess that was right");
    }

    fn commit_row(
        &mut self,
        row: &PlanRow,
        outcomes: &[Outcome],
        now_micros: u64,
        events: &mut Vec<Event>,
    ) {
        let entry = self.index.get(row.sequence.0).expect("a sequence with a row in flight stays");
        let s = &mut self.table[entry as usize];
        s.flight -= 1;
        s.pending -= u32::from(row.samples);
        s.ahead = s.ahead.min(s.flight);
        self.keep_drafts(entry, count(outcomes.len()) - 1, events);
        match self.table[entry as usize].ending {
            None => {
                for outcome in outcomes {
                    self.take_outcome(entry, row, outcome, events);
                }
                self.publish(entry, Some(now_micros), events);
            }
            // It ended with what an earlier row gave: nobody is to find what this one computed.
            Some(reason) => {
                let PlanRow { sequence, start, len, .. } = *row;
                events.push(Event::RowDiscarded { sequence, start, len, reason });
            }
        }
        if row.drafts > 0 {
            self.trim_blocks(entry, now_micros, events);
        }
        let s = &self.table[entry as usize];
        if let (0, Some(reason)) = (s.flight, s.ending) {
            self.end(entry, reason, now_micros, events);
        }
    }

    fn take_outcome(
        &mut self,
        entry: u32,
        row: &PlanRow,
        outcome: &Outcome,
        events: &mut Vec<Event>,
    ) {
        let s = &mut self.table[entry as usize];
        assert!(s.ending.is_none(), "nothing follows the end");
        s.ending = outcome.finish;
        match outcome.token {
            Some(token) if row.samples => self.append(entry, token, events),
            _ => assert!(
                !row.samples || outcome.finish.is_some(),
                "a row that samples gives a token or ends"
            ),
        }
    }

    fn append(&mut self, entry: u32, token: TokenId, events: &mut Vec<Event>) {
        let s = &mut self.table[entry as usize];
        // The prompt and the output together are shorter than the context, a u32.
        let position = s.known() - s.pending;
        s.tokens.push(token);
        if s.generated() >= s.max_new {
            s.ending.get_or_insert(FinishReason::Length);
        }
        events.push(Event::TokenSampled { sequence: s.id, position, token });
        self.charge(entry, FairUnit::Tokens, OUTPUT_COST);
    }
}
