//! A real run beside what the simulator predicts of it, from the step times of another run.

use super::{lengths, percent, policies};
use crate::bench::claim::{ClaimError, Found, Trial};
use crate::bench::ground::{Ground, Load, Seen};
use crate::bench::plot::{Axis, Plot, Series, Style};
use crate::bench::table::Table;
use crate::sim::{Arrival, Cost, Recorded, SimError, Workload};
use crate::trace::{Stamped, Summary};

const RUNS: usize = 5;

/// The most by which the middle one of all runs may be off.
const WITHIN: f64 = 0.15;

/// The figure that the simulator is to foresee.
type Figure = fn(&Summary) -> f64;

/// Spread over time, arrivals set the throughput and the engine the time to the first token; all
/// at once, the engine sets the throughput.
const KINDS: [(bool, Figure); 2] = [(false, |s| s.ttft_ms.p50), (true, |s| s.output_throughput)];

pub fn prediction(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let mut before = KINDS.map(|_| None);
    let mut table =
        Table::new(["run", "TTFT p50, ms", "predicted", "off", "tokens/s", "predicted", "off"]);
    let (mut off, mut first) = (KINDS.map(|_| Vec::new()), [Vec::new(), Vec::new()]);
    // Each run is predicted from the one before it, so that both met the machine in one mood.
    for n in 0..=RUNS {
        let mut cells = vec![n.to_string()];
        for (kind, (at_once, figure)) in KINDS.into_iter().enumerate() {
            let arrivals = arrivals(trial, n as u64, at_once)?;
            let seen = run(trial.ground, arrivals.clone())?;
            if let Some(before) = before[kind].replace(seen.events) {
                let said = run(&fitted(trial, &before)?, arrivals)?;
                let (seen, said) = (figure(&seen.summary), figure(&said.summary));
                let by = (said / seen - 1.0).abs();
                if !by.is_finite() {
                    return Err(ClaimError::Empty("prediction"));
                }
                cells.extend([format!("{seen:.2}"), format!("{said:.2}"), percent(by)]);
                off[kind].push(by);
                if !at_once {
                    [seen, said].into_iter().zip(&mut first).for_each(|(value, points)| {
                        points.push((points.len() as f64, value));
                    });
                }
            }
        }
        if n > 0 {
            table.row(cells);
        }
    }
    let [ttft, rate] = off.map(|mut values| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    });
    let verdict = |off: f64| if off <= WITHIN { "within" } else { "not within" };
    let [seen_at, said_at] = first;
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
    Ok(Found {
        told: format!(
            "In the middle of {RUNS} runs the time to the first token is off by {}: {} 15 %. \
             Throughput, of as many requests at once, is off by {}: {} 15 %.",
            percent(ttft),
            verdict(ttft),
            percent(rate),
            verdict(rate)
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("ttft_off", ttft), ("throughput_off", rate)],
    })
}

fn arrivals(trial: &Trial<'_>, n: u64, at_once: bool) -> Result<Vec<Arrival>, ClaimError> {
    let real = trial.ground.is_real();
    let rate = if real { 6.0 } else { 15.0 };
    let workload = Workload {
        requests: u64::from(trial.size(200, 40)),
        rate: if at_once { f64::INFINITY } else { rate },
        prompt: lengths(if real { 60.0 } else { 512.0 }, 0.8, 400),
        output: lengths(if real { 24.0 } else { 100.0 }, 0.8, 128),
        seed: 100 + n,
        ..Workload::default()
    };
    Ok(workload.generator()?.collect())
}

fn run(ground: &Ground, arrivals: Vec<Arrival>) -> Result<Seen, ClaimError> {
    let (limits, policies) = (ground.limits(), policies(|_| {}));
    ground.run(Load { arrivals, limits, policies, concurrency: None, slo: Default::default() })
}

/// A simulator whose steps take as long as recorded ones.
fn fitted(trial: &Trial<'_>, recorded: &[Stamped]) -> Result<Ground, ClaimError> {
    let recorded = Recorded::read(recorded, 0).map_err(SimError::from)?;
    let cost = recorded.cost.ok_or(ClaimError::Empty("prediction"))?;
    let (cost, block_picos) = (Cost::Fitted(cost), recorded.block_picos);
    Ok(Ground::Sim { name: "fitted", cost, block_picos, limits: trial.ground.limits() })
}
