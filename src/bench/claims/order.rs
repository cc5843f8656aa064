//! Who is served next: shares of tenants, and the wait of long requests.

use super::{lengths, policies};
use crate::base::{FairUnit, Order, Policies};
use crate::bench::claim::{ClaimError, Found, Trial};
use crate::bench::ground::{Load, Seen};
use crate::bench::plot::{Axis, Plot, Series, Style};
use crate::bench::table::Table;
use crate::sim::{Arrival, Prompt, Workload};
use crate::trace::{Event, Stamped, jain};
use std::collections::BTreeMap;

fn run(trial: &Trial<'_>, arrivals: Vec<Arrival>, policies: Policies) -> Result<Seen, ClaimError> {
    let mut limits = trial.ground.limits();
    limits.sequences_max = 8;
    trial.ground.run(Load {
        arrivals,
        limits,
        policies,
        concurrency: None,
        slo: Default::default(),
    })
}

/// Tokens of each tenant, the busier first, until one of them has nothing more in the queue; and
/// the mean time to the first token of each, in milliseconds.
fn shares(events: &[Stamped]) -> ([u64; 2], [f64; 2]) {
    let mut of: BTreeMap<_, (u32, u64)> = BTreeMap::new();
    let (mut waiting, mut asked) = (BTreeMap::<u32, i64>::new(), BTreeMap::<u32, u64>::new());
    let (mut served, mut first) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, (u64, u64)>::new());
    let (mut both, mut over) = (false, false);
    for event in events {
        match event.event {
            Event::RequestArrived { sequence, tenant, .. } => {
                of.insert(sequence, (tenant, event.micros));
                *waiting.entry(tenant).or_default() += 1;
                *asked.entry(tenant).or_default() += 1;
            }
            Event::SequenceAdmitted { sequence, .. } => {
                let tenant = of.get(&sequence).map_or(0, |o| o.0);
                *waiting.entry(tenant).or_default() -= 1;
                both |= waiting.len() > 1;
                over |= both && waiting.values().any(|&n| n <= 0);
            }
            Event::TokenSampled { sequence, .. } => {
                let Some((tenant, arrived)) = of.get_mut(&sequence) else { continue };
                if !over {
                    *served.entry(*tenant).or_default() += 1;
                }
                if *arrived < u64::MAX {
                    let sum = first.entry(*tenant).or_default();
                    *sum = (sum.0 + event.micros - *arrived, sum.1 + 1);
                    *arrived = u64::MAX;
                }
            }
            _ => {}
        }
    }
    let mut tenants: Vec<u32> = asked.keys().copied().collect();
    tenants.sort_by_key(|t| std::cmp::Reverse(asked[t]));
    let at = |n: usize| tenants.get(n).copied().unwrap_or(0);
    let mean = |t: u32| first.get(&t).map_or(0.0, |s| s.0 as f64 / s.1.max(1) as f64 / 1e3);
    let tokens = [0, 1].map(|n| served.get(&at(n)).copied().unwrap_or(0));
    (tokens, [0, 1].map(|n| mean(at(n))))
}

pub fn fairness(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let workload = Workload {
        requests: u64::from(trial.size(400, 80)),
        rate: f64::INFINITY,
        prompt: lengths(32.0, 0.5, 128),
        output: lengths(24.0, 0.5, 96),
        seed: 4,
        ..Workload::default()
    };
    let mut arrivals: Vec<_> = workload.generator()?.collect();
    // Four of five are the first tenant's.
    (1..).zip(&mut arrivals).for_each(|(n, a)| a.tenant = 1 + u32::from(n % 5 == 0));
    let ways = [
        ("fcfs", Order::Fcfs),
        ("fair:requests", Order::Fair { unit: FairUnit::Requests }),
        ("fair:tokens", Order::Fair { unit: FairUnit::Tokens }),
        ("fair:time", Order::Fair { unit: FairUnit::Time }),
    ];
    let mut table = Table::new([
        "order",
        "busy: tokens",
        "quiet: tokens",
        "fairness",
        "busy: TTFT, ms",
        "quiet: TTFT, ms",
    ]);
    let (mut busy, mut quiet, mut index) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (name, order)) in (0..).zip(ways) {
        let seen = run(trial, arrivals.clone(), policies(|p| p.order = order))?;
        let (tokens, first) = shares(&seen.events);
        let fair = jain(tokens.into_iter());
        table.row([
            name.to_string(),
            tokens[0].to_string(),
            tokens[1].to_string(),
            format!("{fair:.3}"),
            format!("{:.0}", first[0]),
            format!("{:.0}", first[1]),
        ]);
        let all = (tokens[0] + tokens[1]).max(1) as f64;
        busy.push((f64::from(at), 100.0 * tokens[0] as f64 / all));
        quiet.push((f64::from(at), 100.0 * tokens[1] as f64 / all));
        index.push(fair);
    }
    let plot = Plot {
        title: "Tokens of two tenants while both wait, one with four times the requests".into(),
        x: Axis::named("queue order", ways.map(|w| w.0)),
        y: Axis::linear("share of the tokens, %"),
        series: vec![
            Series::new("busy tenant", Style::Bars, busy),
            Series::new("quiet tenant", Style::Bars, quiet),
        ],
        marks: Vec::new(),
    };
    Ok(Found {
        told: format!(
            "While both tenants wait, first come, first served has a fairness index of {:.3}, \
             counting tokens {:.3} (1 is even).",
            index[0], index[2]
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![("fcfs", index[0]), ("fair_tokens", index[2])],
    })
}

pub fn starvation(trial: &Trial<'_>) -> Result<Found, ClaimError> {
    let real = trial.ground.is_real();
    let many = trial.size(3000, 160);
    // More short ones than can be served, from start to end, and a few long ones early on.
    let workload = Workload {
        requests: u64::from(many),
        rate: if real { 60.0 } else { 130.0 },
        prompt: lengths(24.0, 0.3, 64),
        output: lengths(16.0, 0.3, 32),
        seed: 6,
        ..Workload::default()
    };
    let long_prompt = if real { 600 } else { 3000 };
    let mut arrivals: Vec<_> = workload.generator()?.collect();
    for n in 0..4usize {
        let at = arrivals[n * 2 + 4].micros;
        let long = Arrival {
            micros: at,
            prompt: Prompt::unique(1 << 40 | n as u64, long_prompt),
            output: 64,
            output_max: 64,
            ..arrivals[0].clone()
        };
        arrivals.insert(n * 2 + 5, long);
    }
    let aging = if real { 1 << 10 } else { 1 << 13 };
    let ways: [(String, Order, Option<u64>); 3] = [
        ("fcfs".into(), Order::Fcfs, None),
        ("shortest, aging off".into(), Order::Shortest, None),
        (format!("shortest, aging {aging}"), Order::Shortest, Some(aging)),
    ];
    let mut table =
        Table::new(["order", "long: longest wait, ms", "short: mean wait, ms", "overtaken by"]);
    let (mut bars, mut means, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (name, order, aging)) in (0..).zip(ways.clone()) {
        let change = |p: &mut Policies| (p.order, p.aging) = (order, aging);
        let seen = run(trial, arrivals.clone(), policies(change))?;
        let (longest, short, overtaken) = waiting(&seen.events, long_prompt);
        table.row([name, format!("{longest:.0}"), format!("{short:.0}"), overtaken.to_string()]);
        bars.push((f64::from(at), longest));
        means.push((f64::from(at), short));
        waits.push(overtaken as f64);
    }
    let plot = Plot {
        title: "Waiting in the queue while short requests keep coming".to_string(),
        x: Axis::named("queue order", ways.map(|w| w.0)),
        y: Axis::linear("ms"),
        series: vec![
            Series::new("longest wait of a long request", Style::Bars, bars),
            Series::new("mean wait of a short one", Style::Bars, means),
        ],
        marks: Vec::new(),
    };
    Ok(Found {
        told: format!(
            "Shortest first without aging lets up to {:.0} later requests overtake a long one; \
             with aging {:.0}, first come, first served {:.0}.",
            waits[1], waits[2], waits[0]
        ),
        tables: vec![table],
        plots: vec![plot],
        values: vec![
            ("overtaken_fcfs", waits[0]),
            ("overtaken_without_aging", waits[1]),
            ("overtaken_with_aging", waits[2]),
        ],
    })
}

/// The longest wait of a long request and the mean of a short one, in milliseconds; and the most
/// requests that came after a long one and were let in before it.
fn waiting(events: &[Stamped], long: u32) -> (f64, f64, u64) {
    let mut arrived = BTreeMap::new();
    let (mut longest, mut short, mut overtaken) = (0u64, (0u64, 0u64), 0);
    let mut passed: BTreeMap<_, u64> = BTreeMap::new();
    for event in events {
        match event.event {
            Event::RequestArrived { sequence, prompt, .. } => {
                arrived.insert(sequence, (event.micros, prompt));
                if prompt == long {
                    passed.insert(sequence, 0);
                }
            }
            Event::SequenceAdmitted { sequence, .. } => {
                let Some((at, prompt)) = arrived.remove(&sequence) else { continue };
                let wait = event.micros - at;
                if prompt == long {
                    longest = longest.max(wait);
                    overtaken = overtaken.max(passed.remove(&sequence).unwrap_or(0));
                    continue;
                }
                short = (short.0 + wait, short.1 + 1);
                // Ids count up in the order of arrival.
                passed.range_mut(..sequence).for_each(|(_, n)| *n += 1);
            }
            _ => {}
        }
    }
    (longest as f64 / 1e3, short.0 as f64 / short.1.max(1) as f64 / 1e3, overtaken)
}
