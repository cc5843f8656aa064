//! What batching is worth: utilisation, padding, and throughput at the same latency.

use super::{lengths, percent, policies};
use crate::base::Batching;
use crate::bench::claim::{ClaimError, Found, Trial};
use crate::bench::ground::{Ground, Load, Seen};
use crate::bench::plot::{Axis, Plot, Series, Style};
use crate::bench::table::Table;
use crate::sim::{Arrival, Prompt, Workload, at_rate};
use crate::trace::{Event, Stamped};

/// Lengths of one batch: the longest keeps seven places waiting.
const EIGHT: [u32; 8] = [20, 35, 40, 60, 80, 120, 200, 900];

fn request(number: u64, output: u32) -> Arrival {
    Arrival {
        micros: 0,
        prompt: Prompt::unique(number, 8),
        output,
        output_max: output,
        tenant: 0,
        class: 0,
        said: Vec::new(),
    }
}

/// Wanted tokens over slots × steps that give tokens, in the steps that `counts` chooses by how
/// many wait.
fn utilization(events: &[Stamped], slots: u32, counts: impl Fn(u32) -> bool) -> f64 {
    let (mut steps, mut tokens, mut counted, mut gives) = (0u64, 0u64, false, false);
    for event in events {
        match event.event {
            Event::StepPlanned { waiting, .. } => (counted, gives) = (counts(waiting), false),
            Event::TokenSampled { .. } if counted => {
                tokens += 1;
                steps += u64::from(!std::mem::replace(&mut gives, true));
            }
            _ => {}
        }
    }
    tokens as f64 / (u64::from(slots) * steps).max(1) as f64
}

fn run(
    ground: &Ground,
    arrivals: &[Arrival],
    batching: Batching,
    slots: u32,
) -> Result<Seen, ClaimError> {
    let mut limits = ground.limits();
    limits.sequences_max = slots.min(limits.sequences_max);
    let policies = policies(|p| p.batching = batching);
    let arrivals = arrivals.to_vec();
    ground.run(Load { arrivals, limits, policies, concurrency: None, slo: Default::default() })
}

/// Counts are the same wherever they are counted: what needs many requests is simulated.
pub fn utilization_of_batches(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let eight: Vec<_> = (0..).zip(EIGHT).map(|(n, output)| request(n, output)).collect();
    let fixed = run(trial.ground, &eight, Batching::Static { size: 8 }, 8)?;
    let fixed = utilization(&fixed.events, 8, |_| true);
    // Copies in an order that depends on nothing: multiples of a number without common factors.
    let copies = 8 * 64u64;
    let shuffled: Vec<_> =
        (0..copies).map(|n| request(n, EIGHT[(n * 277 % copies % 8) as usize])).collect();
    let sim = Ground::h100();
    let flowing = run(&sim, &shuffled, Batching::Continuous, 8)?;
    let flowing = utilization(&flowing.events, 8, |waiting| waiting > 0);
    let workload = Workload {
        requests: 512,
        rate: f64::INFINITY,
        prompt: lengths(16.0, 0.0, 16),
        output: lengths(64.0, 1.0, 1024),
        ..Workload::default()
    };
    let many: Vec<_> = workload.generator()?.collect();
    let mut table = Table::new(["batch", "static", "continuous"]);
    let (mut fixed_by, mut flowing_by) = (Vec::new(), Vec::new());
    for size in [1, 2, 4, 8, 16, 32, 64, 128] {
        let seen = run(&sim, &many, Batching::Static { size }, size)?;
        let fixed = utilization(&seen.events, size, |_| true);
        let seen = run(&sim, &many, Batching::Continuous, size)?;
        let flowing = utilization(&seen.events, size, |waiting| waiting > 0);
        table.row([size.to_string(), percent(fixed), percent(flowing)]);
        fixed_by.push((f64::from(size), 100.0 * fixed));
        flowing_by.push((f64::from(size), 100.0 * flowing));
    }
    let plot = Plot {
        title: "Places that give a wanted token, lognormal lengths".to_string(),
        x: Axis::log("batch size (slots)"),
        y: Axis::linear("utilisation, %"),
        series: vec![
            Series::new("static", Style::Line, fixed_by.iter().copied()),
            Series::new("continuous, while requests wait", Style::Line, flowing_by),
        ],
        marks: Vec::new(),
    };
    let worst = fixed_by.last().map_or(0.0, |p| p.1);
    Ok(Found {
        told: format!(
            "Static batching of the eight lengths uses {} of its places; continuous batching of 64 \
             shuffled copies uses {} while requests wait. On lognormal lengths a static batch of \
             128 uses {worst:.1} %.",
            percent(fixed),
            percent(flowing)
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![
            ("static_eight", fixed),
            ("continuous_64_copies", flowing),
            ("static_lognormal_128", worst / 100.0),
            ("static_lognormal_1", fixed_by.first().map_or(0.0, |p| p.1) / 100.0),
        ],
    })
}

pub fn padding(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let workload = Workload {
        requests: u64::from(trial.size(512, 48)),
        rate: f64::INFINITY,
        prompt: lengths(if trial.ground.is_real() { 60.0 } else { 256.0 }, 0.8, 512),
        output: lengths(if trial.ground.is_real() { 24.0 } else { 64.0 }, 1.0, 256),
        seed: 3,
        ..Workload::default()
    };
    let arrivals: Vec<_> = workload.generator()?.collect();
    let sizes: &[u32] = if trial.ground.is_real() { &[4, 16] } else { &[4, 8, 16, 32, 64] };
    let mut all = vec![("continuous".to_string(), Batching::Continuous)];
    all.extend(sizes.iter().map(|&size| (format!("static:{size}"), Batching::Static { size })));
    let mut table = Table::new(["batching", "computed", "padding", "share", "output tokens/s"]);
    let (mut shares, mut names) = (Vec::new(), Vec::new());
    for (name, batching) in all {
        let seen = run(trial.ground, &arrivals, batching, 64)?;
        let counts = seen.summary.counts;
        let share = counts.padding_tokens as f64 / counts.computed_tokens.max(1) as f64;
        table.row([
            name.clone(),
            counts.computed_tokens.to_string(),
            counts.padding_tokens.to_string(),
            percent(share),
            format!("{:.0}", seen.summary.output_throughput),
        ]);
        shares.push((shares.len() as f64, 100.0 * share));
        names.push(name);
    }
    let plot = Plot {
        title: "Positions computed for nothing".to_string(),
        x: Axis::named("batching", names),
        y: Axis::linear("padding, % of computed positions"),
        series: vec![Series::new("padding", Style::Bars, shares.iter().copied())],
        marks: Vec::new(),
    };
    let most = shares.iter().fold(0.0f64, |most, p| most.max(p.1));
    Ok(Found {
        told: format!(
            "Of the positions that static batches computed, up to {most:.1} % were padding; \
             continuous batching computed {:.1} % for nothing.",
            shares[0].1
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("continuous", shares[0].1 / 100.0), ("static_worst", most / 100.0)],
    })
}

/// Points of (throughput, median latency in milliseconds) over rates.
fn curve(
    trial: &Trial<'_>,
    arrivals: &[Arrival],
    batching: Batching,
    rates: &[f64],
) -> Result<Vec<(f64, f64)>, ClaimError> {
    let mut points = Vec::new();
    for &rate in rates {
        let mut scaled = arrivals.to_vec();
        at_rate(&mut scaled, &Workload { rate, ..Workload::default() })?;
        let seen = run(trial.ground, &scaled, batching, 64)?;
        points.push((seen.summary.request_throughput, seen.summary.e2el_ms.p50));
    }
    Ok(points)
}

/// Throughput at which a curve reaches `latency`, between its points.
fn reached(curve: &[(f64, f64)], latency: f64) -> f64 {
    let mut most = 0.0f64;
    for pair in curve.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        most = if y0 <= latency { most.max(x0) } else { most };
        if y0 <= latency && y1 > latency {
            most = most.max(x0 + (x1 - x0) * (latency - y0) / (y1 - y0));
        }
    }
    curve.iter().filter(|p| p.1 <= latency).fold(most, |most, p| most.max(p.0))
}

pub fn orca(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    // Means as in the Azure trace of conversations, 2023.
    let workload = Workload {
        requests: u64::from(trial.size(800, 60)),
        rate: 5.0,
        prompt: lengths(1155.0, 1.0, 4096),
        output: lengths(211.0, 1.0, 1000),
        seed: 1,
        ..Workload::default()
    };
    let real = trial.ground.is_real();
    let small = Workload {
        prompt: lengths(40.0, 1.0, 256),
        output: lengths(30.0, 1.0, 128),
        ..workload.clone()
    };
    let generated: Vec<_> = if real { small } else { workload }.generator()?.collect();
    let wanted = trial.size(800, 60) as usize;
    let arrivals = match trial.arrivals {
        Some(recorded) if !real => &recorded[..recorded.len().min(wanted)],
        _ => &generated[..],
    };
    let rates: &[f64] =
        if real { &[4.0, 12.0, 40.0] } else { &[1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0] };
    let fixed = curve(trial, arrivals, Batching::Static { size: 16 }, rates)?;
    let filled = curve(trial, arrivals, Batching::Dynamic { size: 16, timeout_ms: 100 }, rates)?;
    let flowing = curve(trial, arrivals, Batching::Continuous, rates)?;
    // The latency that static batches have at their best, with half as much again.
    let best = fixed.iter().chain(&filled).map(|p| p.1).fold(f64::INFINITY, f64::min);
    let latency = 1.5 * best;
    let before = reached(&fixed, latency).max(reached(&filled, latency));
    let after = reached(&flowing, latency);
    let gain = after / before.max(1e-9);
    let mut table = Table::new(["offered, requests/s", "static", "", "dynamic", "", "cont.", ""]);
    table.row(["", "requests/s", "ms", "requests/s", "ms", "requests/s", "ms"]);
    for (at, rate) in rates.iter().enumerate() {
        let mut cells = vec![format!("{rate}")];
        for curve in [&fixed, &filled, &flowing] {
            cells.extend([format!("{:.2}", curve[at].0), format!("{:.0}", curve[at].1)]);
        }
        table.row(cells);
    }
    let plot = Plot {
        title: "Median latency over throughput".to_string(),
        x: Axis::linear("requests/s finished"),
        y: Axis::log("median latency, ms"),
        series: vec![
            Series::new("static:16", Style::Line, fixed),
            Series::new("dynamic:16:100", Style::Line, filled),
            Series::new("continuous", Style::Line, flowing),
        ],
        marks: Vec::new(),
    };
    let traffic = if trial.arrivals.is_some() && !real { "recorded" } else { "generated" };
    Ok(Found {
        told: format!(
            "On {traffic} arrivals, at a median latency of {latency:.0} ms, continuous batching \
             finishes {after:.2} requests/s where batches of 16 finish {before:.2}: {gain:.1} \
             times as many."
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("latency_ms", latency), ("gain", gain)],
    })
}
