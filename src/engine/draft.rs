//! Guesses at the tokens to come: what followed the last few tokens where they stood before, in
//! prompt or output. Right wherever a text repeats itself. The model samples at every guessed
//! position what it would have sampled there anyway, and goes on only while the guess was that:
//! guesses change how many tokens a step gives, never which.
//!
//! How far a sequence guesses follows from what became of its guesses ([`Reach`]). Where that is
//! nowhere, a guess is made all the same and compared with what the model then says: finding one
//! costs nothing beside computing it.

use super::runner_api::Runner;
use super::steps::Engine;
use super::table::Request;
use crate::base::{Speculate, TokenId};
use crate::sched::Outcome;

/// How many tokens one sequence guesses in a step: all that are allowed at first, one more after
/// guesses that were all right, and after a wrong one as many as were right before it, but half as
/// many as last time at least. Text that does not repeat itself soon guesses none, until a guess
/// that was not computed would have been right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach(u8);

impl Default for Reach {
    fn default() -> Self {
        Self(Speculate::MOST)
    }
}

impl Reach {
    fn within(&mut self, most: u8) -> u32 {
        self.0 = self.0.min(most);
        self.0.into()
    }

    /// `right` of `drafted` guesses were right; where none was computed, of the one that was made.
    fn learn(&mut self, drafted: u8, right: u8) {
        self.0 = match drafted {
            0 => self.0.max(right),
            _ if right < drafted => (self.0 / 2).max(right),
            _ => self.0.max(drafted + 1),
        };
    }
}

/// Where the most recent of the longest matches of the last `min` to `max` tokens ends.
fn find(history: &[TokenId], min: usize, max: usize) -> Option<usize> {
    let (mut best, mut at) = (0, None);
    for end in (1..history.len()).rev() {
        let pairs = history[..end].iter().rev().zip(history.iter().rev());
        let alike = pairs.take(max).take_while(|(a, b)| a == b).count();
        if alike > best && alike >= min {
            (best, at) = (alike, Some(end));
        }
        if best == max {
            break;
        }
    }
    at
}

/// Guesses the `most` tokens after `history`; where what followed the match runs into the end, the
/// text is taken to go round.
pub fn draft(history: &[TokenId], min: u32, max: u32, most: u32, out: &mut Vec<TokenId>) {
    if let Some(from) = find(history, min as usize, max as usize) {
        out.extend(history[from..].iter().cycle().take(most as usize));
    }
}

impl Request {
    /// Learns from what came of a row: one outcome, and one for each of `drafted` guesses that was
    /// right.
    pub(super) fn learn(&mut self, drafted: u32, outcomes: &[Outcome]) {
        let token = outcomes.first().and_then(|outcome| outcome.token);
        let (Some(token), Some(&guess)) = (token, self.drafts.get(1)) else { return };
        let right = match drafted {
            0 => usize::from(guess == token),
            _ => outcomes.len() - 1,
        };
        self.reach.learn(drafted as u8, right as u8);
        self.drafts.clear();
    }
}

impl<R: Runner> Engine<R> {
    /// Guesses for whoever may have some in the next plan.
    pub(super) fn draft(&mut self) {
        let Speculate::Ngram { tokens, min, max } = self.sched.policies().speculate else { return };
        let able: Vec<_> = self.sched.draftable().collect();
        for sequence in able {
            let request = self.table.get_mut(&sequence).filter(|r| r.is_plain());
            let history = self.sched.tokens(sequence);
            let (Some(request), Some(&last)) = (request, history.last()) else { continue };
            request.drafts.clear();
            request.drafts.push(last);
            let reach = request.reach.within(tokens.get());
            draft(history, min.into(), max.into(), reach.max(1), &mut request.drafts);
            let drafts = request.drafts.len() as u32 - 1;
            self.sched.offer_drafts(sequence, drafts.min(reach));
        }
    }
}
