//! Figures of a run, by the names of `vllm bench serve`. Times are in milliseconds; percentiles
//! are interpolated between neighbours, as numpy does by default.

use super::{Run, Timed};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A limit that a good request keeps to, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// Time to the first token.
    Ttft(f64),
    /// Time per token after it.
    Tpot(f64),
    /// The whole request.
    E2el(f64),
}

impl Goal {
    /// Reads `ttft:200`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "expected ttft:MS, tpot:MS or e2el:MS, such as ttft:200".to_string();
        let (name, limit) = text.split_once(':').ok_or_else(wrong)?;
        let limit = limit.parse::<f64>().ok().filter(|ms| *ms > 0.0 && ms.is_finite());
        let limit = limit.ok_or_else(wrong)?;
        match name {
            "ttft" => Ok(Self::Ttft(limit)),
            "tpot" => Ok(Self::Tpot(limit)),
            "e2el" => Ok(Self::E2el(limit)),
            _ => Err(wrong()),
        }
    }

    fn kept(self, request: &Timed) -> bool {
        let (found, limit) = match self {
            Self::Ttft(limit) => (request.first, limit),
            // One token has no time between tokens.
            Self::Tpot(limit) => (Some(request.per_token().unwrap_or(0.0)), limit),
            Self::E2el(limit) => (Some(request.whole), limit),
        };
        found.is_some_and(|seconds| seconds * 1e3 <= limit)
    }
}

/// A set of times.
#[derive(Clone, PartialEq, Debug)]
pub struct Spread {
    pub mean: f64,
    pub median: f64,
    pub deviation: f64,
    /// Ascending.
    sorted: Vec<f64>,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len().max(1) as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let variance = sorted.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let mut spread = Self { mean, median: 0.0, deviation: variance.sqrt(), sorted };
        spread.median = spread.percentile(50.0);
        spread
    }

    /// 0 of an empty set.
    pub fn percentile(&self, percent: f64) -> f64 {
        let Some(last) = self.sorted.len().checked_sub(1) else { return 0.0 };
        let at = (percent / 100.0).clamp(0.0, 1.0) * last as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        self.sorted[low] + (self.sorted[high] - self.sorted[low]) * (at - low as f64)
    }

    /// Ascending.
    pub fn values(&self) -> &[f64] {
        &self.sorted
    }
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct Report {
    pub model: String,
    pub seconds: f64,
    pub completed: usize,
    pub failed: usize,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Requests that kept to every goal, if there are goals.
    pub good: Option<usize>,
    /// Name, as in `ttft`, and milliseconds.
    pub spreads: [(&'static str, Spread); 4],
    /// Most requests in flight at once.
    pub concurrent: usize,
    /// Most tokens that came within one second.
    pub peak_tokens: usize,
    percentiles: Vec<f64>,
    requests: Vec<Timed>,
}

impl Report {
    pub fn new(run: Run, goals: &[Goal], percentiles: &[f64]) -> Self {
        let Run { model, seconds, requests } = run;
        let whole: Vec<&Timed> = requests.iter().filter(|r| r.error.is_none()).collect();
        let spread = |of: &dyn Fn(&Timed) -> Vec<f64>| {
            Spread::of(whole.iter().flat_map(|r| of(r)).map(|seconds| seconds * 1e3))
        };
        let spreads = [
            ("ttft", spread(&|r| r.first.into_iter().collect())),
            ("tpot", spread(&|r| r.per_token().into_iter().collect())),
            ("itl", spread(&|r| r.gaps.clone())),
            ("e2el", spread(&|r| vec![r.whole])),
        ];
        let good = |r: &&&Timed| goals.iter().all(|goal| goal.kept(r));
        Self {
            model,
            seconds,
            completed: whole.len(),
            failed: requests.len() - whole.len(),
            input_tokens: whole.iter().map(|r| r.prompt_tokens).sum(),
            output_tokens: whole.iter().map(|r| r.output_tokens).sum(),
            good: (!goals.is_empty()).then(|| whole.iter().filter(good).count()),
            spreads,
            peak_tokens: peak_tokens(&whole),
            concurrent: in_flight(&requests).into_iter().map(|(_, n)| n).max().unwrap_or(0),
            percentiles: percentiles.to_vec(),
            requests,
        }
    }

    fn per_second(&self, amount: f64) -> f64 {
        if self.seconds > 0.0 { amount / self.seconds } else { 0.0 }
    }

    /// The requests that were not answered whole, by what was said of them.
    pub fn errors(&self) -> Vec<&str> {
        self.requests.iter().filter_map(|r| r.error.as_deref()).collect()
    }

    /// The result as `vllm bench serve --save-result` writes it; with `detailed`, what every
    /// request took. `more` comes first.
    pub fn json(&self, more: Map<String, Value>, detailed: bool) -> Value {
        let mut out = more;
        let mut put = |name: &str, value: Value| {
            out.insert(name.to_string(), value);
        };
        put("model_id", json!(self.model));
        // The server's own: this client has none.
        put("tokenizer_id", json!(self.model));
        put("num_prompts", json!(self.requests.len()));
        put("duration", json!(self.seconds));
        put("completed", json!(self.completed));
        put("failed", json!(self.failed));
        put("total_input_tokens", json!(self.input_tokens));
        put("total_output_tokens", json!(self.output_tokens));
        put("request_throughput", json!(self.per_second(self.completed as f64)));
        put("request_goodput", json!(self.good.map(|good| self.per_second(good as f64))));
        put("output_throughput", json!(self.per_second(self.output_tokens as f64)));
        let all = self.input_tokens + self.output_tokens;
        put("total_token_throughput", json!(self.per_second(all as f64)));
        put("max_output_tokens_per_s", json!(self.peak_tokens as f64));
        put("max_concurrent_requests", json!(self.concurrent));
        for (name, spread) in &self.spreads {
            put(&format!("mean_{name}_ms"), json!(spread.mean));
            put(&format!("median_{name}_ms"), json!(spread.median));
            put(&format!("std_{name}_ms"), json!(spread.deviation));
            for percent in &self.percentiles {
                put(&format!("p{percent}_{name}_ms"), json!(spread.percentile(*percent)));
            }
        }
        if detailed {
            let list =
                |of: &dyn Fn(&Timed) -> Value| self.requests.iter().map(of).collect::<Value>();
            put("input_lens", list(&|r| json!(r.prompt_tokens)));
            put("output_lens", list(&|r| json!(r.output_tokens)));
            put("start_times", list(&|r| json!(r.sent)));
            put("ttfts", list(&|r| json!(r.first.unwrap_or(0.0))));
            put("itls", list(&|r| json!(r.gaps)));
            put("e2els", list(&|r| json!(r.whole)));
            put("generated_texts", list(&|r| json!(r.text)));
            put("errors", list(&|r| json!(r.error.clone().unwrap_or_default())));
        }
        Value::Object(out)
    }

    /// The result for people.
    pub fn table(&self) -> String {
        let mut out = format!("{:=^50}\n", " Serving Benchmark Result ");
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<38} {value:>11}");
        };
        line("Successful requests:", self.completed.to_string());
        line("Failed requests:", self.failed.to_string());
        line("Benchmark duration (s):", format!("{:.2}", self.seconds));
        line("Total input tokens:", self.input_tokens.to_string());
        line("Total generated tokens:", self.output_tokens.to_string());
        line("Peak concurrent requests:", self.concurrent.to_string());
        let rate = |amount: f64| format!("{:.2}", self.per_second(amount));
        line("Request throughput (req/s):", rate(self.completed as f64));
        if let Some(good) = self.good {
            line("Request goodput (req/s):", rate(good as f64));
        }
        line("Output token throughput (tok/s):", rate(self.output_tokens as f64));
        line("Peak output token throughput (tok/s):", format!("{:.2}", self.peak_tokens as f64));
        let all = self.input_tokens + self.output_tokens;
        line("Total token throughput (tok/s):", rate(all as f64));
        let titles = [
            "Time to First Token",
            "Time per Output Token (excl. 1st token)",
            "Inter-token Latency",
            "End-to-end Latency",
        ];
        for (title, (name, spread)) in titles.into_iter().zip(&self.spreads) {
            let _ = writeln!(out, "{:-^50}", format!(" {title} "));
            let name = name.to_uppercase();
            let mut line = |what: String, value: f64| {
                let _ = writeln!(out, "{:<38} {value:>11.2}", format!("{what} {name} (ms):"));
            };
            line("Mean".to_string(), spread.mean);
            line("Median".to_string(), spread.median);
            for percent in &self.percentiles {
                line(format!("P{percent}"), spread.percentile(*percent));
            }
        }
        out + &"=".repeat(50) + "\n"
    }

    /// (Seconds, requests in flight from then on), ascending.
    pub fn in_flight(&self) -> Vec<(f64, usize)> {
        in_flight(&self.requests)
    }
}

/// The fullest of the seconds since the first request was sent.
fn peak_tokens(requests: &[&Timed]) -> usize {
    let start = requests.iter().map(|r| r.sent).fold(f64::INFINITY, f64::min);
    let mut seconds = BTreeMap::new();
    for request in requests {
        let mut at = request.sent - start;
        for gap in request.first.iter().chain(&request.gaps) {
            at += gap;
            *seconds.entry(at as u64).or_insert(0) += 1;
        }
    }
    seconds.into_values().max().unwrap_or(0)
}

fn in_flight(requests: &[Timed]) -> Vec<(f64, usize)> {
    let mut turns: Vec<(f64, bool)> =
        requests.iter().flat_map(|r| [(r.sent, true), (r.sent + r.whole, false)]).collect();
    // One that ends when another begins is over.
    turns.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut now = 0usize;
    let step = |(at, begins): (f64, bool)| {
        now = if begins { now + 1 } else { now.saturating_sub(1) };
        (at, now)
    };
    turns.into_iter().map(step).collect()
}
