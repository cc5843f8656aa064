//! Who a token waited for: the time between two tokens of a sequence, shared out over what ran in
//! between. Undisturbed decoding is the measure: what a step took beyond the usual time of steps
//! that only decode is on account of the prefill rows in it, by positions.

use super::lives::{Life, Phase};
use super::steps::Steps;
use crate::base::SequenceId;
use crate::trace::{Event, History};
use std::fmt::Write;

/// One share of a wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// The sequence's own row.
    Own,
    /// Another sequence's prompt (or recomputation) in the same step.
    Prefill(SequenceId),
    /// Steps of others while this one was out of its slot, preempted for `SequenceId`.
    Preempted(SequenceId),
    /// Steps in which it had a place but no row.
    Held,
    /// In the queue, before it was let in.
    Queued,
    /// No step ran.
    Between,
}

/// A wait and its shares, the largest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    pub micros: u64,
    pub shares: Vec<(Cause, u64)>,
}

/// Steps that a wait is explained over at most; the rest counts as between steps.
const STEPS_MAX: usize = 4096;

/// Explains the wait for token `index` of `sequence`.
pub fn explain(
    history: &History,
    steps: &Steps,
    (sequence, life): (SequenceId, &Life),
    index: usize,
) -> Option<Gap> {
    let micros = life.gap_micros(index)?;
    let end = life.tokens.get(index)?.step;
    let from = index.checked_sub(1).map_or(life.arrived_micros, |i| life.tokens[i].micros);
    // The first step planned after the token before.
    let first = steps.index_at(from);
    let first =
        if steps.get(first).is_some_and(|r| r.planned_micros < from) { first + 1 } else { first };
    let last = steps.index_of(end) + 1;
    let undisturbed = steps.undisturbed_micros();
    let mut shares: Vec<(Cause, u64)> = Vec::new();
    let mut add = |cause, micros: u64| match shares.iter_mut().find(|s| s.0 == cause) {
        Some(share) => share.1 += micros,
        None => shares.push((cause, micros)),
    };
    let mut told = 0;
    for row in steps.range(first.max(last.saturating_sub(STEPS_MAX)), last) {
        let total = row.total_micros();
        told += total;
        let (own, others) = rows_of(history, row.step, sequence);
        let Some(own) = own else {
            add(absent(history, life, row.step, sequence), total);
            continue;
        };
        let others_len: u64 = others.iter().map(|o| u64::from(o.1)).sum();
        let own_time = match (others_len, undisturbed) {
            (0, _) => total,
            (_, Some(usual)) if own == 1 => usual.min(total),
            _ => share(total, u64::from(own), u64::from(own) + others_len),
        };
        add(Cause::Own, own_time);
        for (other, len) in others {
            add(Cause::Prefill(other), share(total - own_time, u64::from(len), others_len));
        }
    }
    add(Cause::Between, micros.saturating_sub(told));
    shares.retain(|s| s.1 > 0);
    shares.sort_by_key(|s| std::cmp::Reverse(s.1));
    Some(Gap { micros, shares })
}

fn share(total: u64, part: u64, all: u64) -> u64 {
    let share = u128::from(total) * u128::from(part) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Positions of the sequence's own row in a step, and the prefill rows of others.
fn rows_of(
    history: &History,
    step: u64,
    sequence: SequenceId,
) -> (Option<u32>, Vec<(SequenceId, u32)>) {
    let (mut own, mut others) = (None, Vec::new());
    for stamped in history.events_of(step) {
        if let Event::RowPlanned { sequence: of, len, .. } = stamped.event {
            if of == sequence {
                own = Some(len);
            } else if len > 1 {
                others.push((of, len));
            }
        }
    }
    (own, others)
}

/// Why the sequence had no row in a step.
fn absent(history: &History, life: &Life, step: u64, sequence: SequenceId) -> Cause {
    let at = life.slices.iter().rfind(|s| s.from_step <= step);
    match at.map(|s| (s.phase, s.from_step)) {
        Some((Phase::Queued, _)) => Cause::Queued,
        Some((Phase::Preempted, since)) => {
            let gainer = history.events_of(since).find_map(|e| match e.event {
                Event::SequencePreempted { victim, gainer, .. } if victim == sequence => {
                    Some(gainer)
                }
                _ => None,
            });
            gainer.map_or(Cause::Queued, Cause::Preempted)
        }
        _ => Cause::Held,
    }
}

impl Gap {
    /// "41 ms: 33 ms prefill of sequence 7, 8 ms own".
    pub fn sentence(&self) -> String {
        let mut out = format!("{}: ", duration(self.micros));
        for (at, (cause, micros)) in self.shares.iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            let _ = write!(out, "{} ", duration(*micros));
            let _ = match cause {
                Cause::Own => write!(out, "own"),
                Cause::Prefill(other) => write!(out, "prefill of sequence {other}"),
                Cause::Preempted(gainer) => {
                    write!(out, "out of its slot, preempted for sequence {gainer}")
                }
                Cause::Held => write!(out, "in its slot without a row"),
                Cause::Queued => write!(out, "in the queue"),
                Cause::Between => write!(out, "between steps"),
            };
        }
        out
    }
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
