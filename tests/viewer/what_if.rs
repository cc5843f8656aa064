//! What if: asked for in the window, simulated, and both runs laid over one time axis.

use super::drive::{Driven, driven, driven_in};
use super::scene::{Stream, overload, viewer};
use crate::support::Rows;
use egui::accesskit::Role;
use egui::vec2;
use egui_kittest::kittest::Queryable;
use tilewright::base::{Admission, Policies};
use tilewright::sim::{Recorded, Run, Terms, what_if};
use tilewright::trace::{Header, Measures, Sink, Slo, Summary};
use tilewright::viewer::{Comparison, Open, Rerun, Source, ViewCommand};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::what_if_lays_two_runs_side_by_side", what_if_lays_two_runs_side_by_side);
    rows.add("viewer::what_if_simulates_the_recorded_overload", what_if_on_the_overload);
}

/// The recording as if a simulation had made it, each moment `slower` times as late.
fn rerun(slower: u64) -> (Summary, Rerun) {
    let mut events = overload();
    let mut measures = Measures::new(Slo::default());
    for event in &mut events {
        event.micros *= slower;
        measures.push(event);
    }
    (measures.summary(), Rerun::new(Policies::default(), measures.summary(), events))
}

fn what_if_lays_two_runs_side_by_side() {
    let mut viewer = viewer(&overload());
    viewer.set_header(Header::simulated(70));
    let mut harness = driven_in(vec2(1600.0, 1400.0), viewer);
    harness.get_by_role_and_label(Role::Button, "What if").click();
    harness.run();
    harness.get_by_label("What if?").click();
    harness.run();
    let sent = harness.state_mut().take_commands();
    let now = harness.state().history().live();
    let (policies, limits) = (now.policies.expect("policies"), now.limits.expect("limits"));
    assert_eq!(sent, [ViewCommand::WhatIf { policies, limits, block_picos: 70 }]);
    assert!(harness.query_by_label("What if?").is_none(), "it is being simulated");
    let ((recorded, same), (_, other)) = (rerun(1), rerun(2));
    harness.state_mut().compare(Some(Comparison { recorded, same, other }));
    harness.run();
    let text = |harness: &Driven, text: &str| harness.query_all_by_label(text).count();
    assert!(text(&harness, "+100 %, worse") >= 7, "every time is twice as long");
    assert!(text(&harness, "-50 %, worse") >= 2, "and every rate half as high");
    assert!(text(&harness, "the same") >= 2, "what is counted is the same");
    harness.get_all_by_label("Look into it").next_back().expect("two runs").click();
    harness.run();
    let sent = harness.state_mut().take_commands();
    let [ViewCommand::Open(Open::Run { events, .. })] = &sent[..] else { panic!("{sent:?}") };
    let last = overload().last().expect("events").micros;
    assert_eq!(events.last().expect("events").micros, 2 * last);
    harness.get_by_label("What if?").click();
    harness.run();
    harness.state_mut().compare(None);
    harness.run();
    assert!(harness.query_by_label("What if?").is_some(), "it can be tried again");
    harness.get_by_label("What if?").click();
    harness.run();
    assert!(harness.query_by_label("Simulating…").is_some());
    harness.state_mut().open(Source::Simulation { name: "another".to_string() }, None);
    overload().iter().for_each(|event| harness.state_mut().push(event));
    harness.run();
    assert!(harness.query_by_label("What if?").is_some(), "its answer is of what was shown then");
}

/// As a person does it, in a window of the usual size, and simulated for real.
fn what_if_on_the_overload() {
    let events = overload();
    let mut harness = driven(viewer(&events));
    harness.get_by_role_and_label(Role::Button, "What if").click();
    harness.run();
    assert!(harness.query_all_by_label_contains("one time axis").count() > 0, "what to expect");
    harness.get_by_role_and_label(Role::ComboBox, "admission").click();
    harness.run();
    harness.get_by_label("conservative").click();
    harness.run();
    harness.get_by_label("What if?").click();
    harness.run();
    let sent = harness.state_mut().take_commands();
    let [ViewCommand::WhatIf { policies, limits, block_picos }] = sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(policies.admission, Admission::Conservative);
    let recorded = Recorded::read(&events, block_picos).expect("a whole recording");
    let other = Terms { limits, policies, weights: recorded.terms.weights.clone() };
    let found = what_if(&events, &recorded, other, Slo::default()).expect("a simulation");
    let rerun = |run: Run| Rerun::new(run.policies, run.summary, run.events);
    let (recorded, same, other) = (found.recorded, rerun(found.same), rerun(found.other));
    assert!(recorded.counts.preemptions > 0);
    harness.state_mut().compare(Some(Comparison { recorded, same, other }));
    harness.run();
    let pane = harness.get_by_label("What if?").rect();
    let of = |run| harness.get_by_label_contains(run).rect();
    let runs = ["simulated: 12 sequences in 6 slots, ", "what if: 12 sequences in "].map(of);
    for run in runs {
        assert!(run.min.x > pane.max.x && run.max.x < 1044.0 && run.max.y < 660.0, "{runs:?}");
    }
    assert!(runs[0].max.y < runs[1].min.y && runs[0].x_range() == runs[1].x_range(), "{runs:?}");
    for admission in ["optimistic", "conservative"] {
        let told = format!("continuous · chunked · {admission} · fcfs");
        assert!(harness.query_by_label(&told).is_some(), "{told}");
    }
    // No memory is promised twice: nobody loses a place, and that is said.
    assert!(harness.query_by_label("-100 %, better").is_some(), "{:?}", harness.root());
    harness.get_all_by_label("Look into it").next_back().expect("two runs").click();
    harness.run();
    let sent = harness.state_mut().take_commands();
    let [ViewCommand::Open(Open::Run { name, events })] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(name, "what if");
    harness.state_mut().show_run(name.clone(), events);
    harness.run();
    assert!(harness.query_by_label("simulation: what if").is_some());
    assert!(harness.query_all_by_label("simulated").count() > 0, "the comparison stays");
    // What is pointed at in one run says what it is; in the shown one its number is another's.
    let run = harness.get_by_label_contains("simulated: 12 sequences in 6 slots, ").rect();
    let lane = run.height() / 7.0;
    super::why::rest(&mut harness, run.min + vec2(run.width() * 0.1, lane * 2.5));
    let told = harness.query_all_by_label_contains("slot 1, sequence 1: decode, steps ");
    assert!(told.count() > 0, "{:?}", harness.root());
    assert!(harness.query_by_label("Sequence 1").is_none(), "{:?}", harness.root());
    scene_starts_anew(harness);
}

/// Made-up traffic has nothing to do with what was compared before.
fn scene_starts_anew(mut harness: Driven) {
    let mut scene = Stream::of(3, 4);
    scene.step(3, 0, 8);
    harness.state_mut().show_scene(&scene.events);
    harness.remove_cursor();
    harness.run();
    assert!(harness.query_by_label("simulation: 8B on an H100").is_some());
    assert!(
        harness.query_all_by_label_contains("one time axis").count() > 0,
        "nothing is compared"
    );
    harness.get_by_label("What if?").click();
    harness.run();
    let sent = harness.state_mut().take_commands();
    let [ViewCommand::WhatIf { policies, limits, block_picos: 0 }] = sent[..] else {
        panic!("{sent:?}")
    };
    let now = harness.state().history().live();
    assert_eq!((Some(limits), policies), (now.limits, Policies::default()));
}
