//! A victim's keys and values moved to host memory and back, or computed again: what either costs
//! over the length, and what a short memory costs under each.

use super::{lengths, policies};
use crate::base::{Preemption, PrefixCache};
use crate::bench::claim::{ClaimError, Found, Trial};
use crate::bench::ground::{Ground, Load, Seen};
use crate::bench::plot::{Axis, Plot, Series, Style};
use crate::bench::table::Table;
use crate::sim::{Arrival, Workload};
use crate::trace::{Event, Stamped};
use std::collections::BTreeMap;

type Values = Vec<(&'static str, f64)>;

/// Links to host memory, in GB/s, that a simulated device is given in turn, and the value that says
/// where its crossover lies: PCIe 5, 4 and 3 with 16 lanes, as transfers reach.
const LINKS: [(f64, &str); 3] = [
    (50.0, "crossover_at_50_gb_s"),
    (25.0, "crossover_at_25_gb_s"),
    (12.5, "crossover_at_12_gb_s"),
];

/// What either way was taken to cost, in milliseconds, by the tokens of the victim.
struct Costs {
    recompute: Vec<(f64, f64)>,
    swap: Vec<(f64, f64)>,
}

fn costs(events: &[Stamped], block_size: u32) -> Costs {
    let mut all: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for event in events {
        if let Event::SequencePreempted { blocks, recompute_micros, swap_micros, .. } = event.event
            && swap_micros > 0
            && recompute_micros > 0
        {
            all.insert(blocks * block_size, (recompute_micros, swap_micros));
        }
    }
    let points = |of: fn(&(u64, u64)) -> u64| {
        all.iter().map(|(tokens, both)| (f64::from(*tokens), of(both) as f64 / 1e3)).collect()
    };
    Costs { recompute: points(|both| both.0), swap: points(|both| both.1) }
}

/// The least length from which on the way that costs more for the shortest costs less.
fn crossover(costs: &Costs) -> Option<f64> {
    let differences: Vec<(f64, f64)> =
        costs.recompute.iter().zip(&costs.swap).map(|(r, s)| (r.0, r.1 - s.1)).collect();
    let first = differences.first()?.1;
    let last = differences.iter().rposition(|d| d.1.signum() == first.signum())?;
    differences.get(last + 1).map(|d| d.0)
}

/// Requests that do not fit all at once.
struct Pressed {
    arrivals: Vec<Arrival>,
    real: bool,
}

impl Pressed {
    fn new(trial: &Trial<'_>) -> Result<Self, ClaimError> {
        let real = trial.ground.is_real();
        let workload = Workload {
            requests: u64::from(trial.size(300, 24)),
            rate: f64::INFINITY,
            prompt: if real { lengths(120.0, 1.0, 700) } else { lengths(1200.0, 1.2, 6000) },
            output: if real { lengths(60.0, 0.5, 128) } else { lengths(400.0, 0.5, 1024) },
            seed: 9,
            ..Workload::default()
        };
        Ok(Self { arrivals: workload.generator()?.collect(), real })
    }

    fn run(&self, ground: &Ground, preemption: Preemption) -> Result<Seen, ClaimError> {
        let mut limits = ground.limits();
        // Little enough that somebody has to give way.
        limits.blocks = if self.real { 64 } else { 3000 };
        limits.sequences_max = limits.sequences_max.min(if self.real { 16 } else { 64 });
        limits.host_blocks = limits.host_blocks.max(limits.blocks);
        let policies = policies(|p| {
            (p.preemption, p.prefix_cache) = (preemption, PrefixCache::Off);
        });
        let (arrivals, concurrency) = (self.arrivals.clone(), None);
        ground.run(Load { arrivals, limits, policies, concurrency, slo: Default::default() })
    }

    /// What costs less over each of [`LINKS`], where the device is simulated.
    fn over_links(&self, ground: &Ground) -> Result<(Option<Table>, Values), ClaimError> {
        let (mut table, mut crossovers) = (None, Vec::new());
        for (gigabytes, value) in LINKS {
            let Some(ground) = ground.with_link(gigabytes * 1e9) else { continue };
            let seen = self.run(&ground, Preemption::Auto)?;
            let costs = costs(&seen.events, ground.limits().block_size);
            if costs.swap.is_empty() {
                continue;
            }
            let cross = crossover(&costs);
            let table = table.get_or_insert_with(|| Table::new(["link, GB/s", "what costs less"]));
            table.row([format!("{gigabytes}"), told(&costs, cross)]);
            crossovers.extend(cross.map(|tokens| (value, tokens)));
        }
        Ok((table, crossovers))
    }
}

pub fn swap_or_recompute(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let pressed = Pressed::new(trial)?;
    let head = ["preemption", "preemptions", "computed again", "blocks moved", "tokens/s"];
    let mut table = Table::new(head);
    let (mut rates, mut found, mut preempted) = (Vec::new(), None, 0);
    let ways = [Preemption::Recompute, Preemption::Swap, Preemption::Auto];
    for (at, way) in (0..).zip(ways) {
        let seen = pressed.run(trial.ground, way)?;
        let moved: u64 = seen.events.iter().map(moved).sum();
        let s = &seen.summary;
        table.row([
            way.to_string(),
            s.counts.preemptions.to_string(),
            s.counts.lost_tokens.to_string(),
            moved.to_string(),
            format!("{:.0}", s.output_throughput),
        ]);
        rates.push((f64::from(at), s.output_throughput));
        preempted += s.counts.preemptions;
        found = Some(costs(&seen.events, trial.ground.limits().block_size));
    }
    if preempted == 0 {
        let told = "Nobody was preempted: the run says nothing of either way.".to_string();
        return Ok(Found { told, tables: vec![table], plots: Vec::new(), values: Vec::new() });
    }
    let costs =
        found.filter(|c| !c.swap.is_empty()).ok_or(ClaimError::Empty("swap-or-recompute"))?;
    let cross = crossover(&costs);
    let told = told(&costs, cross);
    let (links, crossovers) = pressed.over_links(trial.ground)?;
    let best = rates[0].1.max(rates[1].1);
    let mut values = vec![
        ("auto_over_best", rates[2].1 / best),
        ("swap_over_recompute", rates[1].1 / rates[0].1),
    ];
    values.extend(cross.map(|tokens| ("crossover_tokens", tokens)));
    values.extend(crossovers);
    Ok(Found {
        told: format!(
            "{told} Chosen per victim, throughput is {:.2} times that of the better of the two.",
            rates[2].1 / best
        ),
        tables: [table].into_iter().chain(links).collect(),
        plots: plots(&costs, cross, ways, &rates),
        values,
    })
}

fn moved(event: &Stamped) -> u64 {
    match event.event {
        Event::BlocksSwapped { out, back, .. } => u64::from(out) + u64::from(back),
        _ => 0,
    }
}

fn told(costs: &Costs, cross: Option<f64>) -> String {
    let last = costs.swap.len() - 1;
    let cheaper = |at: usize| {
        if costs.recompute[at].1 < costs.swap[at].1 { "computing again" } else { "moving" }
    };
    match cross {
        Some(at) => format!(
            "From {at:.0} tokens on {} costs less, below that {}.",
            cheaper(last),
            cheaper(0)
        ),
        None => format!(
            "Between {:.0} and {:.0} tokens {} costs less at every length: there is no crossover.",
            costs.swap[0].0,
            costs.swap[last].0,
            cheaper(0)
        ),
    }
}

fn plots(
    costs: &Costs,
    cross: Option<f64>,
    ways: [Preemption; 3],
    rates: &[(f64, f64)],
) -> Vec<Plot> {
    let cost = Plot {
        title: "What a preemption costs, as the scheduler takes it to".to_string(),
        x: Axis::linear("tokens computed"),
        y: Axis::log("ms"),
        series: vec![
            Series::new("computed again", Style::Points, costs.recompute.iter().copied()),
            Series::new("moved away and back", Style::Points, costs.swap.iter().copied()),
        ],
        marks: cross.map(|at| (at, format!("crossover: {at:.0}"))).into_iter().collect(),
    };
    let rate = Plot {
        title: "Throughput with too little memory".to_string(),
        x: Axis::named("preemption", ways.map(|way| way.to_string())),
        y: Axis::linear("output tokens/s"),
        series: vec![Series::new("output tokens/s", Style::Bars, rates.iter().copied())],
        marks: Vec::new(),
    };
    vec![cost, rate]
}
