//! Prompts that begin alike, with and without the prefix cache.

use super::{lengths, percent, policies};
use crate::base::PrefixCache;
use crate::bench::claim::{ClaimError, Found, Trial};
use crate::bench::ground::Load;
use crate::bench::plot::{Axis, Plot, Series, Style};
use crate::bench::table::Table;
use crate::sim::Workload;

pub fn prefix(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let real = trial.ground.is_real();
    let workload = Workload {
        requests: u64::from(trial.size(600, 40)),
        rate: if real { 8.0 } else { 10.0 },
        prompt: lengths(if real { 24.0 } else { 128.0 }, 0.5, 512),
        output: lengths(if real { 16.0 } else { 64.0 }, 0.5, 256),
        prefixes: 4,
        prefix_tokens: if real { 256 } else { 2048 },
        seed: 8,
        ..Workload::default()
    };
    let mut table =
        Table::new(["prefix cache", "computed", "TTFT p50, ms", "TTFT p99, ms", "requests/s"]);
    let (mut computed, mut first, mut tail) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    for (at, cache) in [PrefixCache::Off, PrefixCache::On].into_iter().enumerate() {
        let (arrivals, policies) =
            (workload.generator()?.collect(), policies(|p| p.prefix_cache = cache));
        let (limits, concurrency) = (trial.ground.limits(), None);
        let load = Load { arrivals, limits, policies, concurrency, slo: Default::default() };
        let s = trial.ground.run(load)?.summary;
        table.row([
            cache.to_string(),
            s.counts.computed_tokens.to_string(),
            format!("{:.1}", s.ttft_ms.p50),
            format!("{:.1}", s.ttft_ms.p99),
            format!("{:.2}", s.request_throughput),
        ]);
        computed[at] = s.counts.computed_tokens as f64;
        (first[at], tail[at]) = (s.ttft_ms.p50, s.ttft_ms.p99);
    }
    let (saved, sooner) = (1.0 - computed[1] / computed[0], first[0] / first[1].max(1e-9));
    let bars = |values: [f64; 2]| [(0.0, values[0]), (1.0, values[1])];
    let plot = Plot {
        title: format!(
            "First tokens of prompts with one of 4 prefixes of {}",
            workload.prefix_tokens
        ),
        x: Axis::named("prefix cache", ["off", "on"]),
        y: Axis::linear("ms"),
        series: vec![
            Series::new("TTFT p50", Style::Bars, bars(first)),
            Series::new("TTFT p99", Style::Bars, bars(tail)),
        ],
        marks: Vec::new(),
    };
    Ok(Found {
        told: format!(
            "The prefix cache saves {} of the positions, and the first token comes {sooner:.1} \
             times as soon in the median.",
            percent(saved)
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("saved", saved), ("ttft_p50_gain", sooner)],
    })
}
