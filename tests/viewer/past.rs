//! Any step can be shown again, within bounded memory; and what is said of the past is right.

use super::drive::driven;
use super::scene::{Stream, overload, viewer};
use super::why::{rest, tells};
use crate::support::Rows;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use std::time::Instant;
use tilewright::base::{Limits, RequestId, SequenceId};
use tilewright::trace::{
    Cursor, Event, FinishReason, History, LimitsReason, Picture, Stamped, fold, sentence,
};
use tilewright::viewer::{Phase, Source, View, Viewer, gap_sentence, to_csv, to_perfetto};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::every_step_shows_what_the_fold_says", every_step_shows_what_the_fold_says);
    rows.add("viewer::long_streams_seek_and_stay_small", long_streams_seek_and_stay_small);
    rows.add("viewer::lives_agree_with_the_picture", lives_agree_with_the_picture);
    rows.add("viewer::padding_has_a_slice", padding_has_a_slice);
    rows.add("viewer::late_watchers_see_the_same", late_watchers_see_the_same);
    rows.add("viewer::waits_are_shared_out_whole", waits_are_shared_out_whole);
    rows.add("viewer::a_wait_names_the_prompt_that_caused_it", a_wait_names_the_prompt);
    rows.add("viewer::every_decision_has_a_sentence", every_decision_has_a_sentence);
    rows.add("viewer::exports_hold_every_step", exports_hold_every_step);
    rows.add("viewer::a_damaged_recording_is_shown", a_damaged_recording_is_shown);
}

/// The picture after the last event of each step, folded from the beginning.
fn folded(events: &[Stamped]) -> Vec<(u64, Picture)> {
    let (mut picture, mut out) = (Picture::default(), Vec::new());
    for (at, event) in events.iter().enumerate() {
        fold(&mut picture, event);
        if events.get(at + 1).is_none_or(|next| next.step != event.step) {
            out.push((event.step, picture.clone()));
        }
    }
    out
}

fn every_step_shows_what_the_fold_says() {
    let events = overload();
    let mut history = History::new(usize::MAX);
    events.iter().for_each(|e| assert!(!history.push(e), "nothing is forgotten"));
    let expected = folded(&events);
    assert!(expected.len() > 50, "{} steps", expected.len());
    let mut cursor = Cursor::default();
    let back = (0..expected.len()).rev();
    let jumps = (0..expected.len()).map(|i| i * 37 % expected.len());
    for index in (0..expected.len()).chain(back).chain(jumps) {
        let (step, picture) = &expected[index];
        assert!(history.picture_at(*step, &mut cursor) == picture, "step {step}");
    }
    for (step, _) in &expected {
        let of: Vec<_> = history.events_of(*step).collect();
        assert!(of.iter().copied().eq(events.iter().filter(|e| e.step == *step)), "step {step}");
    }
}

fn long_streams_seek_and_stay_small() {
    const STEPS: u32 = 100_000;
    let mut stream = Stream::of(2, 64);
    for step in 0..STEPS {
        stream.step(2, step % 1000, 1);
    }
    let events = &stream.events;
    let mut all = History::new(usize::MAX);
    let bytes_max = 16 << 20;
    let mut some = History::new(bytes_max);
    for event in events {
        all.push(event);
        some.push(event);
        assert!(some.bytes() <= bytes_max + (8 << 20), "{} bytes", some.bytes());
    }
    assert!((all.oldest_step(), all.forgotten()) == (0, 0));
    let (oldest, forgotten) = (some.oldest_step(), some.forgotten());
    assert!(oldest > 1000 && forgotten > 0, "step {oldest}, {forgotten} events");
    assert_eq!(some.events().next().expect("events").seq, forgotten);
    let (mut at_all, mut at_some) = (Cursor::default(), Cursor::default());
    let mut slowest = 0;
    for jump in 0..60u64 {
        let step = jump * 7919 % u64::from(STEPS);
        let began = Instant::now();
        let picture = all.picture_at(step, &mut at_all);
        slowest = slowest.max(began.elapsed().as_micros());
        assert_eq!(picture.step, step);
        let kept = some.picture_at(step, &mut at_some);
        assert_eq!(kept.step, step.max(oldest));
        assert!(step < oldest || kept == picture, "step {step}");
    }
    println!("slowest of 60 jumps over {STEPS} steps: {slowest} µs");
    // The viewer's own tables forget with it.
    let picture = some.picture_at(0, &mut at_some);
    assert_eq!(picture.counters.steps, oldest);
}

/// Slot by slot and step by step, the timeline's slices say what the picture says.
fn lives_agree_with_the_picture() {
    let events = overload();
    let viewer = viewer(&events);
    let mut checked = 0;
    for (step, picture) in folded(&events) {
        for row in
            picture.last_step.rows.iter().filter(|r| !r.pad && picture.last_step.step == step)
        {
            let id = row.sequence.expect("no padding");
            let life = viewer.lives().get(id).expect("a life");
            let slice = life.slices.iter().rfind(|s| s.from_step <= step && s.slot.is_some());
            let slice = slice.expect("a slice");
            assert!(slice.to_step >= step && slice.slot == Some(row.slot), "{id} in step {step}");
            assert!(row.len == 1 || slice.phase == Phase::Prefill, "{id} in step {step}");
            checked += 1;
        }
    }
    assert!(checked > 200, "{checked} rows");
    let preempted: u32 = viewer.lives().iter().map(|(_, l)| l.preemptions).sum();
    assert!(preempted > 0, "the recording preempts");
    let told = events.iter().filter(|e| matches!(e.event, Event::SequencePreempted { .. })).count();
    assert_eq!(preempted as usize, told);
}

fn waits_are_shared_out_whole() {
    let viewer = viewer(&overload());
    let (mut gaps, mut preempted) = (0, 0);
    for (id, life) in viewer.lives().iter() {
        for (index, mark) in life.tokens.iter().enumerate() {
            let gap = &mark.gap;
            assert_eq!(gap.parts.sum(), gap.micros, "{id} token {index}: {gap:?}");
            assert_eq!(life.gap_micros(index), Some(gap.micros));
            let told = gap_sentence(gap);
            assert!(told.contains(" own") || told.contains("computing again"), "{told}");
            gaps += 1;
            preempted += usize::from(told.contains("out of its slot for sequence "));
        }
    }
    assert!(gaps > 200 && preempted > 0, "{gaps} gaps, {preempted} over a preemption");
}

/// A prompt of 63 positions in one step with a decoding sequence: the excess is on its account.
fn a_wait_names_the_prompt() {
    let mut stream = Stream::of(2, 8);
    for at in 0..20 {
        stream.step(1, 8 + at, 1);
    }
    // Step 21: sequence 0 decodes, sequence 1 computes 63 positions, in ten times the time.
    let from = stream.events.len();
    stream.step(1, 28, 1);
    let row =
        Event::RowPlanned { sequence: SequenceId(1), slot: 1, start: 0, len: 63, samples: true };
    let planned = stream.events[from].clone();
    stream.events.insert(from + 1, Stamped { event: row, ..planned });
    for event in &mut stream.events[from..] {
        if let Event::StepRan { device_micros, .. } = &mut event.event {
            *device_micros = 8700;
        }
        event.micros += if matches!(event.event, Event::TokenSampled { .. } | Event::StepRan { .. })
        {
            7830
        } else {
            0
        };
    }
    let viewer = viewer(&stream.events);
    let life = viewer.lives().get(SequenceId(0)).expect("a life");
    let gap = &life.tokens[20].gap;
    let (by, micros) = gap.delayed_by[0];
    // What a step takes beyond the 870 µs of those that only decode.
    assert!(by == SequenceId(1) && micros.abs_diff(7830) < 80, "{gap:?}");
    assert!(gap.parts.own.abs_diff(870) < 80, "{gap:?}");
    let told = gap_sentence(gap);
    assert!(told.contains("7.8 ms prefill of sequence 1, 8"), "{told}");
}

fn every_decision_has_a_sentence() {
    let events = overload();
    let of = |event: &Event| sentence(event);
    for stamped in &events {
        let decision = matches!(
            stamped.event,
            Event::SequenceAdmitted { .. }
                | Event::AdmissionDelayed { .. }
                | Event::SequencePreempted { .. }
                | Event::SequenceFinished { .. }
                | Event::LimitsChanged { .. }
        );
        if decision {
            let text = of(&stamped.event).expect("a sentence");
            assert!(text.chars().any(|c| c.is_ascii_digit()), "numbers: {text}");
        }
    }
    let preempted = events.iter().find(|e| matches!(e.event, Event::SequencePreempted { .. }));
    let Event::SequencePreempted { victim, gainer, blocks, .. } = &preempted.expect("one").event
    else {
        unreachable!()
    };
    let text = of(&preempted.expect("one").event).expect("a sentence");
    for part in [format!("sequence {victim}"), format!("sequence {gainer}"), blocks.to_string()] {
        assert!(text.contains(&part), "{part} in: {text}");
    }
}

fn exports_hold_every_step() {
    let events = overload();
    let viewer = viewer(&events);
    let csv = String::from_utf8(to_csv(viewer.steps())).expect("text");
    let columns = csv.lines().next().expect("a header").split(',').count();
    assert!(csv.lines().all(|l| l.split(',').count() == columns));
    assert_eq!(csv.lines().count(), viewer.steps().len() + 1);
    let json: serde_json::Value =
        serde_json::from_slice(&to_perfetto(viewer.history())).expect("JSON");
    let list = json["traceEvents"].as_array().expect("events");
    let count = |test: &dyn Fn(&serde_json::Value) -> bool| list.iter().filter(|e| test(e)).count();
    let ran = events.iter().filter(|e| matches!(e.event, Event::StepRan { .. })).count();
    assert_eq!(count(&|e| e["name"].as_str().is_some_and(|n| n.starts_with("step "))), ran);
    let rows = events.iter().filter(|e| matches!(e.event, Event::RowPlanned { .. })).count();
    assert_eq!(count(&|e| e["ph"] == "X" && e["tid"].as_u64() > Some(0)), rows);
    // Async spans open and close in pairs.
    let (begun, ended) = (count(&|e| e["ph"] == "b"), count(&|e| e["ph"] == "e"));
    assert_eq!(begun, ended);
}

/// Joining in the middle shows, from there on, what is shown to those who saw the beginning.
fn late_watchers_see_the_same() {
    let events = overload();
    for at in [1, events.len() / 2, events.len() - 5] {
        let mut before = Picture::default();
        events[..at].iter().for_each(|e| fold(&mut before, e));
        let mut viewer = Viewer::default();
        viewer.open(Source::Remote { url: "http://host".to_string() }, None);
        viewer.resume(before.clone());
        assert!(viewer.next_seq() == before.seq && viewer.history().live() == &before);
        assert_eq!(viewer.history().oldest_step(), before.step);
        let open = |p: &Picture| p.sequences.keys().copied().collect::<Vec<_>>();
        assert!(viewer.lives().iter().map(|l| l.0).eq(open(&before)));
        events[at..].iter().for_each(|e| viewer.push(e));
        let mut cursor = Cursor::default();
        for (step, picture) in folded(&events).into_iter().filter(|p| p.0 >= events[at].step) {
            assert!(viewer.history().picture_at(step, &mut cursor) == &picture, "step {step}");
        }
        assert_eq!(viewer.time().0, events.last().expect("events").step);
    }
}

/// The place of a sequence that is done before its batch is a slice of its own.
fn padding_has_a_slice() {
    let mut stream = Stream::of(2, 4);
    stream.step(2, 3, 1);
    let (sequence, request) = (SequenceId(0), RequestId(0));
    let reason = FinishReason::Length;
    stream.push(Event::SequenceFinished { sequence, request, reason, prompt: 3, generated: 1 });
    (4..7).for_each(|start| stream.pad(0, start));
    let viewer = viewer(&stream.events);
    let life = viewer.lives().get(sequence).expect("a life");
    let last = life.slices.last().expect("slices");
    assert_eq!((last.phase, last.slot, last.positions), (Phase::Padding, Some(0), 3));
    assert!(last.to_micros > life.finished.expect("it is done").2);
}

/// One sequence in the last slot that there could be, and the largest numbers wherever there are
/// some; at the end a step again that was long ago.
fn damaged() -> Vec<Stamped> {
    let mut events = Stream::of(1, 3).events;
    let (sequence, few, many) = (SequenceId(0), u32::MAX, u64::MAX);
    let limits = Limits { blocks: 3, block_size: few, ..Limits::default() };
    let row = |start, len| Event::RowPlanned { sequence, slot: few, start, len, samples: false };
    let kernel = "mul".to_string();
    let timed = Event::KernelTimed { step: many, kernel, launches: few, nanos: many };
    let [plan_micros, build_micros, device_micros] = [many; 3];
    let ran = Event::StepRan { step: many, plan_micros, build_micros, device_micros };
    let planned = Event::StepPlanned {
        step: many,
        rows: few,
        decode: few,
        tokens: few,
        padding: few,
        budget: few,
        waiting: few,
        free: few,
        unused: many,
    };
    let admitted = Event::SequenceAdmitted {
        sequence,
        slot: few,
        blocks: few,
        free: few,
        kept: few,
        peak: few,
        passed: few,
        waited_micros: many,
    };
    let mut say = |step, event| {
        let seq = events.len() as u64;
        events.push(Stamped { seq, step, micros: many, event });
    };
    say(many, Event::LimitsChanged { limits, reason: LimitsReason::Asked });
    for event in [admitted, planned, row(few, few), row(0, 0), row(few, 1), timed.clone(), timed] {
        say(many, event);
    }
    for event in [ran.clone(), ran] {
        say(many, event);
    }
    for count in [many, many] {
        say(many, Event::EventsDropped { count });
    }
    say(3, row(few, 1));
    events
}

/// A file may say anything: it neither ends the window nor holds it up.
fn a_damaged_recording_is_shown() {
    let began = Instant::now();
    let events = damaged();
    for view in View::ALL {
        let show = move |ui: &mut egui::Ui, viewer: &mut Viewer| viewer.show_one(ui, view);
        let harness = Harness::builder().with_size(egui::vec2(900.0, 500.0));
        let mut harness = harness.build_ui_state(show, viewer(&events));
        harness.run_steps(3);
    }
    let mut harness = driven(viewer(&events));
    for told in ["positions 4294967295 to 4294967295", "computes positions 0 to 0"] {
        assert!(tells(&harness, told), "{told}: {:?}", harness.root());
    }
    for (block, positions) in [(1, "4294967295 to 4294967294"), (2, "4294967295 to 4294967294")] {
        let place = harness.get_by_label_contains(&format!("block {block}, ")).rect().center();
        rest(&mut harness, place);
        assert!(tells(&harness, positions), "{:?}", harness.root());
    }
    let viewer = harness.into_state();
    assert!(!to_csv(viewer.steps()).is_empty() && !to_perfetto(viewer.history()).is_empty());
    let took = began.elapsed().as_secs();
    assert!(took < 60, "{took} s");
}
