//! Rows of `trace` over whole streams: what a run was like, and where the time of every gap went.

use crate::support::{Rows, root};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::io::BufReader;
use tilewright::base::{RequestId, SequenceId, TokenId};
use tilewright::trace::{
    Attribution, Event, FinishReason, Gap, Measures, Parts, Reader, Sink, Slo, Stamped, StepCost,
    jain,
};

pub fn rows(rows: &mut Rows) {
    rows.add("trace::measures_of_a_known_run", known_run);
    rows.add("trace::measures_of_nothing_are_absent", nothing);
    rows.add("trace::fairness_index", fairness);
    rows.add("trace::shares_of_a_known_step", known_step);
    rows.add("trace::parts_of_every_gap_sum_to_it", sums);
    rows.add("trace::parts_of_absurd_times_stop_at_the_most", absurd_times);
    rows.add("trace::lost_events_leave_time_unexplained", lost_events);
}

/// A step costs 20, a position 10.
const COST: StepCost = StepCost { fixed: 20, token: 10, pair: 0 };

fn arrived(sequence: u32, tenant: u32, prompt: u32) -> Event {
    Event::RequestArrived {
        request: RequestId(sequence),
        sequence: SequenceId(sequence),
        prompt,
        max_new_tokens: 8,
        tenant,
        class: 0,
        predicted: 1,
        waiting: 1,
    }
}

fn admitted(sequence: u32) -> Event {
    Event::SequenceAdmitted {
        sequence: SequenceId(sequence),
        slot: sequence,
        blocks: 1,
        free: 8,
        kept: 0,
        peak: 0,
        passed: 0,
        waited_micros: 0,
    }
}

fn row(sequence: u32, start: u32, len: u32, samples: bool) -> Event {
    Event::RowPlanned { sequence: SequenceId(sequence), slot: sequence, start, len, samples }
}

fn ran(device_micros: u64) -> Event {
    Event::StepRan { step: 0, plan_micros: 2, build_micros: 1, device_micros }
}

fn token(sequence: u32, position: u32) -> Event {
    Event::TokenSampled { sequence: SequenceId(sequence), position, token: TokenId::default() }
}

fn finished(sequence: u32, reason: FinishReason, generated: u32) -> Event {
    Event::SequenceFinished {
        sequence: SequenceId(sequence),
        request: RequestId(sequence),
        reason,
        prompt: 4,
        generated,
    }
}

fn stamped(events: Vec<(u64, Event)>) -> impl Iterator<Item = Stamped> {
    let stamp = |(seq, (micros, event))| Stamped { seq: seq as u64, step: 0, micros, event };
    events.into_iter().enumerate().map(stamp)
}

/// Request 0: first token after 2 ms, then 1 and 3 ms. Request 1: fails. Request 2: one token
/// after 9 ms, beyond the bound.
fn known_run() {
    let slo = Slo { ttft_micros: Some(5000), tpot_micros: Some(2000) };
    let mut measures = Measures::new(slo);
    let events = vec![
        (1_000, arrived(0, 1, 4)),
        (1_500, admitted(0)),
        (1_600, arrived(1, 2, 6)),
        (2_000, row(0, 0, 4, true)),
        (3_000, ran(990)),
        (3_000, token(0, 4)),
        (3_100, arrived(2, 2, 1)),
        (3_200, row(0, 4, 1, true)),
        (3_200, Event::RowPadded { sequence: None, slot: 1, start: 4, len: 1 }),
        (4_000, token(0, 5)),
        (4_100, row(0, 5, 1, true)),
        (7_000, token(0, 6)),
        (7_000, finished(0, FinishReason::Length, 3)),
        (7_500, finished(1, FinishReason::Cancelled, 0)),
        (12_100, token(2, 1)),
        (12_100, finished(2, FinishReason::Stop, 1)),
    ];
    stamped(events).for_each(|event| measures.push(&event));
    let summary = measures.summary();
    let counts = summary.counts;
    assert_eq!((counts.arrived, counts.finished, counts.failed, counts.good), (3, 2, 1, 1));
    assert_eq!((counts.prompt_tokens, counts.output_tokens), (11, 4));
    // A quantile is at most 1/64 too high.
    let (p50, most) = (summary.ttft_ms.p50, summary.ttft_ms.max);
    assert!((2.0..=2.0 + 2.0 / 64.0).contains(&p50) && most == 9.0, "{p50} {most}");
    assert_eq!((summary.itl_ms.mean, summary.itl_ms.max), (2.0, 3.0));
    // One gap of two on average; a single token has none.
    assert_eq!((summary.tpot_ms.mean, summary.tpot_ms.max), (2.0, 2.0));
    assert_eq!((summary.queue_ms.max, summary.step_ms.max), (0.5, 0.993));
    assert_eq!(summary.e2el_ms.max, 9.0);
    assert!((summary.seconds - 0.0111).abs() < 1e-9, "{}", summary.seconds);
    assert!((summary.output_throughput - 4.0 / 0.0111).abs() < 1e-6);
    // Two of three places of decoding steps gave a token.
    assert!((summary.utilization - 2.0 / 3.0).abs() < 1e-12);
    assert!((summary.fairness - 16.0 / 20.0).abs() < 1e-12, "3 tokens and 1");
    assert_eq!(measures.open(), 0);
}

/// What nothing was measured of is no 0.
fn nothing() {
    let mut measures = Measures::default();
    stamped(vec![(0, arrived(0, 0, 3))]).for_each(|event| measures.push(&event));
    let summary = measures.summary();
    let json = serde_json::to_value(&summary).expect("JSON");
    for name in ["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms", "step_ms"] {
        assert!(json[name].as_object().expect("times").values().all(|v| v.is_null()), "{json}");
    }
    let table = tilewright::bench::summaries(&[("run", &summary)]).to_string();
    for name in ["TTFT p50", "ITL max", "step p99", "requests/s within the SLOs", "utilisation"] {
        let line = table.lines().find(|line| line.starts_with(name)).expect("a line");
        assert!(line.ends_with("  –"), "{table}");
    }
}

fn fairness() {
    assert_eq!(jain([5, 5, 5, 5].into_iter()), 1.0);
    assert_eq!(jain([7, 0, 0, 0].into_iter()), 0.25);
    assert_eq!(jain([].into_iter()), 1.0);
}

fn gaps(events: impl Iterator<Item = Stamped>) -> Vec<Gap> {
    let mut attribution = Attribution::with_cost(COST);
    events.filter_map(|event| attribution.push(&event)).collect()
}

/// One decodes, one brings seven positions: 20 + 10 + 70 share 1000 µs.
fn known_step() {
    let found = gaps(stamped(vec![
        (0, arrived(0, 1, 4)),
        (40, admitted(0)),
        (40, arrived(1, 1, 7)),
        (43, admitted(1)),
        (43, row(0, 4, 1, true)),
        (43, row(1, 0, 7, true)),
        (1_050, ran(1_000)),
        (1_060, token(0, 5)),
    ]));
    let [gap] = &found[..] else { panic!("{found:?}") };
    let parts = Parts {
        own: 300,
        others_prefill: 700,
        queue: 40,
        // Planned and built, and ten until the token was known.
        scheduling: 10 + 10,
        ..Parts::default()
    };
    assert_eq!((gap.micros, gap.parts), (1_060, parts));
    assert_eq!(gap.delayed_by, [(SequenceId(1), 700)]);
}

/// Each gap alone is in order; together they are more than there is.
fn absurd_times() {
    let half = u64::MAX / 2 + 2;
    let events = |sequence| {
        stamped(vec![
            (0, arrived(sequence, 1, 4)),
            (half, admitted(sequence)),
            (half, token(sequence, 5)),
        ])
    };
    let mut all = Parts::default();
    for sequence in 0..2 {
        gaps(events(sequence)).into_iter().for_each(|gap| all += gap.parts);
    }
    assert_eq!((all.queue, all.sum()), (u64::MAX, u64::MAX));
    all += Parts { own: 7, ..Parts::default() };
    assert_eq!((all.own, all.sum()), (7, u64::MAX));
}

/// On the recorded overload, preemptions included: no time is lost or counted twice.
fn sums() {
    let file = std::fs::File::open(root().join("assets/traces/overload.jsonl.gz")).expect("there");
    let events: Vec<Stamped> = Reader::new(BufReader::new(GzDecoder::new(file)))
        .expect("a recording")
        .map(|event| event.expect("whole"))
        .collect();
    let mut ends: BTreeMap<SequenceId, u64> = BTreeMap::new();
    for event in &events {
        if let Event::RequestArrived { sequence, .. } = event.event {
            ends.insert(sequence, event.micros);
        }
    }
    let found = gaps(events.iter().cloned());
    let sampled = |e: &&Stamped| matches!(e.event, Event::TokenSampled { .. });
    assert_eq!(found.len(), events.iter().filter(sampled).count());
    let mut all = Parts::default();
    for gap in &found {
        assert_eq!(gap.parts.sum(), gap.micros, "{gap:?}");
        assert!(gap.parts.own + gap.parts.preemption > 0, "{gap:?}");
        // Each begins where the one before ended.
        let end = ends.get_mut(&gap.sequence).expect("it arrived");
        assert_eq!(gap.from_micros, *end, "{gap:?}");
        *end += gap.micros;
        all += gap.parts;
    }
    assert!(all.queue > 0 && all.preemption > 0 && all.others_prefill > 0, "{all:?}");
    assert!(all.others_decode > 0 && all.unexplained == 0, "{all:?}");
}

fn lost_events() {
    let found = gaps(stamped(vec![
        (0, arrived(0, 1, 4)),
        (10, admitted(0)),
        (500, Event::EventsDropped { count: 9 }),
        (530, token(0, 5)),
    ]));
    let parts = Parts { queue: 10, unexplained: 490, scheduling: 30, ..Parts::default() };
    assert_eq!((found[0].micros, found[0].parts), (530, parts));
}
