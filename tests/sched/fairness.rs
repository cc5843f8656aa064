//! Who waits for how long: bounds that hold whatever arrives.

use super::run::Run;
use super::steps::limits;
use super::world::Dice;
use crate::support::Rows;
use std::collections::BTreeMap;
use tilewright::base::{
    Admission, Batching, CLASS_MAX, FairUnit, Limits, Order, Policies, Preemption, Prefill,
    SequenceId, Victim,
};
use tilewright::sched::WorkCosts;
use tilewright::trace::Event;

pub fn rows(rows: &mut Rows) {
    rows.add("sched::orders_by_policy", orders_by_policy);
    rows.add("sched::overtaking_is_bounded_by_aging", overtaking_is_bounded_by_aging);
    rows.add("sched::without_aging_some_starve", || {
        for order in [Order::Shortest, Order::Priority] {
            let policies = Policies { order, aging: None, ..Policies::default() };
            let wait = besieged(policies, 7_000, 0);
            assert!(wait > 50_000, "{order}: {wait}");
        }
    });
    for order in ["fcfs", "shortest", "priority", "fair:requests", "fair:tokens", "fair:time"] {
        rows.add(format!("sched::nobody_starves_{order}"), move || {
            nobody_starves(order.parse().expect("an order"));
        });
    }
    rows.add("sched::preemptions_are_bounded_in_any_order", preemptions_are_bounded_in_any_order);
    rows.add("sched::fair_tenants_stay_within_the_bound", fair_tenants_stay_within_the_bound);
    rows.add("sched::fair_weights_and_idle_tenants", fair_weights_and_idle_tenants);
    rows.add("sched::fair_by_time_counts_device_time", fair_by_time_counts_device_time);
}

fn admitted(events: &[Event]) -> Vec<u32> {
    let ids = events.iter().filter_map(|e| match e {
        Event::SequenceAdmitted { sequence, .. } => Some(sequence.0),
        _ => None,
    });
    ids.collect()
}

/// The order in which five requests are let in, one at a time.
fn sequence_of(order: Order) -> Vec<u32> {
    let mut run = Run::new(limits(64, 64, 1), Policies { order, ..Policies::default() });
    for (prompt, new, class, tenant) in
        [(30, 9, 3, 0), (20, 9, 3, 0), (10, 2, 0, 0), (40, 1, 2, 1), (10, 3, 0, 1)]
    {
        run.submit(prompt, new, |n| (n.class, n.tenant) = (class, tenant)).expect("fits");
    }
    let (mut events, mut all) = (Vec::new(), Vec::new());
    while run.step(&mut events) {
        all.extend(admitted(&events));
    }
    all
}

fn orders_by_policy() {
    assert_eq!(sequence_of(Order::Fcfs), [0, 1, 2, 3, 4]);
    assert_eq!(sequence_of(Order::Shortest), [2, 4, 1, 0, 3]);
    assert_eq!(sequence_of(Order::Priority), [2, 4, 3, 0, 1]);
    let fair = |unit| sequence_of(Order::Fair { unit });
    assert_eq!(fair(FairUnit::Requests), [0, 3, 1, 4, 2]);
    // 30 + 2·9 = 48 against 40 + 2·1 = 42: tenant 1 goes on.
    assert_eq!(fair(FairUnit::Tokens), [0, 3, 4, 1, 2]);
}

/// Random traffic; every admission is compared with those it leaves waiting.
fn overtakes(order: Order, aging: Option<u64>, seed: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let policies = Policies { order, aging, bypass_max: 0, ..Policies::default() };
    let limits = Limits { queue_max: 30, context_max: 128, ..limits(30, 64, 4) };
    let mut run = Run::new(limits, policies);
    let (mut events, mut processed, mut worst) = (Vec::new(), 0, 0);
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    for _ in 0..3000 {
        while dice.chance(60) {
            let (prompt, new) = (dice.between(1, 60), dice.between(1, 60));
            let class = dice.below(8) as u8;
            if let Some(id) = run.submit(prompt, new, |n| n.class = class) {
                waiting.insert(id, processed);
            }
        }
        run.step(&mut events);
        for event in &events {
            match event {
                Event::SequenceAdmitted { sequence, .. } => {
                    let Some(arrived) = waiting.remove(&sequence.0) else { continue };
                    let first = waiting.values().min().copied().unwrap_or(arrived);
                    worst = worst.max(arrived.saturating_sub(first));
                }
                Event::StepPlanned { tokens, .. } => processed += u64::from(*tokens),
                _ => {}
            }
        }
    }
    worst
}

fn overtaking_is_bounded_by_aging() {
    for order in [Order::Shortest, Order::Priority] {
        for aging in [0, 100, 2000] {
            let worst = overtakes(order, Some(aging), aging + 1);
            assert!(worst <= aging, "{order}: by one that came {worst} tokens later");
            assert!(aging != 2000 || worst > 200, "{order}: {worst}, never put to the test");
        }
        assert!(overtakes(order, None, 5) > 10_000, "without aging there is no bound");
    }
    assert_eq!(overtakes(Order::Fcfs, None, 6), 0);
}

/// Steps that each order is besieged for. All orders together, so is every other policy.
const SIEGE: u32 = 1_000_000;

/// The values of all other policies.
fn ways(order: Order) -> Vec<Policies> {
    let (size, timeout_ms) = (4, 5);
    let batching = [
        (Batching::Continuous, Prefill::Chunked),
        (Batching::Continuous, Prefill::PrefillFirst),
        (Batching::Continuous, Prefill::DecodeFirst),
        (Batching::Static { size }, Prefill::Chunked),
        (Batching::Dynamic { size, timeout_ms }, Prefill::Chunked),
    ];
    let admission = [
        Admission::Optimistic,
        Admission::Conservative,
        Admission::ExactPeak,
        Admission::Quantile { percent: 90 },
    ];
    let victim = [Victim::Youngest, Victim::LeastLost, Victim::MostBlocks];
    let preemption = [Preemption::Recompute, Preemption::Swap, Preemption::Auto];
    let way = |n: usize| {
        let (batching, prefill) = batching[n / 4];
        Policies {
            batching,
            prefill,
            admission: admission[n % 4],
            victim: victim[n % 3],
            preemption: preemption[n / 3 % 3],
            order,
            aging: Some(AGING),
            ..Policies::default()
        }
    };
    (0..20).map(way).collect()
}

const AGING: u64 = 5_000;

fn nobody_starves(order: Order) {
    // Aging, then everybody who may be ahead at that moment, at their longest; a tenant's own
    // requests, four of them, take turns.
    let turns = if matches!(order, Order::Fair { .. }) { 4 } else { 1 };
    let bound = turns * (AGING + (30 + 4) * (60 + 40) * 3);
    let ways = ways(order);
    let steps = SIEGE / ways.len() as u32;
    for (policies, seed) in ways.into_iter().zip(0..) {
        let wait = besieged(policies, steps, seed);
        assert!(wait < bound, "{policies:?}: {wait} tokens were processed meanwhile");
    }
}

/// An adversary keeps the queue full of short, first-class requests of ever new tenants, while
/// long ones of the last class arrive now and then. The longest time, in tokens processed, from
/// the arrival of one of those to its end.
fn besieged(policies: Policies, steps: u32, seed: u32) -> u64 {
    let limits = Limits { queue_max: 30, context_max: 128, host_blocks: 10, ..limits(20, 16, 4) };
    let mut dice = Dice::new(11 + u64::from(seed));
    let mut run = Run::new(limits, policies);
    run.sched.set_costs(WorkCosts { token_picos: 1000, pair_picos: 0, block_picos: 8000 });
    let (mut events, mut processed, mut worst) = (Vec::new(), 0u64, 0);
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    for step in 0..steps {
        if step % 64 == 0 && waiting.len() < 4 {
            let id = run.submit(60, 40, |n| (n.class, n.tenant) = (CLASS_MAX, 0));
            waiting.insert(id.expect("room"), processed);
        }
        for _ in 0..3 {
            // One place is left, so that the long ones do get into the queue.
            if run.sched.waiting() + 1 >= limits.queue_max {
                break;
            }
            let (prompt, new) = (dice.between(1, 20), dice.between(1, 4));
            run.submit(prompt, new, |n| n.tenant = seed + step % 1000);
        }
        run.step(&mut events);
        if step % 256 == 0 {
            run.sched.check().expect("sound");
        }
        for event in &events {
            match event {
                Event::StepPlanned { tokens, .. } => processed += u64::from(*tokens),
                Event::SequenceFinished { sequence, .. } => {
                    if let Some(arrived) = waiting.remove(&sequence.0) {
                        worst = worst.max(processed - arrived);
                    }
                }
                _ => {}
            }
        }
    }
    worst.max(waiting.values().map(|arrived| processed - arrived).max().unwrap_or(0))
}

/// The queue's order lets juniors in before seniors that were preempted; when those return and
/// grow, nobody is preempted a fourth time.
fn preemptions_are_bounded_in_any_order() {
    let mut preempted = 0;
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let order = [Order::Shortest, Order::Priority, Order::Fair { unit: FairUnit::Tokens }];
        let policies = Policies {
            order: order[seed as usize % 3],
            victim: [Victim::LeastLost, Victim::MostBlocks, Victim::Youngest]
                [dice.below(3) as usize],
            aging: None,
            ..Policies::default()
        };
        let small = Limits { watermark_permille: 0, block_size: 4, ..limits(32, 256, 8) };
        let mut run = Run::new(small, policies);
        let mut events = Vec::new();
        for _ in 0..400 {
            let (prompt, new) = (dice.between(1, 20), dice.between(1, 100));
            let (class, tenant) = (dice.below(8) as u8, dice.below(3));
            let predicted = Some(dice.between(1, 100));
            run.submit(prompt, new, |n| {
                (n.class, n.tenant, n.predicted) = (class, tenant, predicted);
            });
            (0..3).for_each(|_| {
                run.step(&mut events);
                for event in &events {
                    if let Event::SequencePreempted { victim, times, .. } = event {
                        preempted += 1;
                        assert!(*times <= 3, "seed {seed}: {victim}, {times} times");
                    }
                }
            });
        }
    }
    assert!(preempted > 10_000, "{preempted} preemptions");
}

/// Two tenants that always have something waiting: their service differs by at most
/// 2 · max(longest prompt, 2 · tokens that fit the pool).
fn fair_tenants_stay_within_the_bound() {
    let mut unfair = 0;
    for seed in 0..40 {
        let fair = Order::Fair { unit: FairUnit::Tokens };
        let (apart, bound) = service_apart(fair, seed);
        assert!(apart <= bound, "seed {seed}: {apart} apart, bound {bound}");
        let (apart, bound) = service_apart(Order::Fcfs, seed);
        unfair += u32::from(apart > bound);
    }
    assert!(unfair > 10, "without counters the bound breaks, {unfair} of 40");
}

/// The largest difference in service of two hungry tenants, and the bound.
fn service_apart(order: Order, seed: u64) -> (u64, u64) {
    let mut dice = Dice::new(seed);
    let blocks = dice.between(12, 40);
    let limits = limits(blocks, dice.between(8, 200), dice.between(1, 12));
    let policies = Policies { order, aging: None, ..Policies::default() };
    let mut run = Run::new(limits, policies);
    let mut sizes = [(0, 0); 2];
    sizes.fill_with(|| (dice.between(1, 90), dice.between(1, 100)));
    let (mut events, mut service, mut worst) = (Vec::new(), [0u64; 2], 0);
    let (mut backlog, mut tenants) = ([0; 2], Vec::new());
    for _ in 0..3000 {
        for tenant in [0, 1] {
            for _ in backlog[tenant]..30 {
                let (prompt, new) = sizes[tenant];
                run.submit(prompt, new, |n| n.tenant = tenant as u32).expect("room");
                tenants.push((tenant, false));
                backlog[tenant] += 1;
            }
        }
        run.step(&mut events);
        for event in &events {
            match event {
                Event::SequenceAdmitted { sequence, .. } => {
                    let (tenant, charged) = &mut tenants[sequence.index()];
                    if !std::mem::replace(charged, true) {
                        service[*tenant] += u64::from(sizes[*tenant].0);
                    }
                }
                Event::TokenSampled { sequence, .. } => service[tenants[sequence.index()].0] += 2,
                Event::SequenceFinished { sequence, .. } => {
                    backlog[tenants[sequence.index()].0] -= 1;
                }
                _ => {}
            }
        }
        worst = worst.max(service[0].abs_diff(service[1]));
    }
    let longest = u64::from(sizes[0].0.max(sizes[1].0));
    (worst, 2 * longest.max(2 * limits.pool_tokens()))
}

/// Service of each of three tenants after `steps`, all equally hungry from step `since`.
fn shares(weights: [u32; 3], since: [u32; 3], steps: u32) -> [u64; 3] {
    let order = Order::Fair { unit: FairUnit::Tokens };
    let mut run = Run::new(limits(64, 64, 4), Policies { order, ..Policies::default() });
    let (mut events, mut made, mut tenants) = (Vec::new(), [0; 3], BTreeMap::new());
    for (tenant, weight) in (0..).zip(weights) {
        run.sched.set_weight(tenant, weight);
    }
    for step in 0..steps {
        for (tenant, &since) in since.iter().enumerate() {
            let backlog = tenants.values().filter(|&&t| t == tenant).count();
            for _ in backlog..if step >= since { 12 } else { 0 } {
                let id = run.submit(10, 20, |n| n.tenant = tenant as u32).expect("room");
                tenants.insert(id, tenant);
            }
        }
        run.step(&mut events);
        for event in &events {
            match event {
                Event::TokenSampled { sequence, .. } => made[tenants[&sequence.0]] += 1,
                Event::SequenceFinished { sequence, .. } => drop(tenants.remove(&sequence.0)),
                _ => {}
            }
        }
    }
    made
}

fn fair_weights_and_idle_tenants() {
    let [a, b, c] = shares([1, 2, 4], [0; 3], 6000);
    let near = |part: u64, whole: u64| (part * 100).abs_diff(whole * 100) <= whole * 8;
    assert!(near(b, 2 * a) && near(c, 4 * a), "{a} {b} {c}");
    // One that was idle has saved nothing up: from then on all get the same.
    let [a, b, c] = shares([1; 3], [0, 0, 4000], 6000);
    assert!(near(a, b), "{a} {b} {c}");
    assert!(c < a / 4 && c > a / 8, "{a} {b} {c}");
}

/// A tenant whose tokens take four times as long gets a quarter of them.
fn fair_by_time_counts_device_time() {
    let order = Order::Fair { unit: FairUnit::Time };
    let mut run = Run::new(limits(64, 64, 1), Policies { order, ..Policies::default() });
    let (mut events, mut made) = (Vec::new(), [0u64; 2]);
    let mut tenants = Vec::new();
    for _ in 0..200 {
        for tenant in 0..2 {
            run.submit(10, 20, |n| n.tenant = tenant).expect("room");
            tenants.push(tenant);
        }
    }
    for _ in 0..2000 {
        run.step(&mut events);
        for event in &events {
            if let Event::TokenSampled { sequence, .. } = event {
                let tenant = tenants[sequence.index()] as usize;
                made[tenant] += 1;
                let (rows, micros) = (run.plan.clone(), [100, 400][tenant]);
                run.sched.charge_time(&rows, micros);
            }
        }
    }
    assert!(made[0] > 3 * made[1] && made[0] < 5 * made[1], "{made:?}");
    assert!(run.sched.served(0).is_some() && run.sched.served(9).is_none());
    assert!(run.sched.tokens(SequenceId(0)).is_empty());
}
