//! Throughput and latency over batch, between the two bounds of the roofline.

use super::policies;
use crate::base::{KvType, PrefixCache};
use crate::bench::claim::{ClaimError, Found, Trial};
use crate::bench::ground::{Ground, Load};
use crate::bench::plot::{Axis, Plot, Series, Style};
use crate::bench::table::Table;
use crate::sim::{Arrival, Cost, ModelShape, Prompt, Roofline};
use crate::trace::{Event, Stamped};

/// Positions of each sequence: a prompt of 4096 and half of an answer of 1024.
const CONTEXT: u32 = 4608;
const BATCHES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 111, 192];

pub fn knee(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    match trial.ground {
        Ground::Sim { cost: Cost::Roofline(roofline), .. } => Ok(modelled(roofline)),
        ground => measured(trial, ground),
    }
}

/// The roofline with keys and values of `bytes` for what two bytes hold.
fn with_kv(roofline: &Roofline, kv: KvType) -> Roofline {
    // Rows of 128 values, as the model of the preset has them.
    let part = kv.row_bytes(128) as f64 / KvType::F16.row_bytes(128) as f64;
    let bytes = roofline.shape.kv_bytes_per_token * part;
    Roofline { shape: ModelShape { kv_bytes_per_token: bytes, ..roofline.shape }, ..*roofline }
}

fn seconds(roofline: &Roofline, batch: u32) -> f64 {
    let rows = (0..batch).map(|_| (CONTEXT, 1));
    Cost::Roofline(*roofline).micros(rows) as f64 / 1e6
}

/// Where reading keys and values takes as long as reading the weights: half of what any batch can
/// gain is gained there.
fn knee_of(roofline: &Roofline) -> f64 {
    roofline.shape.weight_bytes / (f64::from(CONTEXT) * roofline.shape.kv_bytes_per_token)
}

fn modelled(roofline: &Roofline) -> Found {
    let rate = |batch: u32| f64::from(batch) / seconds(roofline, batch);
    let mut table = Table::new(["batch", "ms a step", "tokens/s", "f32", "q8"]);
    let mut kinds = [KvType::F16, KvType::F32, KvType::Q8].map(|kv| (kv, Vec::new()));
    let (mut memory, mut arithmetic) = (Vec::new(), Vec::new());
    for batch in BATCHES {
        let mut cells = vec![batch.to_string(), format!("{:.2}", 1e3 * seconds(roofline, batch))];
        for (kv, points) in &mut kinds {
            let rate = f64::from(batch) / seconds(&with_kv(roofline, *kv), batch);
            points.push((f64::from(batch), rate));
            cells.push(format!("{rate:.0}"));
        }
        table.row(cells);
        let keys = f64::from(batch) * f64::from(CONTEXT);
        let (bytes, flops) = roofline.bounds(f64::from(batch), keys, keys);
        memory.push((f64::from(batch), f64::from(batch) / bytes));
        arithmetic.push((f64::from(batch), f64::from(batch) / flops));
    }
    let (first, second) = (rate(32) / rate(1), rate(111) / rate(64) - 1.0);
    let knee = knee_of(roofline);
    let mut series: Vec<Series> = kinds
        .into_iter()
        .map(|(kv, points)| Series::new(&format!("keys and values in {kv}"), Style::Line, points))
        .collect();
    series.push(Series::new("bound by memory", Style::Dashed, memory));
    series.push(Series::new("bound by arithmetic", Style::Dashed, arithmetic));
    let throughput = Plot {
        title: format!("Tokens a second over batch, {CONTEXT} positions each"),
        x: Axis::log("sequences that decode together"),
        y: Axis::log("tokens/s"),
        series,
        marks: vec![(knee, format!("knee: {knee:.0}"))],
    };
    let step = BATCHES.iter().map(|&b| (f64::from(b), 1e3 * seconds(roofline, b)));
    let latency = Plot {
        title: "Time of a token over batch".to_string(),
        x: Axis::log("sequences that decode together"),
        y: Axis::linear("ms"),
        series: vec![Series::new("step", Style::Line, step)],
        marks: vec![(knee, format!("knee: {knee:.0}"))],
    };
    Found {
        told: format!(
            "From 1 to 32 sequences throughput grows {first:.1} times, from 64 to 111 by {:.1} %. \
             At {knee:.0} sequences of {CONTEXT} positions keys and values take as long to read as \
             the weights: in q8 that is at {:.0}, in f32 at {:.0}.",
            100.0 * second,
            knee_of(&with_kv(roofline, KvType::Q8)),
            knee_of(&with_kv(roofline, KvType::F32))
        ),
        tables: vec![table],
        plots: vec![throughput, latency],
        values: vec![
            ("gain_1_to_32", first),
            ("gain_64_to_111", second),
            ("knee", knee),
            ("knee_q8", knee_of(&with_kv(roofline, KvType::Q8))),
            ("knee_f32", knee_of(&with_kv(roofline, KvType::F32))),
        ],
    }
}

/// Median time of steps in which all `batch` sequences decode and nothing else runs.
fn step_micros(events: &[Stamped], batch: u32) -> Option<u64> {
    let (mut counts, mut times) = (false, Vec::new());
    for event in events {
        match event.event {
            Event::StepPlanned { decode, tokens, .. } => {
                counts = decode == batch && tokens == batch;
            }
            Event::StepRan { plan_micros, build_micros, device_micros, .. } if counts => {
                times.push(plan_micros + build_micros + device_micros);
            }
            _ => {}
        }
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

fn measured(trial: &Trial<'_>, ground: &Ground) -> Result<Found, ClaimError> {
    let limits = ground.limits();
    let output = trial.size(64, 32);
    let mut table = Table::new(["batch", "ms a step", "tokens/s"]);
    let mut rates = Vec::new();
    let mut steps = Vec::new();
    for batch in [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|&b| b <= limits.sequences_max) {
        let one = |n: u64| Arrival {
            micros: 0,
            prompt: Prompt::unique(n, 16),
            output,
            output_max: output,
            tenant: 0,
            class: 0,
            said: Vec::new(),
        };
        let arrivals = (0..u64::from(batch)).map(one).collect();
        let policies = policies(|p| p.prefix_cache = PrefixCache::Off);
        let load = Load { arrivals, limits, policies, concurrency: None, slo: Default::default() };
        let seen = ground.run(load)?;
        let micros = step_micros(&seen.events, batch).ok_or(ClaimError::Empty("knee"))?;
        let rate = f64::from(batch) * 1e6 / micros.max(1) as f64;
        table.row([batch.to_string(), format!("{:.2}", micros as f64 / 1e3), format!("{rate:.0}")]);
        rates.push((f64::from(batch), rate));
        steps.push((f64::from(batch), micros as f64 / 1e3));
    }
    let (one, most) = (steps[0], steps[steps.len() - 1]);
    // What a step costs whatever is in it, and what each sequence adds.
    let each = ((most.1 - one.1) / (most.0 - one.0).max(1.0)).max(1e-6);
    let fixed = (one.1 - each).max(0.0);
    let knee = fixed / each;
    let bound = |of: fn(f64, f64, f64) -> f64| {
        rates.iter().map(move |p| (p.0, 1e3 * of(p.0, fixed, each))).collect::<Vec<_>>()
    };
    let batch_free = bound(|batch, fixed, _| batch / fixed.max(1e-6));
    let batch_full = bound(|_, _, each| 1.0 / each);
    let gain = rates[rates.len() - 1].1 / rates[0].1;
    let kv = ground.kv().map_or_else(String::new, |kv| format!(", keys and values in {kv}"));
    let plot = Plot {
        title: format!("Tokens a second over batch{kv}"),
        x: Axis::log("sequences that decode together"),
        y: Axis::log("tokens/s"),
        series: vec![
            Series::new("measured", Style::Line, rates.iter().copied()),
            Series::new("if sequences cost nothing", Style::Dashed, batch_free),
            Series::new("if steps cost nothing", Style::Dashed, batch_full),
        ],
        marks: if knee > 1.0 { vec![(knee, format!("knee: {knee:.0}"))] } else { Vec::new() },
    };
    Ok(Found {
        told: format!(
            "From 1 to {:.0} sequences throughput grows {gain:.1} times; a step costs {fixed:.2} \
             ms and {each:.3} ms for each sequence, equal at {knee:.0}.",
            most.0
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("gain", gain), ("knee", knee)],
    })
}
