//! Who a token waited for, in words: the parts of a wait, the largest first.

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
    told.sort_by_key(|t| std::cmp::Reverse(t.0));
    let parts = told.iter().map(|(micros, what)| format!("{} {what}", duration(*micros)));
    format!("{}: {}", duration(gap.micros), parts.collect::<Vec<_>>().join(", "))
}

/// A time for people: three digits and a unit.
pub fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", (micros + 500) / 1_000),
        1_000_000..60_000_000 => format!("{:.1} s", micros as f64 / 1e6),
        _ => format!("{} min {} s", micros / 60_000_000, micros / 1_000_000 % 60),
    }
}
