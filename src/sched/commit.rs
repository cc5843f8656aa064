//! Taking a step's results: tokens become known, sequences end.

use super::plan::{Outcome, Plan, PlanRow};
use super::scheduler::Scheduler;
use super::submit::OUTPUT_COST;
use crate::base::{FairUnit, TokenId};
use crate::trace::{Event, FinishReason};

impl Scheduler {
    /// Takes the results of `plan`: one outcome a row, in the rows' order. Plans are committed
    /// in the order they were made.
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
        assert_eq!(plan.rows.len(), outcomes.len(), "one outcome a row");
        self.committed += 1;
        for (row, outcome) in plan.rows.iter().zip(outcomes) {
            assert_eq!(row.sequence, outcome.sequence, "outcomes come in the rows' order");
            if !row.pad {
                self.commit_row(row, outcome, now_micros, events);
            }
        }
    }

    fn commit_row(
        &mut self,
        row: &PlanRow,
        outcome: &Outcome,
        now_micros: u64,
        events: &mut Vec<Event>,
    ) {
        let entry = self.index.get(row.sequence.0).expect("a sequence with a row in flight stays");
        let s = &mut self.table[entry as usize];
        s.flight -= 1;
        s.pending -= u32::from(row.samples);
        if s.ending.is_none() {
            s.ending = outcome.finish;
            match outcome.token {
                Some(token) if row.samples => self.append(entry, token, events),
                _ => assert!(
                    !row.samples || outcome.finish.is_some(),
                    "a row that samples gives a token or ends"
                ),
            }
        }
        self.publish(entry, Some(now_micros), events);
        let s = &self.table[entry as usize];
        if let (0, Some(reason)) = (s.flight, s.ending) {
            self.end(entry, reason, now_micros, events);
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
