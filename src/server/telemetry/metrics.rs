//! Counters and histograms, folded from the trace's events. Intervals follow vLLM's definitions,
//! so that its dashboards and alerts mean the same here: queued (arrival to first admission),
//! prefill (admission to first token, preemptions in between included), decode (first to last
//! token), inference (admission to last token), first token and end to end (from arrival).

use super::histogram::{CHOICES, GAPS, Histogram, IDLES, PHASES, STEPS, TOKENS, WHOLES};
use crate::base::SequenceId;
use crate::trace::{Event, EvictReason, FinishReason, PreemptMethod, PreemptReason, Stamped};
use std::collections::BTreeMap;

/// When the phases of an open request began.
#[derive(Clone, Copy, Default)]
struct Timeline {
    arrived: u64,
    prompt: u32,
    admitted: Option<u64>,
    first_token: Option<u64>,
    last_token: u64,
    /// Positions found computed since it was admitted; those of the first admission count.
    found: u32,
    admissions: u32,
}

/// What went to host memory and back.
#[derive(Clone, Copy, Default)]
pub(super) struct Swapped {
    pub blocks_out: u64,
    pub blocks_in: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub micros: u64,
}

/// All there is to scrape but the gauges.
#[derive(Clone)]
pub(in crate::server) struct Metrics {
    open: BTreeMap<SequenceId, Timeline>,
    pub(super) prompt_tokens: u64,
    pub(super) generation_tokens: u64,
    /// Rows that guessed tokens, those tokens, and how many were right.
    pub(super) drafts: u64,
    pub(super) draft_tokens: u64,
    pub(super) drafts_right: u64,
    pub(super) prefix_queries: u64,
    pub(super) prefix_hits: u64,
    /// Prompt tokens that choices of one request found in another's table.
    pub(super) shared_tokens: u64,
    pub(super) evictions: BTreeMap<&'static str, u64>,
    pub(super) evicted_idle: Histogram,
    pub(super) blocks_copied: u64,
    pub(super) blocks_merged: u64,
    pub(super) swapped: Swapped,
    pub(super) preemptions: BTreeMap<&'static str, u64>,
    pub(super) preempted_by: BTreeMap<&'static str, u64>,
    pub(super) recomputed_tokens: u64,
    pub(super) finished: BTreeMap<&'static str, u64>,
    pub(super) refused: u64,
    pub(super) http: BTreeMap<(&'static str, u16), u64>,
    pub(super) first_token: Histogram,
    pub(super) inter_token: Histogram,
    pub(super) per_output_token: Histogram,
    pub(super) whole: Histogram,
    pub(super) queue: Histogram,
    pub(super) prefill: Histogram,
    pub(super) decode: Histogram,
    pub(super) inference: Histogram,
    pub(super) request_prompt: Histogram,
    pub(super) request_generation: Histogram,
    pub(super) request_max_tokens: Histogram,
    pub(super) request_n: Histogram,
    pub(super) iteration: Histogram,
    pub(super) step_plan: Histogram,
    pub(super) step_build: Histogram,
    pub(super) step_device: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let reasons = ["stop", "length", "abort", "error"];
        Self {
            open: BTreeMap::new(),
            prompt_tokens: 0,
            generation_tokens: 0,
            drafts: 0,
            draft_tokens: 0,
            drafts_right: 0,
            prefix_queries: 0,
            prefix_hits: 0,
            shared_tokens: 0,
            evictions: [EvictReason::OutOfBlocks, EvictReason::Failed]
                .map(|reason| (evict_name(reason), 0))
                .into(),
            evicted_idle: Histogram::new(IDLES),
            blocks_copied: 0,
            blocks_merged: 0,
            swapped: Swapped::default(),
            preempted_by: [PreemptMethod::Recompute, PreemptMethod::Swap]
                .map(|method| (method_name(method), 0))
                .into(),
            preemptions: [PreemptReason::OutOfBlocks, PreemptReason::Forced]
                .map(|reason| (preempt_name(reason), 0))
                .into(),
            recomputed_tokens: 0,
            finished: reasons.into_iter().map(|reason| (reason, 0)).collect(),
            refused: 0,
            http: BTreeMap::new(),
            first_token: Histogram::new(PHASES),
            inter_token: Histogram::new(GAPS),
            per_output_token: Histogram::new(GAPS),
            whole: Histogram::new(WHOLES),
            queue: Histogram::new(PHASES),
            prefill: Histogram::new(PHASES),
            decode: Histogram::new(PHASES),
            inference: Histogram::new(PHASES),
            request_prompt: Histogram::new(TOKENS),
            request_generation: Histogram::new(TOKENS),
            request_max_tokens: Histogram::new(TOKENS),
            request_n: Histogram::new(CHOICES),
            iteration: Histogram::new(TOKENS),
            step_plan: Histogram::new(STEPS),
            step_build: Histogram::new(STEPS),
            step_device: Histogram::new(STEPS),
        }
    }
}

impl Metrics {
    pub fn choices(&mut self, n: usize) {
        self.request_n.observe(n as f64);
    }

    pub fn http(&mut self, route: &'static str, status: u16) {
        *self.http.entry((route, status)).or_default() += 1;
    }

    /// Adds one event.
    pub fn push(&mut self, stamped: &Stamped) {
        let now = stamped.micros;
        match stamped.event {
            Event::RequestArrived { sequence, prompt, max_new_tokens, .. } => {
                self.request_prompt.observe(f64::from(prompt));
                self.request_max_tokens.observe(f64::from(max_new_tokens));
                self.prefix_queries += u64::from(prompt);
                self.open
                    .insert(sequence, Timeline { arrived: now, prompt, ..Timeline::default() });
            }
            Event::RequestRefused { .. } => self.refused += 1,
            Event::SequenceAdmitted { sequence, .. } => {
                let Some(line) = self.open.get_mut(&sequence) else { return };
                line.admissions += 1;
                if line.admitted.is_none() {
                    line.admitted = Some(now);
                    self.queue.observe_micros(line.arrived, now);
                }
            }
            Event::PrefixMatched { .. }
            | Event::PromptShared { .. }
            | Event::BlockEvicted { .. }
            | Event::BlockCopied { .. }
            | Event::BlockMerged { .. }
            | Event::BlocksSwapped { .. } => self.cache(&stamped.event),
            Event::StepPlanned { tokens, padding, .. } => {
                self.iteration.observe(f64::from(tokens.saturating_sub(padding)));
            }
            Event::StepRan { plan_micros, build_micros, device_micros, .. } => {
                self.step_plan.observe_micros(0, plan_micros);
                self.step_build.observe_micros(0, build_micros);
                self.step_device.observe_micros(0, device_micros);
            }
            Event::RowDrafted { len, .. } => {
                self.drafts += 1;
                self.draft_tokens += u64::from(len);
            }
            Event::DraftsTried { right, .. } => self.drafts_right += u64::from(right),
            Event::TokenSampled { sequence, .. } => self.token(sequence, now),
            Event::SequencePreempted { reason, method, lost, .. } => {
                *self.preemptions.entry(preempt_name(reason)).or_default() += 1;
                *self.preempted_by.entry(method_name(method)).or_default() += 1;
                self.recomputed_tokens += u64::from(lost);
            }
            Event::SequenceFinished { sequence, reason, generated, .. } => {
                self.finish(sequence, reason, generated, now);
            }
            _ => {}
        }
    }

    /// What happened to KV blocks.
    fn cache(&mut self, event: &Event) {
        match *event {
            Event::PrefixMatched { sequence, tokens, .. } => {
                self.prefix_hits += self.found(sequence, tokens);
            }
            Event::PromptShared { sequence, tokens, .. } => {
                self.shared_tokens += self.found(sequence, tokens);
            }
            Event::BlockEvicted { reason, idle_micros, .. } => {
                *self.evictions.entry(evict_name(reason)).or_default() += 1;
                self.evicted_idle.observe_micros(0, idle_micros);
            }
            Event::BlockCopied { .. } => self.blocks_copied += 1,
            Event::BlockMerged { .. } => self.blocks_merged += 1,
            Event::BlocksSwapped { out, back, bytes, micros, .. } => {
                let (out, back) = (u64::from(out), u64::from(back));
                let block = bytes / (out + back).max(1);
                let all = &mut self.swapped;
                (all.blocks_out, all.blocks_in) = (all.blocks_out + out, all.blocks_in + back);
                all.bytes_out += block * out;
                all.bytes_in += block * back;
                all.micros += micros;
            }
            _ => {}
        }
    }

    /// How many positions the event adds to those found when the sequence was first admitted:
    /// it tells how many there are so far. Of a later admission none is new.
    fn found(&mut self, sequence: SequenceId, tokens: u32) -> u64 {
        let Some(line) = self.open.get_mut(&sequence) else { return 0 };
        if line.admissions > 1 {
            return 0;
        }
        let before = std::mem::replace(&mut line.found, tokens);
        u64::from(tokens.saturating_sub(before))
    }

    fn token(&mut self, sequence: SequenceId, now: u64) {
        self.generation_tokens += 1;
        let Some(line) = self.open.get_mut(&sequence) else { return };
        if line.first_token.is_none() {
            line.first_token = Some(now);
            self.prompt_tokens += u64::from(line.prompt);
            self.first_token.observe_micros(line.arrived, now);
        } else {
            self.inter_token.observe_micros(line.last_token, now);
        }
        line.last_token = now;
    }

    fn finish(&mut self, sequence: SequenceId, reason: FinishReason, generated: u32, now: u64) {
        *self.finished.entry(reason_name(reason)).or_default() += 1;
        let Some(line) = self.open.remove(&sequence) else { return };
        self.whole.observe_micros(line.arrived, now);
        self.request_generation.observe(f64::from(generated));
        // A prompt that was only asked about, and ran to its end.
        let asked = matches!(reason, FinishReason::Stop | FinishReason::Length);
        if asked && line.first_token.is_none() {
            self.prompt_tokens += u64::from(line.prompt);
        }
        let (Some(admitted), Some(first)) = (line.admitted, line.first_token) else { return };
        self.prefill.observe_micros(admitted, first);
        self.decode.observe_micros(first, line.last_token);
        self.inference.observe_micros(admitted, line.last_token);
        if generated > 1 {
            let micros = line.last_token.saturating_sub(first) as f64;
            self.per_output_token.observe(micros / f64::from(generated - 1) / 1e6);
        }
    }
}

fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Cancelled | FinishReason::TimedOut => "abort",
        FinishReason::Failed => "error",
    }
}

fn method_name(method: PreemptMethod) -> &'static str {
    match method {
        PreemptMethod::Recompute => "recompute",
        PreemptMethod::Swap => "swap",
    }
}

fn evict_name(reason: EvictReason) -> &'static str {
    match reason {
        EvictReason::OutOfBlocks => "out_of_blocks",
        EvictReason::Failed => "failed",
    }
}

fn preempt_name(reason: PreemptReason) -> &'static str {
    match reason {
        PreemptReason::OutOfBlocks => "out_of_blocks",
        PreemptReason::Forced => "forced",
    }
}
