//! What goes in and out of the window: files dropped, exports read back, policies sent.

use super::drive::{Driven, driven, driven_in, press};
use super::scene::{Stream, overload, viewer};
use super::why::tells;
use crate::support::Rows;
use egui::accesskit::Role;
use egui::{DroppedFile, Key, Modifiers, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tilewright::base::{Admission, Policies, Speculate};
use tilewright::trace::{Event, Header, LimitsReason};
use tilewright::viewer::{
    EngineState, Note, Open, Source, View, ViewCommand, Viewer, read_recording, to_csv, to_jsonl,
};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::what_is_dropped_is_opened", what_is_dropped_is_opened);
    rows.add("viewer::an_export_reads_back_whole", an_export_reads_back_whole);
    rows.add("viewer::a_picture_of_any_view_is_exported", pictures_are_exported);
    rows.add("viewer::policies_change_while_it_runs", policies_change);
    rows.add("viewer::device_time_has_its_parts", device_time_has_its_parts);
    rows.add("viewer::what_is_done_is_told", what_is_done_is_told);
    rows.add("viewer::a_recording_has_nothing_to_cancel", nothing_to_cancel);
}

#[derive(Debug)]
struct Dropped(PathBuf);

impl DroppedFile for Dropped {
    fn path(&self) -> &Path {
        &self.0
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        Err("nobody reads it here".to_string())
    }
}

fn what_is_dropped_is_opened() {
    let mut harness = driven(viewer(&overload()));
    let paths = ["/models/a.gguf", "/runs/b.jsonl.gz"].map(PathBuf::from);
    for path in &paths {
        harness.input_mut().dropped_files = vec![Arc::new(Dropped(path.clone()))];
        harness.step();
        harness.input_mut().dropped_files.clear();
        harness.run();
        let sent = harness.state_mut().take_commands();
        assert_eq!(sent, [ViewCommand::Open(Open::Path(path.clone()))]);
    }
}

/// Types into the palette and takes what it finds.
fn choose(harness: &mut Driven, text: &str) -> Vec<ViewCommand> {
    press(harness, Modifiers::COMMAND, Key::P);
    harness.event(egui::Event::Text(text.to_string()));
    harness.run();
    press(harness, Modifiers::NONE, Key::Enter);
    harness.state_mut().take_commands()
}

fn saved(sent: Vec<ViewCommand>) -> (String, Vec<u8>) {
    match <[ViewCommand; 1]>::try_from(sent) {
        Ok([ViewCommand::Save { name, bytes }]) => (name, bytes),
        other => panic!("{other:?}"),
    }
}

fn an_export_reads_back_whole() {
    let events = overload();
    let mut viewer = viewer(&events);
    let header = Header { model: "fable".to_string(), ..Header::simulated(70) };
    viewer.set_header(header.clone());
    let told = to_jsonl(viewer.header(), viewer.history());
    let mut harness = driven(viewer);
    let (name, bytes) = saved(choose(&mut harness, "events as json"));
    assert_eq!((name.as_str(), &bytes), ("run.jsonl", &told));
    let mut again = Vec::new();
    let read = read_recording(&bytes[..], &mut |event| again.push(event)).expect("a recording");
    assert!(read == header && again == events);
    let (name, bytes) = saved(choose(&mut harness, "perfetto"));
    assert_eq!(name, "timeline.json");
    let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    assert!(json["traceEvents"].as_array().is_some_and(|list| list.len() > 1000));
    // What is shown next is another's.
    harness.state_mut().open(Source::Recording { name: "other".to_string() }, None);
    assert_eq!(harness.state().header(), &Header::default());
    harness.state_mut().set_header(header);
    harness.state_mut().open(Source::Simulation { name: "what if".to_string() }, None);
    assert_eq!(harness.state().header(), &Header::simulated(70), "moving blocks costs the same");
}

fn size_of(png: &[u8]) -> (u32, u32) {
    let reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("a PNG");
    (reader.info().width, reader.info().height)
}

fn pictures_are_exported() {
    let mut harness = driven_in(vec2(1400.0, 800.0), viewer(&overload()));
    for view in View::ALL {
        let found = choose(&mut harness, &format!("picture of {}", view.name()));
        let (name, bytes) = saved(found);
        assert_eq!((name, size_of(&bytes)), (format!("{}.png", view.name()), (1280, 720)));
    }
    // From the menu, the window as it is.
    harness.get_by_label("Export").click();
    harness.run();
    assert!(tells(&harness, "Picture of a view"));
    harness.get_by_label("Picture of the window").click();
    harness.run();
    let (name, bytes) = saved(harness.state_mut().take_commands());
    assert_eq!((name.as_str(), size_of(&bytes)), ("window.png", (1400, 800)));
}

fn live(events: &Stream) -> Viewer {
    let mut viewer = Viewer::default().without_hint();
    let (model, device) = ("fable".to_string(), "nothing".to_string());
    viewer.open(Source::Engine { model, device }, None);
    viewer.set_engine(EngineState::Running);
    events.events.iter().for_each(|event| viewer.push(event));
    viewer
}

fn policies_change() {
    let mut stream = Stream::of(2, 4);
    // Half a millisecond is a target, and is not shown as none.
    let policies = Policies { itl_target_micros: Some(500), ..Policies::default() };
    stream.push(Event::PoliciesChanged { policies, reason: LimitsReason::Start });
    let mut harness = driven_in(vec2(1280.0, 1200.0), live(&stream));
    harness.get_by_label("Policies").click();
    harness.run();
    let target = harness.get_by_role_and_label(Role::SpinButton, "target, ms");
    assert_eq!(target.accesskit_node().numeric_value(), Some(1.0));
    for (policy, value) in [("admission", "conservative"), ("speculate", "ngram")] {
        harness.get_by_role_and_label(Role::ComboBox, policy).click();
        harness.run();
        harness.get_by_label_contains(value).click();
        harness.run();
    }
    for (policy, value) in [("target, ms", "40"), ("aging", "0"), ("passed at most", "9")] {
        harness.get_by_role_and_label(Role::SpinButton, policy).click();
        harness.run();
        harness.event(egui::Event::Text(value.to_string()));
        harness.run();
        press(&mut harness, Modifiers::NONE, Key::Enter);
    }
    assert!(harness.state_mut().take_commands().is_empty(), "not before it is applied");
    harness.get_by_label("Apply from the next step on").click();
    harness.run();
    let (admission, speculate) = (Admission::Conservative, Speculate::NGRAM);
    let wanted = Policies {
        admission,
        speculate,
        itl_target_micros: Some(40_000),
        aging: None,
        bypass_max: 9,
        ..Policies::default()
    };
    let sent = harness.state_mut().take_commands();
    assert_eq!(sent, [ViewCommand::SetPolicies(wanted)]);
}

/// Where kernels are timed, a step tells them from the way there and back, in every form.
fn device_time_has_its_parts() {
    let mut stream = Stream::of(2, 8);
    stream.step(2, 8, 1);
    let timed = |kernel: &str, launches, nanos| Event::KernelTimed {
        step: 2,
        kernel: kernel.to_string(),
        launches,
        nanos,
    };
    stream.timed(2, 9, &[timed("mul_q8_0", 1, 450_000), timed("attn_paged", 2, 150_000)]);
    let viewer = viewer(&stream.events);
    let csv = String::from_utf8(to_csv(viewer.steps())).expect("text");
    let columns: Vec<&str> = csv.lines().next().expect("a header").split(',').collect();
    let at = columns.iter().position(|c| *c == "kernel_micros").expect("a column");
    let of = |line: &str| line.split(',').nth(at).map(str::to_string);
    let told: Vec<_> = csv.lines().skip(1).filter_map(of).collect();
    assert_eq!(told, ["0", "600"]);
    let mut harness = driven(viewer);
    let parts = "870 µs device (600 µs kernels, 270 µs submit and readback), 20 µs build";
    assert!(tells(&harness, parts), "{:?}", harness.root());
    assert!(!tells(&harness, "hatched: submit and readback"), "the steps are behind");
    harness.get_by_role_and_label(Role::Button, "Steps").click();
    harness.run();
    assert!(tells(&harness, "hatched: submit and readback"), "{:?}", harness.root());
    harness.get_by_role_and_label(Role::Button, "Kernels").click();
    harness.run();
    for row in [
        "mul_q8_0: 450 µs · 75.0 % · 1 launch · 450 µs",
        "attn_paged: 150 µs · 25.0 % · 2 launches · 150 µs",
    ] {
        assert!(harness.query_by_label(row).is_some(), "{row}: {:?}", harness.root());
    }
}

fn what_is_done_is_told() {
    let mut harness = driven(viewer(&overload()));
    harness.state_mut().note(Note::Told("/home/a/steps.csv was written.".to_string()));
    harness.run();
    assert!(tells(&harness, "steps.csv was written."));
    harness.get_by_label("Dismiss").click();
    harness.run();
    assert!(!tells(&harness, "steps.csv was written."));
}

fn nothing_to_cancel() {
    let can = |viewer: Viewer| {
        let mut harness: Harness<'_, Viewer> = driven(viewer);
        let place = harness.get_by_label_contains("slot 0, sequence 0, ").rect().center();
        super::why::rest(&mut harness, place);
        assert!(tells(&harness, "Sequence 0"));
        tells(&harness, "Cancel its request")
    };
    let mut stream = Stream::of(2, 4);
    stream.step(2, 8, 1);
    assert!(can(live(&stream)) && !can(viewer(&stream.events)));
}
