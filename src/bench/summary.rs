//! The measures of runs side by side, one column each.

use super::table::Table;
use crate::trace::{Spread, Summary};

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
    row("requests/s within the SLOs", &|s| format!("{:.2}", s.request_goodput));
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
            row(&format!("{name} {figure}, ms"), &|s| format!("{:.2}", of(part(s))));
        }
    }
    row("steps", &|s| s.counts.steps.to_string());
    row("preemptions", &|s| s.counts.preemptions.to_string());
    row("tokens computed again", &|s| s.counts.lost_tokens.to_string());
    row("padding tokens", &|s| s.counts.padding_tokens.to_string());
    row("utilisation", &|s| format!("{:.1} %", 100.0 * s.utilization));
    row("fairness of tenants", &|s| format!("{:.3}", s.fairness));
    table
}
