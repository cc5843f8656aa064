//! What each request waited for, while somebody asks: parts of its time that sum to it, and the
//! sequences whose prompts delayed it.

use super::Telemetry;
use crate::base::RequestId;
use crate::trace::{Event, Stamped, Waited, Waits};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Ended requests whose totals are kept for callers that have not read them yet.
const ENDED_KEPT: usize = 4096;
/// Sequences named in an answer.
const NAMED_MAX: usize = 8;

/// Kept only while somebody asks: an engine that nobody asks does no work for it.
#[derive(Default)]
pub(super) struct AskedWaits {
    asking: usize,
    waits: Waits,
    ended: VecDeque<RequestId>,
}

impl AskedWaits {
    pub fn push(&mut self, stamped: &Stamped) {
        if self.asking == 0 {
            return;
        }
        self.waits.push(stamped);
        if let Event::SequenceFinished { request, .. } = stamped.event {
            self.ended.push_back(request);
            if self.ended.len() > ENDED_KEPT
                && let Some(old) = self.ended.pop_front()
            {
                self.waits.forget(old);
            }
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
            inner.waits = AskedWaits::default();
        }
    }
}

impl Asking {
    /// The total of these requests, in milliseconds; null where nothing was seen of them.
    pub fn value(&self, requests: &[RequestId]) -> Value {
        let inner = self.0.lock();
        let mut all: Option<Waited> = None;
        for waited in requests.iter().filter_map(|&request| inner.waits.waits.get(request)) {
            *all.get_or_insert_default() += waited;
        }
        drop(inner);
        let Some(all) = all else { return Value::Null };
        let millis = |micros: u64| micros as f64 / 1e3;
        let mut value = json!({});
        for (name, micros) in all.parts.named() {
            value[format!("{name}_ms")] = json!(millis(micros));
        }
        let by = all.by().into_iter().take(NAMED_MAX);
        let by = by.map(|(sequence, ms)| json!({"sequence": sequence, "ms": millis(ms)}));
        value["delayed_by"] = by.collect();
        value
    }
}
