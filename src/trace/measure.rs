//! What a run was like for those it served: a sink that keeps times and counts, never the events.
//!
//! Definitions as `vllm bench serve` has them: time to first token (TTFT) from arrival; time per
//! output token (TPOT) = (last token − first token) / (tokens − 1); inter-token latency (ITL) =
//! each gap between two tokens of a request; throughput over the time from the first arrival to
//! the last token. Fairness is Jain's index over the tenants' tokens ("A quantitative measure of
//! fairness and discrimination for resource allocation", 1984): 1 = all equal, 1/n = one has
//! everything.

use super::event::{Event, FinishReason, Stamped};
use super::histogram::Histogram;
use super::sink::Sink;
use crate::base::SequenceId;
use serde::Serialize;
use std::collections::BTreeMap;

/// Bounds that a request has to keep to be counted as good, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slo {
    pub ttft_micros: Option<u64>,
    pub tpot_micros: Option<u64>,
}

/// One request on its way.
#[derive(Clone, Copy, Debug)]
struct Open {
    tenant: u32,
    arrived: u64,
    admitted: Option<u64>,
    first: Option<u64>,
    last: u64,
}

/// Keeps the measures of a stream.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    slo: Slo,
    open: BTreeMap<SequenceId, Open>,
    began: Option<u64>,
    ended: u64,
    ttft: Histogram,
    tpot: Histogram,
    itl: Histogram,
    latency: Histogram,
    queued: Histogram,
    steps: Histogram,
    tenants: BTreeMap<u32, u64>,
    counts: Counts,
}

/// Totals of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    pub arrived: u64,
    pub refused: u64,
    pub finished: u64,
    pub failed: u64,
    /// Finished within the bounds asked for.
    pub good: u64,
    pub preemptions: u64,
    pub steps: u64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    /// Positions computed, prompts, recomputation and padding included.
    pub computed_tokens: u64,
    pub padding_tokens: u64,
    /// Positions that were computed and lost by preemption.
    pub lost_tokens: u64,
    /// Places of the decoding batch, summed over the steps that decode: rows and padding.
    pub decode_places: u64,
    /// Of those, the ones that gave a wanted token.
    pub decode_rows: u64,
}

/// Mean, middle and tail of times in milliseconds; of no times NaN, which is null in JSON.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Spread {
    fn of(times: &Histogram) -> Self {
        let millis = |permille| times.quantile(permille).map_or(f64::NAN, |us| us as f64 / 1e3);
        Self {
            mean: times.mean().map_or(f64::NAN, |micros| micros / 1e3),
            p50: millis(500),
            p90: millis(900),
            p99: millis(990),
            max: millis(1000),
        }
    }
}

/// The measures of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    pub counts: Counts,
    pub seconds: f64,
    pub request_throughput: f64,
    pub output_throughput: f64,
    pub total_token_throughput: f64,
    /// Good requests per second.
    pub request_goodput: f64,
    pub ttft_ms: Spread,
    pub tpot_ms: Spread,
    pub itl_ms: Spread,
    pub e2el_ms: Spread,
    pub queue_ms: Spread,
    pub step_ms: Spread,
    /// Wanted tokens ÷ places of the decoding batch; 1 where nothing decoded.
    pub utilization: f64,
    pub fairness: f64,
}

impl Measures {
    pub fn new(slo: Slo) -> Self {
        Self { slo, ..Self::default() }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Requests that have arrived and not ended.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    pub fn summary(&self) -> Summary {
        let counts = self.counts;
        let seconds = self.ended.saturating_sub(self.began.unwrap_or(self.ended)) as f64 / 1e6;
        let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        Summary {
            seconds,
            request_throughput: rate(counts.finished),
            output_throughput: rate(counts.output_tokens),
            total_token_throughput: rate(counts.prompt_tokens + counts.output_tokens),
            request_goodput: rate(counts.good),
            ttft_ms: Spread::of(&self.ttft),
            tpot_ms: Spread::of(&self.tpot),
            itl_ms: Spread::of(&self.itl),
            e2el_ms: Spread::of(&self.latency),
            queue_ms: Spread::of(&self.queued),
            step_ms: Spread::of(&self.steps),
            utilization: match counts.decode_places {
                0 => 1.0,
                places => counts.decode_rows as f64 / places as f64,
            },
            fairness: jain(self.tenants.values().copied()),
            counts,
        }
    }

    fn token(&mut self, sequence: SequenceId, now: u64) {
        let Some(open) = self.open.get_mut(&sequence) else { return };
        self.counts.output_tokens += 1;
        *self.tenants.entry(open.tenant).or_default() += 1;
        match open.first {
            None => {
                open.first = Some(now);
                self.ttft.record(now.saturating_sub(open.arrived));
            }
            Some(_) => self.itl.record(now.saturating_sub(open.last)),
        }
        open.last = now;
        self.ended = self.ended.max(now);
    }

    fn finish(&mut self, sequence: SequenceId, reason: FinishReason, generated: u32) {
        let Some(open) = self.open.remove(&sequence) else { return };
        if !matches!(reason, FinishReason::Stop | FinishReason::Length) {
            self.counts.failed += 1;
            return;
        }
        self.counts.finished += 1;
        let Some(first) = open.first else { return };
        self.latency.record(open.last.saturating_sub(open.arrived));
        let gaps = u64::from(generated.saturating_sub(1));
        let tpot = open.last.saturating_sub(first).checked_div(gaps);
        tpot.into_iter().for_each(|tpot| self.tpot.record(tpot));
        let within = |bound: Option<u64>, value: u64| bound.is_none_or(|most| value <= most);
        let good = within(self.slo.ttft_micros, first.saturating_sub(open.arrived))
            && within(self.slo.tpot_micros, tpot.unwrap_or(0));
        self.counts.good += u64::from(good);
    }
}

impl Sink for Measures {
    fn push(&mut self, stamped: &Stamped) {
        let now = stamped.micros;
        let counts = &mut self.counts;
        match stamped.event {
            Event::RequestArrived { sequence, prompt, tenant, .. } => {
                counts.arrived += 1;
                counts.prompt_tokens += u64::from(prompt);
                self.began.get_or_insert(now);
                let open = Open { tenant, arrived: now, admitted: None, first: None, last: now };
                self.open.insert(sequence, open);
            }
            Event::RequestRefused { .. } => counts.refused += 1,
            Event::SequenceAdmitted { sequence, .. } => {
                if let Some(open) = self.open.get_mut(&sequence)
                    && open.admitted.is_none()
                {
                    open.admitted = Some(now);
                    self.queued.record(now.saturating_sub(open.arrived));
                }
            }
            Event::StepPlanned { tokens, padding, .. } => {
                counts.steps += 1;
                counts.computed_tokens += u64::from(tokens);
                counts.padding_tokens += u64::from(padding);
            }
            Event::RowPlanned { len: 1, samples, .. } => {
                counts.decode_places += 1;
                counts.decode_rows += u64::from(samples);
            }
            Event::RowPadded { len: 1, .. } => counts.decode_places += 1,
            Event::RowDiscarded { len: 1, .. } => {
                counts.decode_rows = counts.decode_rows.saturating_sub(1);
            }
            Event::StepRan { plan_micros, build_micros, device_micros, .. } => {
                self.steps.record(plan_micros + build_micros + device_micros);
            }
            Event::TokenSampled { sequence, .. } => self.token(sequence, now),
            Event::SequencePreempted { lost, .. } => {
                counts.preemptions += 1;
                counts.lost_tokens += u64::from(lost);
            }
            Event::SequenceFinished { sequence, reason, generated, .. } => {
                self.finish(sequence, reason, generated);
            }
            _ => {}
        }
    }
}

/// Jain's index; 1 of nothing.
pub fn jain(shares: impl Iterator<Item = u64> + Clone) -> f64 {
    let n = shares.clone().count() as f64;
    let sum: f64 = shares.clone().map(|x| x as f64).sum();
    let squares: f64 = shares.map(|x| x as f64 * x as f64).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}
