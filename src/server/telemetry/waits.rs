//! What each request waited for, while somebody asks: parts of its time that sum to it, and the
//! sequences whose prompts delayed it.

use super::Telemetry;
use crate::base::{RequestId, SequenceId};
use crate::trace::{Attribution, Event, Parts, Stamped};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Ended requests whose totals are kept for callers that have not read them yet.
const ENDED_KEPT: usize = 4096;
/// Sequences named in an answer.
const NAMED_MAX: usize = 8;

#[derive(Clone, Default)]
struct Total {
    parts: Parts,
    delayed_by: BTreeMap<SequenceId, u64>,
}

/// Kept only while somebody asks: an engine that nobody asks does no work for it.
#[derive(Default)]
pub(super) struct Waits {
    asking: usize,
    attribution: Attribution,
    /// Sequences that arrived since.
    requests: BTreeMap<SequenceId, RequestId>,
    totals: BTreeMap<RequestId, Total>,
    ended: VecDeque<RequestId>,
}

impl Waits {
    pub fn push(&mut self, stamped: &Stamped) {
        if self.asking == 0 {
            return;
        }
        if let Some(gap) = self.attribution.push(stamped)
            && let Some(request) = self.requests.get(&gap.sequence)
        {
            let total = self.totals.entry(*request).or_default();
            total.parts += gap.parts;
            for (by, micros) in gap.delayed_by {
                *total.delayed_by.entry(by).or_default() += micros;
            }
        }
        match stamped.event {
            Event::RequestArrived { request, sequence, .. } => {
                self.requests.insert(sequence, request);
            }
            Event::SequenceFinished { request, sequence, .. } => {
                self.requests.remove(&sequence);
                self.ended.push_back(request);
                if self.ended.len() > ENDED_KEPT
                    && let Some(old) = self.ended.pop_front()
                {
                    self.totals.remove(&old);
                }
            }
            _ => {}
        }
    }
}

/// Somebody who asks, until it is dropped. Made before the request is sent, so that its arrival is
/// seen.
pub(in crate::server) struct Asking(Telemetry);

impl Telemetry {
    pub(in crate::server) fn ask_waits(&self) -> Asking {
        self.lock().waits.asking += 1;
        Asking(self.clone())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.waits.asking -= 1;
        if inner.waits.asking == 0 {
            inner.waits = Waits::default();
        }
    }
}

impl Asking {
    /// The total of these requests, in milliseconds; null where nothing was seen of them.
    pub fn value(&self, requests: &[RequestId]) -> Value {
        let inner = self.0.lock();
        let mut all: Option<Total> = None;
        for total in requests.iter().filter_map(|request| inner.waits.totals.get(request)) {
            let all = all.get_or_insert_default();
            all.parts += total.parts;
            for (by, micros) in &total.delayed_by {
                *all.delayed_by.entry(*by).or_default() += micros;
            }
        }
        drop(inner);
        let Some(Total { parts, delayed_by }) = all else { return Value::Null };
        let millis = |micros: u64| micros as f64 / 1e3;
        let mut value = json!({});
        for (name, micros) in parts.named() {
            value[format!("{name}_ms")] = json!(millis(micros));
        }
        let mut by: Vec<_> = delayed_by.into_iter().collect();
        by.sort_by_key(|&(sequence, micros)| (std::cmp::Reverse(micros), sequence));
        let by = by.into_iter().take(NAMED_MAX);
        let by = by.map(|(sequence, ms)| json!({"sequence": sequence, "ms": millis(ms)}));
        value["delayed_by"] = by.collect();
        value
    }
}
