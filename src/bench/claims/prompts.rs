//! What long prompts do to those that decode: the stall, the token budget, and what a prompt costs
//! within a step that decodes anyway.

use super::{lengths, percent, policies};
use crate::base::{Policies, Prefill, PrefixCache};
use crate::bench::claim::{ClaimError, Found, Trial};
use crate::bench::ground::{Load, Seen};
use crate::bench::plot::{Axis, Plot, Series, Style};
use crate::bench::table::Table;
use crate::sim::{Arrival, Prompt, Workload};
use crate::trace::{Event, Stamped};
use std::collections::BTreeMap;

fn request(number: u64, micros: u64, prompt: u32, output: u32) -> Arrival {
    Arrival {
        micros,
        prompt: Prompt::unique(number, prompt),
        output,
        output_max: output,
        tenant: 0,
        class: 0,
        said: Vec::new(),
    }
}

/// Waits between tokens of all but the longest prompt's request, as (moment, wait).
struct Waits {
    /// From when all streams ran until the long prompt came.
    before: Vec<u64>,
    during: Vec<(u64, u64)>,
    /// When the long prompt came.
    arrived: u64,
}

fn waits(events: &[Stamped], long: u32) -> Waits {
    let (mut last, mut guest, mut arrived) = (BTreeMap::new(), None, u64::MAX);
    let mut started = 0;
    let mut all = Vec::new();
    let mut over = u64::MAX;
    for event in events {
        match event.event {
            Event::RequestArrived { sequence, prompt, .. } if prompt == long => {
                (guest, arrived) = (Some(sequence), event.micros);
            }
            Event::TokenSampled { sequence, .. } if Some(sequence) == guest => {
                over = over.min(event.micros);
            }
            Event::TokenSampled { sequence, .. } => match last.insert(sequence, event.micros) {
                Some(before) => all.push((before, event.micros - before)),
                None => started = event.micros,
            },
            _ => {}
        }
    }
    let calm = |w: &&(u64, u64)| w.0 >= started && w.0 + w.1 < arrived;
    let before = all.iter().filter(calm).map(|w| w.1).collect();
    let during = all.iter().filter(|w| w.0 + w.1 >= arrived && w.0 <= over).copied().collect();
    Waits { before, during, arrived }
}

fn quantile(values: &[u64], permille: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * permille).div_ceil(1000).max(1) - 1;
    sorted.get(rank).copied().unwrap_or(0) as f64 / 1e3
}

impl Waits {
    /// Milliseconds since the prompt came, and of the wait.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let millis = |micros: u64| micros as f64 / 1e3;
        self.during.iter().map(move |w| (millis(w.0 + w.1 - self.arrived), millis(w.1)))
    }
}

/// One way to take the prompt.
struct Way {
    name: String,
    policies: Policies,
    budget: u32,
}

/// Streams, the long prompt's tokens, and the prompt of each stream.
struct Scene {
    streams: u64,
    long: u32,
    start: u32,
}

impl Scene {
    /// The long prompt comes at `at`; each stream says `output` tokens.
    fn run(
        &self,
        trial: &Trial<'_>,
        way: &Way,
        (at, output): (u64, u32),
    ) -> Result<Seen, ClaimError> {
        let streams = (0..self.streams).map(|n| request(n, 0, self.start, output));
        let arrivals = streams.chain([request(99, at, self.long, 2)]).collect();
        let mut limits = trial.ground.limits();
        limits.step_tokens_max = way.budget;
        let (policies, concurrency) = (way.policies, None);
        trial.ground.run(Load { arrivals, limits, policies, concurrency, slo: Default::default() })
    }
}

/// Whole, in pieces of two sizes, and under a target of `times` the `usual` wait.
fn ways(real: bool, whole: u32, usual: f64, times: f64) -> Vec<Way> {
    let way = |name: String, policies, budget| Way { name, policies, budget };
    let first = policies(|p| p.prefill = Prefill::PrefillFirst);
    let mut ways = vec![way("whole".to_string(), first, whole)];
    for budget in if real { [64, 256] } else { [512, 1024] } {
        ways.push(way(format!("chunked, budget {budget}"), policies(|_| {}), budget));
    }
    let target = policies(|p| p.itl_target_micros = Some((usual * times * 1e3) as u32));
    ways.push(way(format!("--itl-target {:.1}", usual * times), target, whole));
    ways
}

pub fn stall(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let real = trial.ground.is_real();
    let (streams, long, start) = if real { (4, 1500, 16) } else { (24, 4096, 1000) };
    let (scene, whole) = (Scene { streams, long, start }, long + 64);
    let times = if real { 2.0 } else { 1.15 };
    // Undisturbed: the prompt comes long after the streams have ended, or on a device at once.
    let alone = Way { name: String::new(), policies: Policies::default(), budget: whole };
    let late = 3_600_000_000 * u64::from(!real);
    let calm = scene.run(trial, &alone, (late, trial.size(200, 60)))?;
    let usual = match real {
        false => quantile(&waits(&calm.events, long).before, 500),
        true => calm.summary.itl_ms.p50,
    };
    // In the middle of what the streams say.
    let output = if real { 300 } else { 400 };
    let at = (usual * 1e3) as u64 * u64::from(output) / 2;
    let head = ["prompt", "ITL p50, ms", "p99, ms", "max, ms", "over usual", "TTFT, ms"];
    let mut table = Table::new(head);
    let (mut series, mut spikes, mut calm) = (Vec::new(), Vec::new(), Vec::new());
    for way in &ways(real, whole, usual, times) {
        let seen = scene.run(trial, way, (at, output))?;
        let waits = waits(&seen.events, long);
        let during: Vec<u64> = waits.during.iter().map(|w| w.1).collect();
        if during.is_empty() {
            return Err(ClaimError::Empty("stall"));
        }
        let found = [500, 990, 1000].map(|permille| quantile(&during, permille));
        let ttft = format!("{:.0}", guest_ttft(&seen.events, long));
        table.row(cells(&way.name, found, usual, ttft));
        spikes.push((found[1], found[2]));
        calm.extend(&waits.before);
        series.push(Series::new(&way.name, Style::Points, waits.points()));
    }
    let calm = [500, 990, 1000].map(|permille| quantile(&calm, permille));
    table.row(cells("none", calm, usual, "-".into()));
    let plot = Plot {
        title: format!("Waits of {streams} streams while a prompt of {long} tokens comes"),
        x: Axis::linear("ms since the prompt arrived"),
        y: Axis::log("wait for a token, ms"),
        series,
        marks: Vec::new(),
    };
    let (whole, held) = (spikes[0], spikes[spikes.len() - 1]);
    let target = usual * times;
    Ok(Found {
        told: format!(
            "Undisturbed, a token takes {usual:.2} ms. A prompt of {long} tokens computed whole \
             makes one wait {:.1} ms, {:.1} times as long; under a target of {target:.1} ms the \
             longest wait is {:.1} ms, {:.2} times as long, and p99 is {:.2} times the target; \
             with no prompt in the way it is {:.2} times the target.",
            whole.1,
            whole.1 / usual,
            held.1,
            held.1 / usual,
            held.0 / target,
            calm[1] / target
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![
            ("whole_over_usual", whole.1 / usual),
            ("target_over_usual", held.1 / usual),
            ("target_p99_over_target", held.0 / target),
            ("undisturbed_p99_over_target", calm[1] / target),
            ("target_p99_over_whole", held.0 / whole.1),
        ],
    })
}

fn cells(name: &str, [p50, p99, most]: [f64; 3], usual: f64, ttft: String) -> [String; 6] {
    let millis = [p50, p99, most].map(|millis| format!("{millis:.2}"));
    let [p50, p99, longest] = millis;
    [name.to_string(), p50, p99, longest, format!("{:.1}×", most / usual), ttft]
}

fn guest_ttft(events: &[Stamped], long: u32) -> f64 {
    let arrived = events.iter().find_map(|e| match e.event {
        Event::RequestArrived { sequence, prompt, .. } if prompt == long => {
            Some((sequence, e.micros))
        }
        _ => None,
    });
    let Some((guest, at)) = arrived else { return 0.0 };
    let first = events
        .iter()
        .find(|e| matches!(e.event, Event::TokenSampled { sequence, .. } if sequence == guest));
    first.map_or(0.0, |e| (e.micros - at) as f64 / 1e3)
}

pub fn budget(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let real = trial.ground.is_real();
    let workload = Workload {
        requests: u64::from(trial.size(400, 24)),
        rate: if real { 3.0 } else { 12.0 },
        prompt: if real { lengths(200.0, 0.5, 800) } else { lengths(2048.0, 0.5, 6000) },
        output: if real { lengths(30.0, 0.3, 60) } else { lengths(128.0, 0.5, 512) },
        seed: 2,
        ..Workload::default()
    };
    let arrivals: Vec<_> = workload.generator()?.collect();
    let budgets: &[u32] =
        if real { &[32, 128, 512] } else { &[128, 256, 512, 1024, 2048, 4096, 8192] };
    let mut table =
        Table::new(["budget", "TTFT p50, ms", "ITL p50, ms", "ITL p99, ms", "tokens/s"]);
    let (mut ttft, mut itl) = (Vec::new(), Vec::new());
    for &budget in budgets {
        let mut limits = trial.ground.limits();
        limits.step_tokens_max = budget;
        limits.sequences_max = limits.sequences_max.min(budget);
        let (arrivals, policies) = (arrivals.clone(), policies(|_| {}));
        let load = Load { arrivals, limits, policies, concurrency: None, slo: Default::default() };
        let s = trial.ground.run(load)?.summary;
        table.row([
            budget.to_string(),
            format!("{:.0}", s.ttft_ms.p50),
            format!("{:.2}", s.itl_ms.p50),
            format!("{:.2}", s.itl_ms.p99),
            format!("{:.0}", s.total_token_throughput),
        ]);
        ttft.push((f64::from(budget), s.ttft_ms.p50));
        itl.push((f64::from(budget), s.itl_ms.p99));
    }
    let growth = itl.last().map_or(0.0, |l| l.1) / itl[0].1.max(1e-9);
    let fall = ttft[0].1 / ttft.iter().map(|t| t.1).fold(f64::INFINITY, f64::min).max(1e-9);
    let plot = Plot {
        title: "The token budget: first token against the ones that follow".to_string(),
        x: Axis::log("tokens a step"),
        y: Axis::log("ms"),
        series: vec![
            Series::new("TTFT p50", Style::Line, ttft),
            Series::new("ITL p99", Style::Line, itl),
        ],
        marks: Vec::new(),
    };
    Ok(Found {
        told: format!(
            "From the smallest budget to the largest, the 99th percentile of the wait between \
             tokens changes by a factor of {growth:.1}, while at the smallest the first token \
             takes {fall:.1} times as long as at the best."
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("itl_p99_growth", growth), ("ttft_p50_fall", fall)],
    })
}

/// Mean device time of steps, by what is in them.
#[derive(Default)]
struct Steps {
    decode: (u64, u64),
    prefill: (u64, u64),
    mixed: (u64, u64),
}

impl Steps {
    fn of(events: &[Stamped], piece: u32, streams: u32) -> Self {
        let (mut all, mut kind) = (Self::default(), (0, 0));
        for event in events {
            match event.event {
                Event::StepPlanned { decode, tokens, .. } => kind = (decode, tokens - decode),
                Event::StepRan { device_micros, .. } => {
                    let place = match kind {
                        (decode, 0) if decode == streams => &mut all.decode,
                        (0, prefill) if prefill == piece => &mut all.prefill,
                        (decode, prefill) if decode == streams && prefill == piece => {
                            &mut all.mixed
                        }
                        _ => continue,
                    };
                    place.0 += device_micros;
                    place.1 += 1;
                }
                _ => {}
            }
        }
        all
    }
}

/// In milliseconds; `None` of nothing.
fn mean(of: (u64, u64)) -> Option<f64> {
    (of.1 > 0).then(|| of.0 as f64 / of.1 as f64 / 1e3)
}

pub fn prefill_is_free(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let real = trial.ground.is_real();
    let streams = if real { 8 } else { 32 };
    let pieces: &[u32] = if real { &[16, 64, 128] } else { &[64, 128, 256, 512, 1024] };
    let mut table =
        Table::new(["piece", "decode, ms", "prefill, ms", "mixed, ms", "added, ms", "free"]);
    let (mut alone, mut added, mut best) = (Vec::new(), Vec::new(), 0.0f64);
    for &piece in pieces {
        let prompt = piece * 8;
        let output = 64;
        let streamers = (0..u64::from(streams)).map(|n| request(n, 0, 16, output));
        let arrivals: Vec<_> = streamers.chain([request(99, 1, prompt, 1)]).collect();
        let run = |prefill: Prefill, budget: u32| -> Result<Steps, ClaimError> {
            let mut limits = trial.ground.limits();
            limits.step_tokens_max = budget;
            let policies = policies(|p| {
                (p.prefill, p.prefix_cache) = (prefill, PrefixCache::Off);
            });
            let arrivals = arrivals.clone();
            let load =
                Load { arrivals, limits, policies, concurrency: None, slo: Default::default() };
            Ok(Steps::of(&trial.ground.run(load)?.events, piece, streams))
        };
        let mixed = run(Prefill::Chunked, streams + piece)?;
        let apart = run(Prefill::PrefillFirst, piece)?;
        let decode = mean((mixed.decode.0 + apart.decode.0, mixed.decode.1 + apart.decode.1));
        let (Some(decode), Some(prefill), Some(mixed)) =
            (decode, mean(apart.prefill), mean(mixed.mixed))
        else {
            continue;
        };
        // Steps that decode alone come later, with more to read: the difference can be below 0.
        let extra = (mixed - decode).max(0.0);
        let free = 1.0 - extra / prefill;
        best = best.max(free);
        table.row([
            piece.to_string(),
            format!("{decode:.2}"),
            format!("{prefill:.2}"),
            format!("{mixed:.2}"),
            format!("{extra:.2}"),
            percent(free),
        ]);
        alone.push((f64::from(piece), prefill));
        added.push((f64::from(piece), extra));
    }
    if alone.is_empty() {
        return Err(ClaimError::Empty("prefill-is-free"));
    }
    let plot = Plot {
        title: format!("A piece of a prompt, alone and beside {streams} that decode"),
        x: Axis::log("tokens of the piece"),
        y: Axis::linear("ms"),
        series: vec![
            Series::new("a step of its own", Style::Line, alone),
            Series::new("added to a decoding step", Style::Line, added),
        ],
        marks: Vec::new(),
    };
    Ok(Found {
        told: format!(
            "Beside {streams} sequences that decode, up to {} of the time of a piece of a prompt \
             is free: the step reads the weights anyway.",
            percent(best)
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("free_best", best)],
    })
}
