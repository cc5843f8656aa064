//! Rows of `sim`: workloads, traces, costs, and the engine over a runner that computes nothing.

use crate::support::{Rows, shared};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tilewright::base::{
    Admission, Batching, FairUnit, Limits, Order, Policies, Preemption, Prefill, PrefixCache,
    threefry2x32,
};
use tilewright::sim::{
    Arrival, Cost, Lengths, Prompt, Ran, Recorded, Roofline, Setup, Terms, Workload, at_rate,
    azure_csv, mooncake_jsonl, share_gpt, simulate, what_if,
};
use tilewright::trace::{
    Attribution, Event, Histogram, Measures, Sink, Slo, Stamped, StepCost, Summary, Waits,
    write_line,
};

pub fn rows(rows: &mut Rows) {
    rows.add("sim::histogram_quantiles", histogram);
    rows.add("sim::a_seed_is_a_workload", seeds);
    rows.add("sim::lengths_and_gaps_have_the_mean_and_spread_asked_for", moments);
    rows.add("sim::workload_errors_name_the_field", wrong_workloads);
    rows.add("sim::a_rate_is_had_by_any_arrivals", rates);
    rows.add("sim::prompts_share_what_their_pieces_share", pieces);
    rows.add("sim::azure_lines", azure);
    rows.add("sim::mooncake_lines", mooncake);
    rows.add("sim::share_gpt_entries", sharegpt);
    rows.add("sim::a_seed_is_a_trace_to_the_byte", seed_is_a_trace);
    rows.add("sim::every_policy_serves_all", every_policy);
    rows.add("sim::concurrency_is_a_bound", concurrency);
    rows.add("sim::too_long_requests_are_counted", too_long);
    rows.add("sim::roofline_of_an_h100", roofline);
    rows.add("sim::a_recording_is_a_workload", recorded);
    rows.add("sim::recorded_swaps_and_pauses_are_no_step_time", swaps_and_pauses);
    rows.add("sim::blocks_of_unknown_cost_stay", unknown_block_cost);
    rows.add("sim::what_if", what_if_other);
    rows.add_if(shared("traces"), "sim::real_traces_read", |path| {
        let text = |name: &str| {
            let gz = std::fs::File::open(path.join(name)).expect("the trace");
            let output = std::process::Command::new("gzip")
                .arg("-dc")
                .stdin(gz)
                .output()
                .expect("gzip runs");
            String::from_utf8(output.stdout).expect("text")
        };
        let conv = azure_csv(&text("azure-llm-2023-conv.csv.gz")).expect("Azure's");
        assert_eq!((conv.len(), conv[0].prompt.tokens(), conv[0].output), (19366, 374, 44));
        // The first two lines lie 4.314579 s apart.
        assert_eq!(conv[1].micros, 4_314_579);
        let chat = mooncake_jsonl(&text("mooncake-conversation.jsonl.gz")).expect("Mooncake's");
        assert_eq!((chat.len(), chat[0].prompt.tokens(), chat[0].output), (12031, 6758, 500));
        // All begin with the same block of 512.
        assert_eq!(chat[0].prompt.ids(0, 1000)[..512], chat[1].prompt.ids(0, 1000)[..512]);
    });
}

/// Against the sorted values.
fn histogram() {
    let mut values: Vec<u64> = (0..10_000u32)
        .map(|n| {
            let [a, b] = threefry2x32([5, 0], [n, 0]);
            (u64::from(a) << 32 | u64::from(b)) >> (b % 64)
        })
        .collect();
    values.extend([0, 1, 127, 128, 129, u64::MAX]);
    let mut histogram = Histogram::default();
    values.iter().for_each(|&v| histogram.record(v));
    values.sort_unstable();
    assert_eq!((histogram.count(), histogram.max()), (values.len() as u64, u64::MAX));
    for permille in [0, 1, 10, 100, 500, 900, 990, 999, 1000] {
        let rank = (values.len() * permille as usize).div_ceil(1000).max(1);
        let (exact, found) = (values[rank - 1], histogram.quantile(permille).expect("values"));
        assert!(found >= exact && found - exact <= exact / 64, "{permille}: {found} for {exact}");
    }
    assert_eq!(Histogram::default().quantile(500), None);
}

fn some() -> Workload {
    let prompt = Lengths { mean: 200.0, cv: 0.8, max: 100_000 };
    Workload { requests: 20_000, rate: 4.0, prompt, tenants: 3, seed: 7, ..Workload::default() }
}

fn all(workload: &Workload) -> Vec<Arrival> {
    workload.generator().expect("a workload").collect()
}

fn seeds() {
    let first = all(&some());
    assert_eq!(first, all(&some()));
    assert_ne!(first, all(&Workload { seed: 8, ..some() }));
    assert!(first.windows(2).all(|w| w[0].micros <= w[1].micros));
    // The first of a longer workload are those of a shorter.
    assert_eq!(all(&Workload { requests: 10, ..some() }), first[..10]);
}

fn moments() {
    let spread = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, variance.sqrt() / mean)
    };
    for burstiness in [0.0, 0.5, 1.0, 3.0] {
        let arrivals = all(&Workload { burstiness, ..some() });
        let gaps: Vec<f64> =
            arrivals.windows(2).map(|w| (w[1].micros - w[0].micros) as f64 / 1e6).collect();
        let (mean, cv) = spread(&gaps);
        assert!((mean - 0.25).abs() < 0.02, "{burstiness}: {mean}");
        assert!((cv - burstiness).abs() < 0.05 * burstiness.max(0.2), "{burstiness}: {cv}");
    }
    let arrivals = all(&some());
    let lengths: Vec<f64> = arrivals.iter().map(|a| f64::from(a.prompt.tokens())).collect();
    let (mean, cv) = spread(&lengths);
    assert!((mean - 200.0).abs() < 4.0 && (cv - 0.8).abs() < 0.05, "{mean} {cv}");
    for tenant in 0..3 {
        let share = arrivals.iter().filter(|a| a.tenant == tenant).count();
        assert!((6300..7034).contains(&share), "{tenant}: {share}");
    }
}

fn wrong_workloads() {
    let told = |workload: Workload| workload.generator().expect_err("wrong").to_string();
    let with = |mean: f64| Lengths { mean, ..some().prompt };
    assert_eq!(told(Workload { rate: 0.0, ..some() }), "rate: 0 is not a number above 0");
    assert!(told(Workload { rate: f64::NAN, ..some() }).starts_with("rate: NaN"));
    assert!(told(Workload { burstiness: -1.0, ..some() }).starts_with("burstiness: -1"));
    assert!(told(Workload { prompt: with(0.0), ..some() }).starts_with("prompt.mean: 0"));
    assert!(told(Workload { tenants: 0, ..some() }).starts_with("tenants: 0"));
}

/// What has a pattern keeps it; what comes all at once gets one.
fn rates() {
    let gaps = |arrivals: &[Arrival]| -> Vec<u64> {
        arrivals.windows(2).map(|w| w[1].micros - w[0].micros).collect()
    };
    let rate = |rate: f64| Workload { rate, ..some() };
    let mut own: Vec<_> = all(&some())[..4].to_vec();
    (0..).zip(&mut own).for_each(|(n, a)| a.micros = [0, 100, 1000, 2000][n]);
    at_rate(&mut own, &rate(1000.0)).expect("a rate");
    assert_eq!(gaps(&own), [200, 1800, 2000]);
    at_rate(&mut own, &rate(f64::INFINITY)).expect("a rate");
    assert_eq!(gaps(&own), [0, 0, 0]);
    let mut at_once = all(&Workload { rate: f64::INFINITY, ..some() });
    at_rate(&mut at_once, &rate(4.0)).expect("a rate");
    let drawn: Vec<_> = all(&rate(4.0)).iter().map(|a| a.micros).collect();
    assert_eq!(at_once.iter().map(|a| a.micros).collect::<Vec<_>>(), drawn);
    assert!(at_rate(&mut own, &rate(0.0)).is_err());
}

fn pieces() {
    let workload = Workload { prefixes: 2, prefix_tokens: 33, requests: 50, ..some() };
    let arrivals = all(&workload);
    let prompts: Vec<_> = arrivals.iter().map(|a| a.prompt.ids(10, 1000)).collect();
    let mut heads: Vec<_> = prompts.iter().map(|p| p[..33].to_vec()).collect();
    heads.sort();
    heads.dedup();
    assert_eq!(heads.len(), 2);
    let mut tails: Vec<_> = prompts.iter().filter(|p| p.len() > 60).map(|p| &p[33..60]).collect();
    let count = tails.len();
    tails.sort();
    tails.dedup();
    assert_eq!(tails.len(), count, "nothing else is shared");
    assert!(prompts.iter().zip(&arrivals).all(|(p, a)| p.len() == a.prompt.tokens() as usize));
    assert!(prompts.iter().flatten().all(|id| (10..1000).contains(id)));
    assert_eq!(Prompt::unique(3, 5).ids(7, 7), [7; 5], "a vocabulary of nothing else");
}

fn azure() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2024-02-29 23:59:59.5000000,10,3\n2024-03-01 00:00:00.2500000,7,1\n\n\
        2024-03-01 00:00:00.2600000,7,0\n";
    let arrivals = azure_csv(text).expect("two requests");
    let found: Vec<_> = arrivals.iter().map(|a| (a.micros, a.prompt.tokens(), a.output)).collect();
    assert_eq!(found, [(0, 10, 3), (750_000, 7, 1)]);
    let whole = azure_csv("2024-03-01T00:00:00Z,1,1\n2024-03-01T00:00:02Z,1,1").expect("seconds");
    assert_eq!(whole[1].micros, 2_000_000);
    for (text, message) in [
        ("", "no requests"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2", "line 2: expected TIMESTAMP"),
        ("yesterday,2,3", "line 1: the timestamp"),
        ("2024-13-01 00:00:00.0,2,3", "line 1: the timestamp"),
        ("18446744073709551615-01-01 00:00:00.0,2,3", "line 1: the timestamp"),
        ("2024-01-01 18446744073709551615:00:00.0,2,3", "line 1: the timestamp"),
        ("2024-01-01 00:61:00.0,2,3", "line 1: the timestamp"),
        ("2024-01-01 00:00:00.,2,3", "line 1: the timestamp"),
        ("2024-01-01 00:00:00.0,x,3", "line 1: ContextTokens is no count: x"),
        ("2024-01-01 00:00:00.0,1,-3", "line 1: GeneratedTokens is no count: -3"),
    ] {
        let error = azure_csv(text).expect_err(text).to_string();
        assert!(error.contains(message), "{error}");
    }
}

fn mooncake() {
    let text = r#"{"timestamp": 30, "input_length": 600, "output_length": 2, "hash_ids": [4, 9]}
        {"timestamp": 10, "input_length": 1000, "output_length": 5, "hash_ids": [4]}
"#;
    let arrivals = mooncake_jsonl(text).expect("two requests");
    let found: Vec<_> = arrivals.iter().map(|a| (a.micros, a.prompt.tokens(), a.output)).collect();
    assert_eq!(found, [(0, 1000, 5), (20_000, 600, 2)]);
    let [first, second] = [0, 1].map(|n: usize| arrivals[n].prompt.ids(0, 5000));
    assert_eq!(first[..512], second[..512]);
    assert_ne!(first[512..600], second[512..600]);
    for (text, message) in [
        ("", "no requests"),
        ("{", "line 1: EOF"),
        ("{\"timestamp\": 1}", "line 1: missing field `input_length`"),
        (
            "{\"timestamp\": 18446744073709551615, \"input_length\": 1, \"output_length\": 1}",
            "large",
        ),
    ] {
        let error = mooncake_jsonl(text).expect_err(text).to_string();
        assert!(error.contains(message), "{error}");
    }
}

fn sharegpt() {
    let text = r#"[
        {"conversations": [{"from": "human", "value": "a b c"}, {"from": "gpt", "value": "d e"}]},
        {"conversations": [{"from": "gpt", "value": "x"}]}
    ]"#;
    let words = |text: &str| text.split(' ').count() as u32;
    let arrivals = share_gpt(text, &words).expect("one request");
    assert_eq!(arrivals.len(), 1);
    assert_eq!((arrivals[0].prompt.tokens(), arrivals[0].output), (3, 2));
    let error = share_gpt(r#"[{"conversations": 3}]"#, &words).expect_err("wrong").to_string();
    assert!(error.starts_with("entry 0: "), "{error}");
    assert!(share_gpt("{}", &words).expect_err("wrong").to_string().contains("not JSON"));
}

fn limits() -> Limits {
    Limits {
        sequences_max: 16,
        step_tokens_max: 256,
        blocks: 600,
        context_max: 4096,
        queue_max: 10_000,
        ..Limits::default()
    }
}

/// Two milliseconds a step, 20 µs a token, half a nanosecond a pair.
const COST: StepCost = StepCost { fixed: 2_000_000_000, token: 20_000_000, pair: 500 };

fn small() -> Workload {
    Workload {
        requests: 120,
        rate: 40.0,
        prompt: Lengths { mean: 60.0, cv: 0.7, max: 300 },
        output: Lengths { mean: 20.0, cv: 1.0, max: 120 },
        tenants: 3,
        seed: 5,
        ..Workload::default()
    }
}

/// Runs a workload and gives everything that happened.
fn run_with(
    arrivals: impl IntoIterator<Item = Arrival>,
    change: impl FnOnce(&mut Setup),
) -> (Ran, Vec<Stamped>) {
    let events: Arc<Mutex<Vec<Stamped>>> = Arc::default();
    let mut setup = Setup {
        limits: limits(),
        policies: Policies::default(),
        weights: Vec::new(),
        cost: Cost::Fitted(COST),
        block_picos: 100_000_000,
        concurrency: None,
        sinks: vec![Box::new(events.clone())],
    };
    change(&mut setup);
    let ran = simulate(arrivals, setup).expect("it runs");
    let events = std::mem::take(&mut *events.lock().expect("events"));
    (ran, events)
}

fn measured(events: &[Stamped]) -> Summary {
    let mut measures = Measures::new(Slo::default());
    events.iter().for_each(|event| measures.push(event));
    measures.summary()
}

fn lines(events: &[Stamped]) -> Vec<u8> {
    let mut out = Vec::new();
    events.iter().for_each(|event| write_line(&mut out, event).expect("memory"));
    out
}

fn seed_is_a_trace() {
    let run = |seed: u64| {
        let workload = Workload { seed, prefixes: 3, prefix_tokens: 64, ..small() };
        lines(&run_with(workload.generator().expect("a workload"), |_| {}).1)
    };
    let first = run(1);
    assert!(first.len() > 100_000);
    assert!(first == run(1), "the same seed");
    assert!(first != run(2), "another seed");
}

fn every_policy() {
    let of = |change: fn(&mut Policies)| {
        let mut policies = Policies::default();
        change(&mut policies);
        policies
    };
    for policies in [
        of(|_| {}),
        of(|p| p.batching = Batching::Static { size: 8 }),
        of(|p| p.batching = Batching::Dynamic { size: 8, timeout_ms: 30 }),
        of(|p| p.prefill = Prefill::PrefillFirst),
        of(|p| p.prefill = Prefill::DecodeFirst),
        of(|p| p.admission = Admission::Conservative),
        of(|p| p.admission = Admission::ExactPeak),
        of(|p| p.admission = Admission::Quantile { percent: 90 }),
        of(|p| p.order = Order::Shortest),
        of(|p| p.order = Order::Fair { unit: FairUnit::Tokens }),
        of(|p| p.itl_target_micros = Some(4_000)),
        of(|p| p.prefix_cache = PrefixCache::Off),
    ] {
        let workload = small();
        let wanted: u64 = all(&workload).iter().map(|a| u64::from(a.output)).sum();
        let small_pool = |setup: &mut Setup| {
            setup.policies = policies;
            setup.limits.blocks = 64;
        };
        let (ran, events) = run_with(all(&workload), small_pool);
        let counts = measured(&events).counts;
        assert_eq!((ran.requests, ran.too_long), (120, 0), "{policies:?}");
        assert_eq!((counts.finished, counts.output_tokens), (120, wanted), "{policies:?}");
        assert_eq!(ran.steps, counts.steps);
        attribution_sums(&events);
        // Nothing arrives before its time.
        let arrivals = all(&workload);
        let found = events.iter().filter(|e| matches!(e.event, Event::RequestArrived { .. }));
        assert!(found.zip(&arrivals).all(|(e, a)| e.micros >= a.micros), "{policies:?}");
    }
}

/// Every gap is its parts, gaps join, and what each request waited for adds up to its life.
fn attribution_sums(events: &[Stamped]) {
    let (mut attribution, mut waits) = (Attribution::default(), Waits::default());
    let mut ends = BTreeMap::new();
    let mut lives: BTreeMap<_, u64> = BTreeMap::new();
    for event in events {
        waits.push(event);
        if let Event::RequestArrived { sequence, .. } = event.event {
            ends.insert(sequence, event.micros);
        }
        if let Some(gap) = attribution.push(event) {
            assert_eq!(gap.parts.sum(), gap.micros, "{gap:?}");
            assert_eq!(ends.insert(gap.sequence, event.micros), Some(gap.from_micros), "{gap:?}");
            assert_eq!(gap.parts.unexplained, 0, "{gap:?}");
            let by: u64 = gap.delayed_by.iter().map(|d| d.1).sum();
            assert!(by <= gap.parts.others_prefill, "{gap:?}");
            *lives.entry(gap.sequence.0).or_default() += gap.micros;
        }
    }
    let told: BTreeMap<_, u64> = waits.iter().map(|(r, w)| (r.0, w.parts.sum())).collect();
    assert_eq!(told, lives, "requests of one sequence have its number");
}

fn concurrency() {
    let workload = Workload { rate: f64::INFINITY, ..small() };
    let (_, events) = run_with(all(&workload), |setup| setup.concurrency = Some(5));
    let (mut open, mut most) = (0, 0);
    for event in &events {
        match event.event {
            Event::RequestArrived { .. } => open += 1,
            Event::SequenceFinished { .. } => open -= 1,
            _ => {}
        }
        most = most.max(open);
    }
    assert_eq!((open, most), (0, 5));
    assert_eq!(measured(&events).counts.finished, 120);
}

/// What does not fit is left out before its ids are made, and what fits in part is cut and told.
fn too_long() {
    let arrivals = [10, 5000, u32::MAX, 4095, 20]
        .map(|tokens| Arrival { prompt: Prompt::unique(1, tokens), ..all(&small())[0].clone() });
    assert!(arrivals[0].output > 1);
    let (ran, events) = run_with(arrivals, |_| {});
    assert_eq!((ran.requests, ran.too_long, ran.shortened), (5, 2, 1));
    assert_eq!(measured(&events).counts.finished, 3);
}

/// Figures worked out by hand from the data sheet and the model's shape.
fn roofline() {
    let h100 = Roofline::H100_8B;
    assert!((h100.ridge() - 295.2).abs() < 0.1, "{}", h100.ridge());
    let micros = |rows: &[(u32, u32)]| Cost::Roofline(h100).micros(rows.iter().copied());
    // 16.06 GB at 3.35 TB/s are 4.794 ms; a key of one token is 131072 bytes.
    assert_eq!(micros(&[(0, 1)]), 4795 + 100);
    assert_eq!(micros(&[(1000, 1)]), 4834 + 100);
    // 8192 tokens: 131.6 Top and half a square of pairs.
    let (memory, arithmetic) = h100.bounds(8192.0, 8192.0 * 8193.0 / 2.0, 0.0);
    assert!(memory < 0.006 && (arithmetic - 0.1508).abs() < 0.001, "{memory} {arithmetic}");
    assert_eq!(h100.blocks(80e9, 16), 26_674);
}

fn recorded() {
    let arrivals = all(&small());
    let (_, events) = run_with(arrivals.clone(), |_| {});
    let read = Recorded::read(&events, 0).expect("a recording");
    let terms = Terms { limits: limits(), policies: Policies::default(), weights: Vec::new() };
    assert_eq!(read.terms, terms);
    assert_eq!(read.arrivals.len(), arrivals.len());
    let start = arrivals[0].micros;
    for (found, was) in read.arrivals.iter().zip(&arrivals) {
        assert_eq!(found.prompt.tokens(), was.prompt.tokens());
        assert_eq!((found.output, found.output_max), (was.output, was.output_max));
        assert_eq!(found.said.len(), was.output as usize);
        // Seen when the step of the moment was over.
        assert!(found.micros + start + 20_000 > was.micros);
    }
    assert_cost(&read);
}

/// The times of steps are those that the run had, to five percent.
#[track_caller]
fn assert_cost(read: &Recorded) {
    assert_cost_within(read, 20);
}

/// The same, to a part in `parts`.
#[track_caller]
fn assert_cost_within(read: &Recorded, parts: u64) {
    let cost = read.cost.expect("steps");
    let near = |found: u64, right: u64| found.abs_diff(right) * parts < right;
    assert!(near(cost.fixed, COST.fixed) && near(cost.token, COST.token), "{cost:?}");
}

fn swapping(setup: &mut Setup) {
    setup.policies.preemption = Preemption::Swap;
    (setup.limits.blocks, setup.limits.host_blocks) = (48, 500);
}

fn blocks_moved(events: &[Stamped]) -> u32 {
    let moved = |e: &Stamped| match e.event {
        Event::BlocksSwapped { out, back, .. } => out + back,
        _ => 0,
    };
    events.iter().map(moved).sum()
}

/// Moving blocks has a time of its own, which steps do not have again; and the time in which
/// nothing runs is nobody's.
fn swaps_and_pauses() {
    let crowd = Workload { rate: 2000.0, ..small() };
    // So dear and so many that counting them into the steps shows.
    let (_, events) = run_with(all(&crowd), |setup| {
        swapping(setup);
        (setup.limits.blocks, setup.block_picos) = (30, 1_000_000_000);
    });
    assert!(blocks_moved(&events) > 100);
    let read = Recorded::read(&events, 1).expect("a recording");
    assert_eq!(read.block_picos, 1_000_000_000, "as seen, not as said");
    assert_cost_within(&read, 200);
    let few = Workload { rate: 0.5, requests: 40, ..small() };
    let single = Lengths { mean: 1.0, cv: 0.0, max: 1 };
    let (_, events) = run_with(all(&Workload { output: single, ..few.clone() }), |_| {});
    let fixed = Recorded::read(&events, 0).expect("a recording").cost.expect("steps").fixed;
    assert!(fixed < 2 * COST.fixed, "{fixed}: pauses between single steps");
    let (_, events) = run_with(all(&few), |_| {});
    assert_cost(&Recorded::read(&events, 0).expect("a recording"));
}

/// Moving costs nothing where nobody knows what it costs: it is not done then.
fn unknown_block_cost() {
    let crowd = all(&Workload { rate: 2000.0, ..small() });
    let unknown = |setup: &mut Setup| {
        swapping(setup);
        setup.block_picos = 0;
    };
    let (_, events) = run_with(crowd, unknown);
    assert_eq!(blocks_moved(&events), 0);
    assert!(measured(&events).counts.preemptions > 0);
    // What was known before the start is taken over.
    assert_eq!(Recorded::read(&events, 7).expect("a recording").block_picos, 7);
}

/// The same policies give the same run, to a few percent; others differ as they must.
fn what_if_other() {
    let crowd = Workload { rate: 2000.0, ..small() };
    let (_, events) = run_with(all(&crowd), |setup| setup.limits.blocks = 48);
    let batches = Policies { batching: Batching::Static { size: 8 }, ..Policies::default() };
    let recording = Recorded::read(&events, 0).expect("a recording");
    let weights = vec![(1, 4)];
    let other = Terms { policies: batches, weights, ..recording.terms.clone() };
    let compared = what_if(&events, &recording, other, Slo::default()).expect("a comparison");
    let weighted = |events: &[Stamped]| {
        events.iter().any(|e| matches!(e.event, Event::TenantWeighted { weight: 4, .. }))
    };
    assert!(weighted(&compared.other.events) && !weighted(&compared.same.events));
    let (recorded, same, other) =
        (compared.recorded, compared.same.summary, compared.other.summary);
    let near = |a: f64, b: f64| (a - b).abs() <= 0.1 * a.max(b);
    assert!(near(recorded.ttft_ms.p50, same.ttft_ms.p50), "{recorded:?} {same:?}");
    assert!(near(recorded.output_throughput, same.output_throughput), "{recorded:?} {same:?}");
    assert_eq!(recorded.counts.output_tokens, same.counts.output_tokens);
    assert_eq!(recorded.counts.output_tokens, other.counts.output_tokens);
    assert_eq!(other.counts.preemptions, 0, "a batch has its memory from the start");
    assert!(recorded.counts.preemptions > 0 && other.counts.padding_tokens > 0);
    assert!(other.utilization < 0.7 * same.utilization, "{other:?} {same:?}");
    assert!(compared.other.events.len() > 1000 && compared.other.policies == batches);
}
