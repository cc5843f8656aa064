//! Rows of the literature's claims: what is counted or modelled holds, on the simulator; no time of
//! a device decides anything.

use crate::support::{On, Rows};
use tilewright::base::{Limits, MonotonicClock, Policies};
use tilewright::bench::{CLAIMS, Found, Ground, Load, Outcome, Trial, report};
use tilewright::engine::{LoadOptions, Sizes, fable, load};
use tilewright::sim::{Cost, Lengths, Workload};
use tilewright::trace::{Event, Slo, StepCost};

pub fn rows(rows: &mut Rows) {
    rows.add("claims::utilization", || {
        let found = simulated("utilization");
        within(&found, "static_eight", 0.2020..0.2022);
        within(&found, "continuous_64_copies", 0.90..1.000_1);
        within(&found, "static_lognormal_1", 0.99..1.01);
        within(&found, "static_lognormal_128", 0.0..0.25);
    });
    rows.add("claims::padding", || {
        let found = simulated("padding");
        within(&found, "continuous", 0.0..0.000_001);
        within(&found, "static_worst", 0.4..1.0);
    });
    rows.add("claims::stall", || {
        let found = simulated("stall");
        within(&found, "whole_over_usual", 12.0..14.0);
        within(&found, "target_over_usual", 1.0..1.2);
        within(&found, "target_p99_over_target", 0.5..1.1);
        within(&found, "target_p99_over_whole", 0.0..0.25);
    });
    rows.add("claims::budget", || {
        let found = simulated("budget");
        within(&found, "itl_p99_growth", 2.0..100.0);
        within(&found, "ttft_p50_fall", 2.0..1e6);
    });
    rows.add("claims::prefill_is_free", || {
        within(&simulated("prefill-is-free"), "free_best", 0.5..1.000_1);
    });
    rows.add("claims::prediction", || {
        let found = simulated("prediction");
        within(&found, "ttft_off", 0.0..0.15);
        within(&found, "throughput_off", 0.0..0.15);
        assert_eq!(found.told.matches(": within 15 %").count(), 2, "{}", found.told);
    });
    rows.add("claims::runs_keep_to_the_runner", keep_to_the_runner);
    rows.add("claims::fairness", || {
        let found = simulated("fairness");
        within(&found, "fcfs", 0.5..0.8);
        within(&found, "fair_tokens", 0.98..1.01);
    });
    rows.add("claims::starvation", || {
        let found = simulated("starvation");
        within(&found, "overtaken_fcfs", 0.0..0.5);
        let without = found.value("overtaken_without_aging").expect("counted");
        within(&found, "overtaken_with_aging", 1.0..without / 4.0);
    });
    rows.add("claims::knee", || {
        let found = simulated("knee");
        within(&found, "gain_1_to_32", 14.5..15.5);
        within(&found, "gain_64_to_111", 0.135..0.150);
        let knee = found.value("knee").expect("marked");
        within(&found, "knee_q8", 1.5 * knee..2.1 * knee);
        within(&found, "knee_f32", 0.45 * knee..0.55 * knee);
    });
    rows.add("claims::prefix", || {
        let found = simulated("prefix");
        within(&found, "saved", 0.8..1.0);
        within(&found, "ttft_p50_gain", 2.0..1e6);
    });
    rows.add("claims::orca", || within(&simulated("orca"), "gain", 2.0..100.0));
    rows.add("claims::report_page", page);
    swaps(rows);
}

fn swaps(rows: &mut Rows) {
    rows.add("claims::swap_or_recompute", || {
        let found = simulated("swap-or-recompute");
        within(&found, "auto_over_best", 0.95..10.0);
        within(&found, "swap_over_recompute", 1.0..10.0);
        assert_eq!(found.value("crossover_tokens"), None, "{}", found.told);
        // Over half the link, the square of the length decides before the longest of them.
        within(&found, "crossover_at_25_gb_s", 1000.0..6145.0);
        assert_eq!(found.value("crossover_at_50_gb_s"), None, "{:?}", found.values);
        assert_eq!(found.value("crossover_at_12_gb_s"), None, "{:?}", found.values);
    });
    rows.add("claims::crossover", || {
        // Of n tokens: 20 µs each and 10 ns for each of their squares, or 30 µs each to be moved
        // there and back: the same at 1000.
        let cost = StepCost { fixed: 2_000_000_000, token: 20_000_000, pair: 20_000 };
        let Ground::Sim { limits, .. } = Ground::h100() else { panic!() };
        let (cost, block_picos) = (Cost::Fitted(cost), 240_000_000);
        let ground = Ground::Sim { name: "made up", cost, block_picos, limits };
        let found = claim("swap-or-recompute", &ground);
        within(&found, "crossover_tokens", 950.0..2500.0);
        let told = "on moving costs less, below that computing again.";
        assert!(found.told.contains(told), "{}", found.told);
    });
    rows.add("claims::nobody_was_preempted", || {
        let Ground::Sim { name, cost, block_picos, limits } = Ground::h100() else { panic!() };
        let limits = Limits { sequences_max: 1, ..limits };
        let found = claim("swap-or-recompute", &Ground::Sim { name, cost, block_picos, limits });
        assert!(found.told.starts_with("Nobody was preempted"), "{}", found.told);
        assert_eq!(found.values, []);
    });
}

fn simulated(name: &str) -> Found {
    let found = claim(name, &Ground::h100());
    assert!(!found.plots.is_empty());
    found
}

fn claim(name: &str, ground: &Ground) -> Found {
    let claim = CLAIMS.iter().find(|claim| claim.name == name).expect("a claim");
    let found = (claim.run)(&Trial { ground, quick: true, arrivals: None });
    let found = found.unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(!found.told.is_empty() && !found.tables.is_empty());
    found
}

/// A claim may ask for any limits: more than the runner was made for it does not get.
fn keep_to_the_runner() {
    let weights = fable().expect("the built-in model");
    let wanted = LoadOptions {
        context: Some(256),
        sequences: Some(2),
        step_tokens: Some(32),
        kv_memory: Some(32 << 20),
        ..LoadOptions::default()
    };
    let (device, clock) = (On::Cpu.device(), MonotonicClock::default());
    let sizes = Sizes::choose(&weights, device.facts(), &wanted).expect("sizes");
    let loaded = load(&weights, device, &sizes, &wanted, &clock, &mut |_, _| {}).expect("a model");
    let ground = Ground::real(loaded);
    let lengths = |mean| Lengths { mean, cv: 0.0, max: 64 };
    let workload = Workload {
        requests: 3,
        rate: f64::INFINITY,
        prompt: lengths(33.0),
        output: lengths(2.0),
        ..Workload::default()
    };
    let arrivals = workload.generator().expect("a workload").collect();
    let most = Limits {
        sequences_max: 99,
        step_tokens_max: 4096,
        context_max: 1 << 20,
        blocks: 1 << 20,
        ..ground.limits()
    };
    let policies = Policies::default();
    let load = Load { arrivals, limits: most, policies, concurrency: None, slo: Slo::default() };
    let seen = ground.run(load).expect("a run");
    assert_eq!(seen.summary.counts.finished, 3);
    let told = seen.events.iter().find_map(|e| match e.event {
        Event::LimitsChanged { limits, .. } => Some(limits),
        _ => None,
    });
    assert_eq!(told, Some(ground.limits()));
}

#[track_caller]
fn within(found: &Found, name: &str, range: std::ops::Range<f64>) {
    let value = found.value(name).unwrap_or_else(|| panic!("no {name}: {:?}", found.values));
    assert!(range.contains(&value), "{name} is {value}, not in {range:?}: {}", found.told);
}

/// One document without anything from elsewhere, every claim in it.
fn page() {
    let ground = Ground::h100();
    let quick = ["utilization", "knee", "fairness"];
    let outcomes: Vec<_> = CLAIMS
        .iter()
        .filter(|claim| quick.contains(&claim.name))
        .map(|claim| {
            let found = simulated(claim.name);
            Outcome { claim, ground: ground.name(), seconds: 1.0, found }
        })
        .collect();
    let page = report(&outcomes, "a line < about & it");
    assert!(page.contains("a line &lt; about &amp; it"));
    for outcome in &outcomes {
        assert!(page.contains(&format!("<h2>{}</h2>", outcome.claim.title)));
        assert!(page.contains(&outcome.found.told));
    }
    let plots: usize = outcomes.iter().map(|o| o.found.plots.len()).sum();
    assert_eq!(page.matches("<svg ").count(), plots);
    assert_eq!(page.matches("<svg ").count(), page.matches("</svg>").count());
    let links: Vec<_> = page.match_indices("http").map(|(at, _)| &page[at..at + 26]).collect();
    assert!(links.iter().all(|link| link.starts_with("http://www.w3.org/2000/svg")), "{links:?}");
    for wrong in ["NaN", "inf ", "inf\"", "<script"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
}
