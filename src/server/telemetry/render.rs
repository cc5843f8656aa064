//! Prometheus' text format, version 0.0.4. Names are vLLM's behind our prefix; the four that the
//! Kubernetes inference gateway's endpoint picker reads by default also come under their own.

use super::histogram::Histogram;
use super::metrics::{Metrics, Swapped};
use crate::base::Limits;
use crate::trace::{DelayReason, Picture};
use std::collections::BTreeMap;
use std::fmt::Write;

const PREFIX: &str = "tilewright:";

/// What is so at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Gauges {
    limits: Limits,
    running: u32,
    waiting: u32,
    waiting_by_reason: BTreeMap<&'static str, u32>,
    used: u32,
    shared: u32,
    cached: u32,
}

impl Gauges {
    pub fn of(picture: &Picture, limits: &Limits) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let reasons =
            ["behind_others", "slots", "blocks", "peak", "protected", "in_flight", "sibling"];
        let mut waiting_by_reason: BTreeMap<_, u32> = reasons.into_iter().map(|r| (r, 0)).collect();
        for sequence in &picture.queue {
            let delay = picture.sequences.get(sequence).and_then(|s| s.delay);
            *waiting_by_reason.entry(delay_name(delay)).or_default() += 1;
        }
        Self {
            limits: *limits,
            running: picture.running(),
            waiting: count(picture.queue.len()),
            waiting_by_reason,
            used: count(picture.blocks.iter().filter(|b| b.tables > 0).count()),
            shared: count(picture.blocks.iter().filter(|b| b.tables > 1).count()),
            cached: picture.cached_blocks(),
        }
    }

    fn total(&self) -> u32 {
        self.limits.blocks
    }

    fn usage(&self) -> f64 {
        f64::from(self.used) / f64::from(self.total().max(1))
    }
}

fn delay_name(delay: Option<DelayReason>) -> &'static str {
    match delay {
        None => "behind_others",
        Some(DelayReason::Slots) => "slots",
        Some(DelayReason::Blocks) => "blocks",
        Some(DelayReason::Peak) => "peak",
        Some(DelayReason::Protected) => "protected",
        Some(DelayReason::InFlight) => "in_flight",
        Some(DelayReason::Sibling) => "sibling",
    }
}

/// A page being written.
struct Page {
    out: String,
    /// The labels that every line has.
    labels: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, more: &str, value: impl std::fmt::Display) {
        let labels = &self.labels;
        let _ = writeln!(self.out, "{name}{{{labels}{more}}} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        let name = format!("{PREFIX}{name}");
        self.head(&name, "gauge", help);
        self.line(&name, "", value);
    }

    /// A gauge or counter with one line for each value of a label.
    fn split<'a>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        label: &str,
        values: impl Iterator<Item = (&'a str, u64)>,
    ) {
        let name = format!("{PREFIX}{name}");
        self.head(&name, kind, help);
        for (value, count) in values {
            self.line(&name, &format!(",{label}=\"{value}\""), count);
        }
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let name = format!("{PREFIX}{name}_total");
        self.head(&name, "counter", help);
        self.line(&name, "", value);
    }

    fn histogram(&mut self, name: &str, help: &str, values: &Histogram) {
        let name = format!("{PREFIX}{name}");
        self.head(&name, "histogram", help);
        values.render(&mut self.out, &name, &self.labels);
    }
}

/// The whole page, for a model served as `model`.
pub(in crate::server) fn render(metrics: &Metrics, gauges: &Gauges, model: &str) -> String {
    let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = format!("model_name=\"{model}\",engine=\"0\"");
    let mut page = Page { out: String::with_capacity(1 << 14), labels };
    state(&mut page, gauges);
    counters(&mut page, metrics);
    requests(&mut page, metrics);
    steps(&mut page, metrics);
    picker(&mut page, gauges);
    page.out
}

fn state(page: &mut Page, gauges: &Gauges) {
    page.gauge("num_requests_running", "Requests that have a slot.", gauges.running);
    page.gauge("num_requests_waiting", "Requests in the queue.", gauges.waiting);
    let by_reason = gauges.waiting_by_reason.iter().map(|(r, n)| (*r, u64::from(*n)));
    let help = "Requests in the queue, by what they wait for.";
    page.split(("num_requests_waiting_by_reason", "gauge", help), "reason", by_reason);
    page.gauge("kv_cache_usage_perc", "Share of KV blocks in use; 1 is all.", gauges.usage());
    page.gauge("kv_blocks_used", "KV blocks that a sequence holds.", gauges.used);
    let free = gauges.total().saturating_sub(gauges.used).saturating_sub(gauges.cached);
    page.gauge("kv_blocks_free", "KV blocks that hold nothing of use.", free);
    page.gauge("kv_blocks_total", "KV blocks of the pool.", gauges.total());
    page.gauge("kv_blocks_shared", "KV blocks that several sequences hold.", gauges.shared);
    let help = "Free KV blocks whose content a later prompt may find again.";
    page.gauge("kv_blocks_cached", help, gauges.cached);
    cache_config(page, PREFIX, gauges);
}

fn cache_config(page: &mut Page, prefix: &str, gauges: &Gauges) {
    let size = gauges.limits.block_size;
    let name = format!("{prefix}cache_config_info");
    page.head(&name, "gauge", "The KV pool's sizes, as labels.");
    let total = gauges.total();
    page.line(&name, &format!(",block_size=\"{size}\",num_gpu_blocks=\"{total}\""), 1);
}

fn counters(page: &mut Page, m: &Metrics) {
    cache(page, m);
    page.counter("prompt_tokens", "Prompt tokens computed or found.", m.prompt_tokens);
    page.counter("generation_tokens", "Tokens generated.", m.generation_tokens);
    let preempted = m.preemptions.iter().map(|(reason, n)| (*reason, *n));
    let help = "Requests that lost their slot, by reason.";
    page.split(("num_preemptions_total", "counter", help), "reason", preempted);
    let by_method = m.preempted_by.iter().map(|(method, n)| (*method, *n));
    let help = "Requests that lost their slot, by what became of what they had computed.";
    page.split(("num_preemptions_by_method_total", "counter", help), "method", by_method);
    let help = "Computed tokens that preemptions threw away.";
    page.counter("recomputed_tokens", help, m.recomputed_tokens);
    page.counter("spec_decode_num_drafts", "Rows that guessed tokens.", m.drafts);
    page.counter("spec_decode_num_draft_tokens", "Tokens guessed.", m.draft_tokens);
    let help = "Guessed tokens that were right.";
    page.counter("spec_decode_num_accepted_tokens", help, m.drafts_right);
    let finished = m.finished.iter().map(|(reason, n)| (*reason, *n));
    let help = "Requests that ended, by reason.";
    page.split(("request_success_total", "counter", help), "finished_reason", finished);
    page.counter("requests_refused", "Requests that the queue did not take.", m.refused);
    let name = format!("{PREFIX}http_requests_total");
    page.head(&name, "counter", "HTTP requests answered, by route and status.");
    for ((route, status), count) in &m.http {
        page.line(&name, &format!(",route=\"{route}\",status=\"{status}\""), count);
    }
}

/// What the KV cache saved, and what it cost.
fn cache(page: &mut Page, m: &Metrics) {
    page.counter("prefix_cache_queries", "Prompt tokens looked up.", m.prefix_queries);
    page.counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.", m.prefix_hits);
    let help = "Prompt tokens that a choice of a request found in another's blocks.";
    page.counter("prompt_tokens_shared", help, m.shared_tokens);
    let evicted = m.evictions.iter().map(|(reason, n)| (*reason, *n));
    let help = "Cached KV blocks whose content was given up, by reason.";
    page.split(("kv_block_evictions_total", "counter", help), "reason", evicted);
    let help = "Last use of a cached KV block to its eviction.";
    page.histogram("kv_block_idle_before_evict_seconds", help, &m.evicted_idle);
    page.counter("kv_blocks_copied", "KV blocks copied so as to be written.", m.blocks_copied);
    let help = "KV blocks that made way for equal ones of the prefix cache.";
    page.counter("kv_blocks_merged", help, m.blocks_merged);
    let Swapped { blocks_out, blocks_in, bytes_out, bytes_in, micros } = m.swapped;
    let help = "KV blocks moved to host memory (out) and back (in).";
    let blocks = [("out", blocks_out), ("in", blocks_in)].into_iter();
    page.split(("kv_swap_blocks_total", "counter", help), "direction", blocks);
    let help = "Bytes of those blocks.";
    let bytes = [("out", bytes_out), ("in", bytes_in)].into_iter();
    page.split(("kv_swap_bytes_total", "counter", help), "direction", bytes);
    let name = format!("{PREFIX}kv_swap_seconds_total");
    page.head(&name, "counter", "Time that moving those blocks took.");
    page.line(&name, "", micros as f64 / 1e6);
}

fn requests(page: &mut Page, m: &Metrics) {
    let help = "Arrival to first token.";
    page.histogram("time_to_first_token_seconds", help, &m.first_token);
    page.histogram("inter_token_latency_seconds", "Between two tokens.", &m.inter_token);
    let help = "Decode time by token after the first.";
    page.histogram("request_time_per_output_token_seconds", help, &m.per_output_token);
    page.histogram("e2e_request_latency_seconds", "Arrival to end.", &m.whole);
    let help = "Arrival to first admission.";
    page.histogram("request_queue_time_seconds", help, &m.queue);
    let help = "First admission to first token.";
    page.histogram("request_prefill_time_seconds", help, &m.prefill);
    page.histogram("request_decode_time_seconds", "First to last token.", &m.decode);
    let help = "First admission to last token.";
    page.histogram("request_inference_time_seconds", help, &m.inference);
    page.histogram("request_prompt_tokens", "Tokens of a prompt.", &m.request_prompt);
    page.histogram("request_generation_tokens", "Tokens of an answer.", &m.request_generation);
    let help = "Most tokens that a request allows.";
    page.histogram("request_params_max_tokens", help, &m.request_max_tokens);
    page.histogram("request_params_n", "Choices that a request asks for.", &m.request_n);
}

fn steps(page: &mut Page, m: &Metrics) {
    page.histogram("iteration_tokens_total", "Tokens of a step.", &m.iteration);
    let name = format!("{PREFIX}step_duration_seconds");
    page.head(&name, "histogram", "Time of a step, by part.");
    let labels = page.labels.clone();
    for (part, values) in
        [("plan", &m.step_plan), ("build", &m.step_build), ("device", &m.step_device)]
    {
        values.render(&mut page.out, &name, &format!("{labels},part=\"{part}\""));
    }
}

/// The names that the endpoint picker of the Kubernetes gateway for inference has by default.
fn picker(page: &mut Page, gauges: &Gauges) {
    for (name, value) in [
        ("vllm:num_requests_waiting", f64::from(gauges.waiting)),
        ("vllm:num_requests_running", f64::from(gauges.running)),
        ("vllm:kv_cache_usage_perc", gauges.usage()),
    ] {
        page.head(name, "gauge", "As the same name of ours, for endpoint pickers.");
        page.line(name, "", value);
    }
    cache_config(page, "vllm:", gauges);
}
