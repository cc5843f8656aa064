//! Time under the pointer: the timeline zoomed and panned, the strip dragged, the speed, the oldest
//! step, and the lanes of those that wait.

use super::drive::{Driven, driven, driven_in, press, shown};
use super::scene::{Stream, overload, viewer};
use super::why::{rest, tells};
use crate::support::Rows;
use egui::accesskit::Role;
use egui::{Key, Modifiers, Rect, vec2};
use egui_kittest::kittest::{NodeT, Queryable};
use tilewright::trace::{Picture, fold};
use tilewright::viewer::{Play, Source, Viewer};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::timeline_zooms_and_pans", timeline_zooms_and_pans);
    rows.add("viewer::the_moment_stays_in_sight", the_moment_stays_in_sight);
    rows.add("viewer::the_past_of_a_live_run_stays", the_past_of_a_live_run_stays);
    rows.add("viewer::fit_shows_all_of_a_long_run", fit_shows_all);
    rows.add("viewer::the_strip_is_dragged_through_time", the_strip_is_dragged);
    rows.add("viewer::speed_moves_faster", speed_moves_faster);
    rows.add("viewer::the_oldest_kept_step_is_told", the_oldest_kept_step_is_told);
    rows.add("viewer::those_who_wait_have_lanes_of_their_own", lanes_of_their_own);
}

/// Where a bar of the timeline is; a tooltip says the same.
fn bar(harness: &Driven, label: &str) -> Rect {
    let mut all = harness.get_all_by_label_contains(label);
    let painted = all.find(|node| node.accesskit_node().role() == Role::Cell);
    painted.unwrap_or_else(|| panic!("{label} is not drawn")).rect()
}

fn timeline_zooms_and_pans() {
    let mut viewer = viewer(&overload());
    viewer.set_engine(tilewright::viewer::EngineState::Running);
    viewer.go(100);
    let mut harness = driven(viewer);
    let label = "slot 2, sequence 2: decode";
    let before = bar(&harness, label);
    harness.get_by_label("+").click();
    harness.run();
    let near = bar(&harness, label);
    assert!((near.width() / before.width() - 2.0).abs() < 0.1, "{before} {near}");
    // The pointer is on the bar; W and S zoom there, and what is typed does not.
    let at = egui::pos2(near.center().x.clamp(400.0, 900.0), near.center().y);
    rest(&mut harness, at);
    press(&mut harness, Modifiers::NONE, Key::W);
    let nearer = bar(&harness, label);
    assert!((nearer.width() / near.width() - 1.4).abs() < 0.1, "{near} {nearer}");
    press(&mut harness, Modifiers::NONE, Key::S);
    assert!((bar(&harness, label).width() / near.width() - 1.0).abs() < 0.01);
    press(&mut harness, Modifiers::COMMAND, Key::W);
    assert!((bar(&harness, label).width() / near.width() - 1.0).abs() < 0.01, "not with Ctrl");
    harness.get_by_role_and_label(Role::MultilineTextInput, "Prompt").focus();
    harness.run();
    press(&mut harness, Modifiers::NONE, Key::W);
    assert!((bar(&harness, label).width() / near.width() - 1.0).abs() < 0.01, "it was typed");
    // Dragged, it moves with the pointer.
    let from = bar(&harness, label).min.x;
    harness.drag_at(at);
    harness.run();
    harness.hover_at(at + vec2(-60.0, 0.0));
    harness.run();
    harness.drop_at(at + vec2(-60.0, 0.0));
    harness.run();
    assert!((bar(&harness, label).min.x - (from - 60.0)).abs() < 1.5, "it moved");
    assert_eq!(shown(&harness).0, 100, "dragging is not choosing a step");
    harness.get_by_label("Fit").click();
    harness.run();
    assert!((bar(&harness, label).width() - before.width()).abs() < 0.5, "all of it again");
    for _ in 0..24 {
        harness.get_by_label("+").click();
        harness.run();
    }
    assert!(harness.query_by_label("100 µs").is_some(), "no nearer: {:?}", harness.root());
}

/// A step that is gone to is shown, wherever the timeline was zoomed to.
fn the_moment_stays_in_sight() {
    let mut viewer = viewer(&overload());
    viewer.go(100);
    let mut harness = driven(viewer);
    for _ in 0..4 {
        harness.get_by_label("+").click();
        harness.run();
    }
    let first = "slot 0, sequence 0: prefill, step 1";
    assert!(!tells(&harness, first), "out of sight");
    press(&mut harness, Modifiers::NONE, Key::Home);
    assert!(tells(&harness, first), "{:?}", harness.root());
}

/// Who has gone back in a run that goes on is left there; who looks at its newest moment sees that.
fn the_past_of_a_live_run_stays() {
    let events = overload();
    let (early, late) = events.split_at(events.len() / 2);
    let mut harness = driven(viewer(early));
    harness.get_by_label("+").click();
    harness.run();
    let first = "slot 0, sequence 0: prefill, step 1";
    assert!(!tells(&harness, first), "out of sight");
    let from = egui::pos2(420.0, bar(&harness, "slot 2, sequence 2: decode").center().y);
    harness.drag_at(from);
    harness.run();
    harness.hover_at(from + vec2(480.0, 0.0));
    harness.run();
    harness.drop_at(from + vec2(480.0, 0.0));
    harness.run();
    assert!(tells(&harness, first), "{:?}", harness.root());
    late.iter().for_each(|event| harness.state_mut().push(event));
    harness.run();
    assert!(shown(&harness).1 == Play::Following && tells(&harness, first));
    let mut stream = Stream::of(2, 8);
    (0..10).for_each(|at| stream.step(2, 8 + at, 1));
    let so_far = stream.events.len();
    let mut harness = driven(viewer(&stream.events));
    let first = "queue, sequence 0: queued, step 0";
    harness.get_by_label("−").click();
    harness.run();
    assert!(tells(&harness, first), "{:?}", harness.root());
    stream.wait(1_000_000);
    stream.step(2, 18, 1);
    stream.events[so_far..].iter().for_each(|event| harness.state_mut().push(event));
    harness.run();
    assert!(!tells(&harness, first), "it moves on: {:?}", harness.root());
}

/// Of a run longer than what is shown at first, all is shown when asked for.
fn fit_shows_all() {
    let mut stream = Stream::of(2, 8);
    for at in 0..60 {
        stream.step(2, 8 + at, 1);
        // Ten seconds each: ten minutes in all.
        stream.wait(10_000_000);
    }
    let mut harness = driven(viewer(&stream.events));
    assert!(tells(&harness, "2 min 0 s"), "{:?}", harness.root());
    harness.get_by_label("Fit").click();
    harness.run();
    assert!(tells(&harness, "10 min"), "{:?}", harness.root());
    press(&mut harness, Modifiers::NONE, Key::End);
    assert!(tells(&harness, "2 min 0 s"), "following, the newest part: {:?}", harness.root());
}

fn the_strip_is_dragged() {
    let mut harness = driven(viewer(&overload()));
    let strip = bar(&harness, "time, step ");
    let steps = harness.state().steps();
    let (count, step) = (steps.len(), |part: f32, count: usize| (part * count as f32) as usize);
    let at = |part: f32| egui::pos2(strip.min.x + strip.width() * part, strip.center().y);
    harness.drag_at(at(0.25));
    harness.run();
    for part in [0.3, 0.5, 0.75] {
        harness.hover_at(at(part));
        harness.run();
        let wanted = harness.state().steps().get(step(part, count)).expect("a step").step;
        assert_eq!(shown(&harness), (wanted, Play::Paused), "at {part}");
    }
    harness.drop_at(at(0.75));
    harness.run();
    assert!(tells(&harness, "view paused"));
}

fn speed_moves_faster() {
    let after = |speed: f64| {
        let mut harness = driven(viewer(&overload()));
        harness.get_by_role_and_label(Role::Slider, "speed").set_value_accesskit(speed);
        harness.run();
        press(&mut harness, Modifiers::NONE, Key::Home);
        harness.key_press(Key::Space);
        harness.run_steps(120);
        shown(&harness).0
    };
    let (slow, fast) = (after(1.0), after(8.0));
    assert!(slow > 1 && fast > 4 * slow, "{slow} and {fast} steps");
}

fn the_oldest_kept_step_is_told() {
    let events = overload();
    assert!(!tells(&driven(viewer(&events)), "oldest kept step"), "all is kept");
    let half = events.len() / 2;
    let mut before = Picture::default();
    events[..half].iter().for_each(|event| fold(&mut before, event));
    let mut viewer = Viewer::default().without_hint();
    viewer.open(Source::Remote { url: "http://host".to_string() }, None);
    viewer.resume(before);
    events[half..].iter().for_each(|event| viewer.push(event));
    let oldest = viewer.history().oldest_step();
    let mut harness = driven(viewer);
    assert!(tells(&harness, &format!("oldest kept step: {oldest}")), "{:?}", harness.root());
    press(&mut harness, Modifiers::NONE, Key::Home);
    let first = harness.state().steps().get(0).expect("a step").step;
    assert_eq!(shown(&harness).0, first);
}

/// Eleven wait at once, and each bar is seen whole.
fn lanes_of_their_own() {
    let mut viewer = viewer(&overload());
    viewer.go(40);
    let harness = driven_in(vec2(1280.0, 720.0), viewer);
    let bars: Vec<Rect> =
        harness.get_all_by_label_contains("queue, sequence ").map(|node| node.rect()).collect();
    assert!(bars.len() >= 12, "{} bars", bars.len());
    for (at, one) in bars.iter().enumerate() {
        for other in &bars[at + 1..] {
            let both = one.shrink(0.6).intersect(other.shrink(0.6));
            assert!(!both.is_positive(), "{one} and {other}");
        }
    }
    let slots = bar(&harness, "slot 0, sequence 0: decode");
    assert!(bars.iter().all(|bar| bar.max.y < slots.min.y));
}
