//! The measures of runs side by side, one column each.

use super::table::Table;
use crate::trace::{Parts, Spread, Summary, Waited, Waits};

/// What stands for the figure of an empty set.
const ABSENT: &str = "–";

fn shown(value: f64) -> String {
    if value.is_nan() { ABSENT.to_string() } else { format!("{value:.2}") }
}

/// A row for each measure, a column for each run.
pub fn summaries(runs: &[(&str, &Summary)]) -> Table {
    let mut table = Table::new(std::iter::once("").chain(runs.iter().map(|r| r.0)));
    let mut row = |name: &str, cell: &dyn Fn(&Summary) -> String| {
        let cells = runs.iter().map(|(_, summary)| cell(summary));
        table.row(std::iter::once(name.to_string()).chain(cells));
    };
    row("requests finished", &|s| s.counts.finished.to_string());
    row("requests refused", &|s| s.counts.refused.to_string());
    row("requests failed", &|s| s.counts.failed.to_string());
    row("time, s", &|s| format!("{:.2}", s.seconds));
    row("requests/s", &|s| format!("{:.2}", s.request_throughput));
    row("requests/s within the SLOs", &|s| match s.counts.finished {
        0 => ABSENT.to_string(),
        _ => shown(s.request_goodput),
    });
    row("output tokens/s", &|s| format!("{:.1}", s.output_throughput));
    row("tokens/s", &|s| format!("{:.1}", s.total_token_throughput));
    type Part = fn(&Summary) -> &Spread;
    type Figure = fn(&Spread) -> f64;
    let parts: [(&str, Part); 5] = [
        ("TTFT", |s| &s.ttft_ms),
        ("TPOT", |s| &s.tpot_ms),
        ("ITL", |s| &s.itl_ms),
        ("queue", |s| &s.queue_ms),
        ("step", |s| &s.step_ms),
    ];
    for (name, part) in parts {
        let figures: [(&str, Figure); 4] =
            [("p50", |s| s.p50), ("p90", |s| s.p90), ("p99", |s| s.p99), ("max", |s| s.max)];
        for (figure, of) in figures {
            row(&format!("{name} {figure}, ms"), &|s| shown(of(part(s))));
        }
    }
    row("steps", &|s| s.counts.steps.to_string());
    row("preemptions", &|s| s.counts.preemptions.to_string());
    row("tokens computed again", &|s| s.counts.lost_tokens.to_string());
    row("padding tokens", &|s| s.counts.padding_tokens.to_string());
    row("utilisation", &|s| match s.counts.decode_places {
        0 => ABSENT.to_string(),
        _ => format!("{:.1} %", 100.0 * s.utilization),
    });
    row("fairness of tenants", &|s| format!("{:.3}", s.fairness));
    table
}

/// Sequences named in a row.
const NAMED_MAX: usize = 3;

/// What requests waited for, in milliseconds: all together, and the `many` that waited longest for
/// others.
pub fn waited(waits: &Waits, many: usize) -> Table {
    let names = Parts::default().named().map(|part| part.0.replace('_', " "));
    let head = ["request".to_string(), "in all".to_string()].into_iter().chain(names);
    let mut table = Table::new(head.chain(["delayed by".to_string()]));
    let millis = |micros: u64| format!("{:.1}", micros as f64 / 1e3);
    let mut sum = Waited::default();
    let mut all: Vec<_> = waits.iter().collect();
    all.iter().for_each(|(_, waited)| sum.parts += waited.parts);
    all.sort_by_key(|(request, waited)| {
        (std::cmp::Reverse(waited.parts.sum() - waited.parts.own), *request)
    });
    let all = all.into_iter().take(many);
    let rows = all.map(|(request, waited)| (request.to_string(), waited));
    for (name, waited) in rows.chain([("all".to_string(), &sum)]) {
        let mut row = vec![name, millis(waited.parts.sum())];
        row.extend(waited.parts.named().map(|part| millis(part.1)));
        let by = waited.by().into_iter().take(NAMED_MAX);
        let by: Vec<_> = by.map(|(by, micros)| format!("{by}: {}", millis(micros))).collect();
        row.push(by.join(", "));
        table.row(row);
    }
    table
}
