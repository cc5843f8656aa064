//! What each request waited for in all: the parts of its gaps added up, and who delayed it.

use super::attribute::{Attribution, Parts};
use super::event::{Event, Stamped};
use crate::base::{RequestId, SequenceId};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Of one request, all its sequences.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Waited {
    pub parts: Parts,
    /// Microseconds by the sequences whose prompts it waited for.
    pub delayed_by: BTreeMap<SequenceId, u64>,
}

impl AddAssign<&Waited> for Waited {
    fn add_assign(&mut self, other: &Waited) {
        self.parts += other.parts;
        for (by, micros) in &other.delayed_by {
            let all = self.delayed_by.entry(*by).or_default();
            *all = all.saturating_add(*micros);
        }
    }
}

impl Waited {
    /// Who delayed it, the most first.
    pub fn by(&self) -> Vec<(SequenceId, u64)> {
        let mut by: Vec<_> = self.delayed_by.iter().map(|(by, micros)| (*by, *micros)).collect();
        by.sort_by_key(|&(by, micros)| (std::cmp::Reverse(micros), by));
        by
    }
}

/// Follows a stream. Of sequences whose arrival it did not see, it tells nothing.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    attribution: Attribution,
    requests: BTreeMap<SequenceId, RequestId>,
    totals: BTreeMap<RequestId, Waited>,
}

impl Waits {
    pub fn push(&mut self, stamped: &Stamped) {
        if let Some(gap) = self.attribution.push(stamped)
            && let Some(request) = self.requests.get(&gap.sequence)
        {
            let delayed_by = gap.delayed_by.into_iter().collect();
            *self.totals.entry(*request).or_default() += &Waited { parts: gap.parts, delayed_by };
        }
        match stamped.event {
            Event::RequestArrived { request, sequence, .. } => {
                self.requests.insert(sequence, request);
            }
            Event::SequenceFinished { sequence, .. } => {
                self.requests.remove(&sequence);
            }
            _ => {}
        }
    }

    pub fn get(&self, request: RequestId) -> Option<&Waited> {
        self.totals.get(&request)
    }

    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &Waited)> {
        self.totals.iter().map(|(request, waited)| (*request, waited))
    }

    pub fn forget(&mut self, request: RequestId) {
        self.totals.remove(&request);
    }
}
