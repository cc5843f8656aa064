//! A real run beside what the simulator predicts of it, from the step times of another run.

use super::{lengths, policies};
use crate::bench::claim::{ClaimError, Found, Trial};
use crate::bench::ground::{Ground, Load, Seen};
use crate::bench::plot::{Axis, Plot, Series, Style};
use crate::bench::table::Table;
use crate::sim::{Arrival, Cost, Recorded, SimError, Workload};
use crate::trace::Summary;

const RUNS: usize = 5;

/// The most by which the middle one of all runs may be off.
const WITHIN: f64 = 0.15;

pub fn prediction(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let real = trial.ground.is_real();
    let of = |seed: u64| Workload {
        requests: u64::from(trial.size(200, 40)),
        rate: if real { 6.0 } else { 15.0 },
        prompt: lengths(if real { 60.0 } else { 512.0 }, 0.8, 400),
        output: lengths(if real { 24.0 } else { 100.0 }, 0.8, 128),
        seed,
        ..Workload::default()
    };
    let limits = trial.ground.limits();
    let run = |ground: &Ground, arrivals: Vec<Arrival>| -> Result<Seen, ClaimError> {
        let policies = policies(|_| {});
        ground.run(Load { arrivals, limits, policies, concurrency: None, slo: Default::default() })
    };
    let mut table =
        Table::new(["run", "TTFT p50, ms", "predicted", "off", "tokens/s", "predicted", "off"]);
    let (mut ttft, mut rate) = (Vec::new(), Vec::new());
    let (mut seen_at, mut said_at) = (Vec::new(), Vec::new());
    // Each run is predicted from the one before it, so that both met the machine in one mood.
    let mut before = run(trial.ground, of(100).generator()?.collect())?;
    for n in 0..RUNS {
        let arrivals: Vec<_> = of(101 + n as u64).generator()?.collect();
        let recorded = Recorded::read(&before.events).map_err(SimError::from)?;
        let cost = recorded.cost.ok_or(ClaimError::Empty("prediction"))?;
        let (cost, block_picos) = (Cost::Fitted(cost), recorded.block_picos);
        let sim = Ground::Sim { name: "fitted", cost, block_picos, limits };
        let seen = run(trial.ground, arrivals.clone())?;
        let said = run(&sim, arrivals)?;
        let (row, off) = compared(n, &seen.summary, &said.summary);
        table.row(row);
        ttft.push(off[0]);
        rate.push(off[1]);
        seen_at.push((n as f64, seen.summary.ttft_ms.p50));
        said_at.push((n as f64, said.summary.ttft_ms.p50));
        before = seen;
    }
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (ttft, rate) = (middle(&mut ttft), middle(&mut rate));
    let plot = Plot {
        title: "First tokens, measured and predicted".to_string(),
        x: Axis::named("run", (1..=RUNS).map(|n| n.to_string())),
        y: Axis::linear("TTFT p50, ms"),
        series: vec![
            Series::new("measured", Style::Bars, seen_at),
            Series::new("predicted", Style::Bars, said_at),
        ],
        marks: Vec::new(),
    };
    let within = if ttft.max(rate) <= WITHIN { "within" } else { "not within" };
    Ok(Found {
        told: format!(
            "In the middle of {RUNS} runs the time to the first token is off by {:.1} %, \
             throughput by {:.1} %: {within} 15 %.",
            100.0 * ttft,
            100.0 * rate
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("ttft_off", ttft), ("throughput_off", rate)],
    })
}

/// A row of the table, and by how much the first token and the throughput are off.
fn compared(n: usize, seen: &Summary, said: &Summary) -> (Vec<String>, [f64; 2]) {
    let off = |seen: f64, said: f64| (said / seen - 1.0).abs();
    let first = off(seen.ttft_ms.p50, said.ttft_ms.p50);
    let tokens = off(seen.output_throughput, said.output_throughput);
    let row = vec![
        (n + 1).to_string(),
        format!("{:.2}", seen.ttft_ms.p50),
        format!("{:.2}", said.ttft_ms.p50),
        format!("{:.1} %", 100.0 * first),
        format!("{:.1}", seen.output_throughput),
        format!("{:.1}", said.output_throughput),
        format!("{:.1} %", 100.0 * tokens),
    ];
    (row, [first, tokens])
}
