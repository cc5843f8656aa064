//! Who a token waited for, in words: the parts of a wait, the largest first.

use crate::base::duration;
use crate::trace::{Gap, Parts};

/// Sequences that are named for their prefill; more of them are others.
const NAMED_MAX: usize = 3;

/// "41 ms: 33 ms prefill of sequence 7, 8.0 ms own".
pub fn sentence(gap: &Gap) -> String {
    let mut told: Vec<(u64, String)> = Vec::new();
    let named = gap.delayed_by.iter().take(NAMED_MAX);
    told.extend(named.map(|(by, micros)| (*micros, format!("prefill of sequence {by}"))));
    let of_named: u64 = told.iter().map(|t| t.0).sum();
    let Parts { own, others_decode, others_prefill, queue, preemption, .. } = gap.parts;
    let Parts { memory, scheduling, readback, unexplained, .. } = gap.parts;
    let preempted = match gap.preempted_for {
        Some(gainer) => format!("out of its slot for sequence {gainer} and computing again"),
        None => "computing again".to_string(),
    };
    for (micros, what) in [
        (own, "own"),
        (others_decode, "decoding of others"),
        (others_prefill.saturating_sub(of_named), "prefill of others"),
        (queue, "in the queue"),
        (preemption, &preempted),
        (memory, "without a free block"),
        (scheduling, "between steps"),
        (readback, "readback"),
        (unexplained, "unknown, events are missing"),
    ] {
        told.push((micros, what.to_string()));
    }
    told.retain(|t| t.0 > 0);
    if told.is_empty() {
        return format!("{}: with the token before it, a right guess", duration(gap.micros));
    }
    told.sort_by_key(|t| std::cmp::Reverse(t.0));
    let parts = told.iter().map(|(micros, what)| format!("{} {what}", duration(*micros)));
    format!("{}: {}", duration(gap.micros), parts.collect::<Vec<_>>().join(", "))
}
