//! The window as a person uses it: found by labels, driven by keys and clicks, answered by
//! commands.

use super::scene::{Stream, overload, viewer};
use crate::support::Rows;
use egui::accesskit::Role;
use egui::{Key, Modifiers, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use std::time::Instant;
use tilewright::base::{Limits, SequenceId};
use tilewright::trace::{Cursor, Event, Picture, Stamped};
use tilewright::viewer::{
    EngineState, Note, Phase, Play, Preset, Source, View, ViewCommand, Viewer, gap_sentence,
    to_csv, to_perfetto,
};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::labels_say_what_cells_show", labels_say_what_cells_show);
    rows.add("viewer::keys_move_through_time", keys_move_through_time);
    rows.add("viewer::typing_is_not_steering", typing_is_not_steering);
    rows.add("viewer::hover_lights_and_click_pins", hover_lights_and_click_pins);
    rows.add("viewer::every_view_tells_its_numbers", every_view_tells_its_numbers);
    rows.add("viewer::slow_frames_take_clicks", slow_frames_take_clicks);
    rows.add("viewer::guesses_are_told", guesses_are_told);
    rows.add("viewer::wishes_leave_as_commands", wishes_leave_as_commands);
    rows.add("viewer::two_pauses_are_two_states", two_pauses_are_two_states);
    rows.add("viewer::palette_finds_actions", palette_finds_actions);
    rows.add("viewer::a_lost_device_leaves_the_window_up", a_lost_device_leaves_the_window_up);
    rows.add("viewer::following_shows_what_comes_in", following_shows_what_comes_in);
    rows.add("viewer::layout_is_kept", layout_is_kept);
    rows.add("viewer::the_first_run_explains_the_map", the_first_run_explains_the_map);
    rows.add("viewer::small_and_scaled_windows_hold", small_and_scaled_windows_hold);
    rows.add("viewer::idle_asks_for_no_frame", idle_asks_for_no_frame);
    rows.add("viewer::frame_cost", frame_cost);
}

pub type Driven = Harness<'static, Viewer>;

pub fn driven(viewer: Viewer) -> Driven {
    driven_in(vec2(1280.0, 720.0), viewer)
}

pub fn driven_in(size: egui::Vec2, viewer: Viewer) -> Driven {
    let harness = Harness::builder().with_size(size).with_max_steps(12);
    let mut harness = harness.build_ui_state(|ui, viewer: &mut Viewer| viewer.show(ui), viewer);
    Viewer::prepare(&harness.ctx);
    harness.run();
    harness
}

/// Lets go of a key, as people do: the next press is a press again.
pub fn press(harness: &mut Driven, modifiers: Modifiers, key: Key) {
    harness.key_press_modifiers(modifiers, key);
    harness.run();
}

pub fn shown(harness: &Driven) -> (u64, Play) {
    harness.state().time()
}

fn picture(events: &[Stamped], step: u64) -> Picture {
    let mut viewer = viewer(events);
    viewer.go(step);
    let mut cursor = Cursor::default();
    viewer.history().picture_at(step, &mut cursor).clone()
}

/// A step in which several sequences run and blocks are partly filled.
const STEP: u64 = 40;

fn labels_say_what_cells_show() {
    let events = overload();
    let picture = picture(&events, STEP);
    let mut viewer = viewer(&events);
    viewer.go(STEP);
    let harness = driven(viewer);
    let size = picture.limits.expect("limits").block_size;
    let mut partly = 0;
    for (at, block) in picture.blocks.iter().enumerate() {
        let label = match block.owner.filter(|_| block.tables > 0) {
            Some(owner) => {
                let filled = picture.filled(owner, block.index);
                partly += u32::from(filled > 0 && filled < size);
                format!("block {at}, sequence {owner}, {filled} of {size}")
            }
            None => format!("block {at}, free"),
        };
        harness.get_by_label_contains(&label);
    }
    assert!(partly > 0 && picture.running() > 1, "the step shows something");
    for (slot, id) in picture.slots.iter().enumerate() {
        let label = match id {
            Some(id) => format!("slot {slot}, sequence {id}, "),
            None => format!("slot {slot}, empty"),
        };
        assert!(harness.query_all_by_label_contains(&label).count() >= 1, "{label}");
    }
}

/// A button that goes down in one frame and up in the next has clicked, be they seconds apart.
fn slow_frames_take_clicks() {
    let harness = Harness::builder().with_size(vec2(1280.0, 720.0)).with_step_dt(2.0);
    let viewer = viewer(&overload());
    let mut harness = harness.build_ui_state(|ui, viewer: &mut Viewer| viewer.show(ui), viewer);
    harness.run_steps(3);
    assert!(harness.query_by_label("What if?").is_none());
    let pos = harness.get_by_label("What if").rect().center();
    harness.hover_at(pos);
    harness.run_steps(2);
    for pressed in [true, false] {
        let (button, modifiers) = (egui::PointerButton::Primary, Modifiers::NONE);
        harness.event(egui::Event::PointerButton { pos, button, pressed, modifiers });
        harness.step();
    }
    harness.run_steps(2);
    harness.get_by_label("What if?");
}

fn keys_move_through_time() {
    let mut harness = driven(viewer(&overload()));
    let newest = shown(&harness).0;
    assert_eq!(shown(&harness), (newest, Play::Following));
    press(&mut harness, Modifiers::NONE, Key::ArrowLeft);
    assert_eq!(shown(&harness), (newest - 1, Play::Paused));
    press(&mut harness, Modifiers::SHIFT, Key::ArrowLeft);
    assert_eq!(shown(&harness), (newest - 11, Play::Paused));
    press(&mut harness, Modifiers::NONE, Key::ArrowRight);
    assert_eq!(shown(&harness), (newest - 10, Play::Paused));
    press(&mut harness, Modifiers::SHIFT, Key::ArrowRight);
    assert_eq!(shown(&harness), (newest, Play::Paused));
    press(&mut harness, Modifiers::NONE, Key::Home);
    let first = harness.state().steps().get(0).expect("a step").step;
    assert_eq!(shown(&harness), (first, Play::Paused));
    press(&mut harness, Modifiers::NONE, Key::ArrowLeft);
    assert_eq!(shown(&harness), (first, Play::Paused), "nothing is before the first");
    harness.key_press(Key::Space);
    harness.run_steps(1);
    assert_eq!(shown(&harness).1, Play::Playing);
    // Playing goes on by itself, to the end, and stands there.
    for _ in 0..20_000 {
        harness.step();
        if shown(&harness).1 == Play::Paused {
            break;
        }
    }
    assert_eq!(shown(&harness), (newest, Play::Paused));
    press(&mut harness, Modifiers::NONE, Key::Space);
    assert_eq!(shown(&harness).1, Play::Following, "playing on at the end is following");
    press(&mut harness, Modifiers::NONE, Key::Space);
    assert_eq!(shown(&harness), (newest, Play::Paused));
    press(&mut harness, Modifiers::NONE, Key::End);
    assert_eq!(shown(&harness), (newest, Play::Following));
}

fn typing_is_not_steering() {
    let mut harness = driven(live());
    harness.get_by_role_and_label(Role::MultilineTextInput, "Prompt").focus();
    harness.run();
    let before = shown(&harness);
    press(&mut harness, Modifiers::NONE, Key::Home);
    press(&mut harness, Modifiers::NONE, Key::Space);
    press(&mut harness, Modifiers::NONE, Key::P);
    assert_eq!(shown(&harness), before);
    assert!(harness.state_mut().take_commands().is_empty());
}

fn hover_lights_and_click_pins() {
    let events = overload();
    let mut viewer = viewer(&events);
    viewer.go(STEP);
    let picture = picture(&events, STEP);
    let at = picture.blocks.iter().position(|b| b.tables > 0).expect("a held block");
    let owner = picture.blocks[at].owner.expect("an owner");
    let mut harness = driven(viewer);
    let label = format!("block {at}, sequence {owner}");
    let centre = harness.get_by_label_contains(&label).rect().center();
    harness.hover_at(centre);
    harness.run();
    assert!(harness.query_by_label(&format!("Block {at}")).is_some(), "details on hover");
    harness.drag_at(centre);
    harness.drop_at(centre);
    harness.run();
    harness.hover_at(egui::pos2(640.0, 5.0));
    harness.run();
    assert!(harness.query_by_label(&format!("Block {at}")).is_some(), "details stay when pinned");
    harness.get_by_label("Unpin").click();
    harness.run();
    assert!(harness.query_by_label(&format!("Block {at}")).is_none());
}

fn every_view_tells_its_numbers() {
    let events = overload();
    let preempted = events.iter().filter(|e| matches!(e.event, Event::SequencePreempted { .. }));
    let preempted = preempted.count();
    for (view, text) in [
        (View::Slots, "sequence "),
        (View::Blocks, "block 0, "),
        (View::Timeline, "preempted, queued again"),
        (View::Steps, "prefill of "),
        (View::Queue, "queue place 1, sequence "),
        (View::Counters, "Worst token gap, sequence "),
        (View::Text, " tokens"),
        (View::Chats, "Another chat"),
        (View::Kernels, "No kernel times"),
        (View::Why, "was admitted"),
    ] {
        let mut viewer = viewer(&events);
        viewer.go(STEP);
        let harness = Harness::builder().with_size(vec2(900.0, 500.0));
        let show = move |ui: &mut egui::Ui, viewer: &mut Viewer| viewer.show_one(ui, view);
        let mut harness = harness.build_ui_state(show, viewer);
        harness.run();
        let found = harness.query_all_by_label_contains(text).count();
        assert!(found > 0, "{view:?} does not say {text:?}: {:?}", harness.root());
    }
    assert!(preempted > 0);
}

/// Two sequences decode, then guess four tokens each, of which three are right.
fn guesses_are_told() {
    let mut stream = Stream::of(2, 8);
    stream.step(2, 8, 1);
    stream.guess(2, 9, 1, (4, 3));
    let of = picture(&stream.events, 2);
    assert!(of.last_step.rows.iter().all(|row| (row.len, row.drafts) == (1, 4)));
    assert!(of.sequences.values().all(|s| (s.computed, s.known) == (13, 14)), "{of:?}");
    // What was guessed right is computed: position 12 is nothing new, 13 is.
    stream.step(1, 12, 1);
    stream.step(1, 13, 1);
    let mut viewer = viewer(&stream.events);
    let life = viewer.lives().get(SequenceId(0)).expect("a life");
    let slices: Vec<_> = life.slices.iter().map(|s| (s.phase, s.positions)).collect();
    let decodes = |n| (Phase::Decode, n);
    assert_eq!(slices[slices.len() - 3..], [decodes(5), (Phase::Prefill, 1), decodes(1)]);
    let told: Vec<_> = life.tokens.iter().map(|mark| gap_sentence(&mark.gap)).collect();
    let with = "0 µs: with the token before it, a right guess";
    assert_eq!(told.iter().filter(|told| *told == with).count(), 3, "{told:?}");
    let csv = String::from_utf8(to_csv(viewer.steps())).expect("text");
    let ends = ["drafted,right", "0,0", "8,6", "0,0", "0,0"];
    assert!(csv.lines().zip(ends).all(|(line, end)| line.ends_with(end)), "{csv}");
    let perfetto = String::from_utf8(to_perfetto(viewer.history())).expect("text");
    assert_eq!(perfetto.matches("decode 1 and 4 guesses").count(), 1);
    viewer.go(2);
    let mut harness = driven(viewer);
    let bar = harness.get_by_label_contains("step 2: 10 decode (8 guesses, 6 right) + 0 prefill");
    let centre = bar.rect().center();
    harness.drag_at(centre);
    harness.drop_at(centre);
    harness.run();
    let rows = "sequence 1: decodes position 9. It tries 4 guesses at what follows. Of them 3 were \
                right: 4 tokens in a step.";
    assert!(harness.query_by_label(rows).is_some(), "{:?}", harness.root());
}

fn live() -> Viewer {
    let mut viewer = Viewer::default().without_hint();
    let (model, device) = ("fable".to_string(), "nothing".to_string());
    viewer.open(Source::Engine { model, device }, None);
    viewer.set_engine(EngineState::Running);
    Stream::of(2, 4).events.iter().for_each(|event| viewer.push(event));
    viewer
}

fn wishes_leave_as_commands() {
    // High enough for everything on the left to be in sight.
    let mut harness = driven_in(vec2(1280.0, 1200.0), live());
    harness.get_by_label("Send").click();
    harness.run();
    let sent = harness.state_mut().take_commands();
    let [ViewCommand::Submit(one)] = &sent[..] else { panic!("{sent:?}") };
    assert!(!one.prompt.is_empty() && one.max_tokens.is_some());
    harness.get_by_label("Send 4").click();
    harness.run();
    assert_eq!(harness.state_mut().take_commands().len(), 4);
    harness.get_by_label("overload").click();
    harness.run();
    let sent = harness.state_mut().take_commands();
    assert_eq!(sent, [ViewCommand::Preset(Preset::find("overload").expect("a preset"))]);
    harness.get_by_label("Limits").click();
    harness.run();
    let apply = "Apply from the next step on";
    assert!(harness.get_by_label(apply).accesskit_node().is_disabled(), "nothing is changed yet");
    let now = harness.state().history().live().limits.expect("limits");
    harness.get_by_role_and_label(Role::SpinButton, "sequences").click();
    harness.run();
    harness.event(egui::Event::Text("7".to_string()));
    harness.run();
    press(&mut harness, Modifiers::NONE, Key::Enter);
    harness.get_by_label(apply).click();
    harness.run();
    let limits = Limits { sequences_max: 7, ..now };
    assert_eq!(harness.state_mut().take_commands(), [ViewCommand::SetLimits(limits)]);
    assert!(harness.get_by_label(apply).accesskit_node().is_disabled(), "it is on its way");
}

fn two_pauses_are_two_states() {
    let mut harness = driven(live());
    assert!(harness.query_by_label("engine runs").is_some());
    assert!(harness.query_by_label("view following").is_some());
    press(&mut harness, Modifiers::NONE, Key::Space);
    assert!(harness.query_by_label("view paused").is_some());
    assert!(harness.query_by_label("engine runs").is_some(), "the engine goes on");
    press(&mut harness, Modifiers::NONE, Key::P);
    assert_eq!(harness.state_mut().take_commands(), [ViewCommand::PauseEngine(true)]);
    harness.state_mut().set_engine(EngineState::Paused);
    press(&mut harness, Modifiers::NONE, Key::End);
    assert!(harness.query_by_label("engine paused").is_some());
    assert!(harness.query_by_label("view following").is_some());
    harness.get_by_label("One step").click();
    harness.run();
    press(&mut harness, Modifiers::NONE, Key::P);
    let sent = harness.state_mut().take_commands();
    assert_eq!(sent, [ViewCommand::StepEngine, ViewCommand::PauseEngine(false)]);
}

fn palette_finds_actions() {
    let mut harness = driven(viewer(&overload()));
    press(&mut harness, Modifiers::COMMAND, Key::P);
    harness.event(egui::Event::Text("oldest".to_string()));
    harness.run();
    press(&mut harness, Modifiers::NONE, Key::Enter);
    let first = harness.state().steps().get(0).expect("a step").step;
    assert_eq!(shown(&harness), (first, Play::Paused));
    assert!(harness.query_by_label("Find an action").is_none(), "it has closed");
    press(&mut harness, Modifiers::COMMAND, Key::P);
    harness.event(egui::Event::Text("csv".to_string()));
    harness.run();
    press(&mut harness, Modifiers::NONE, Key::Enter);
    let sent = harness.state_mut().take_commands();
    assert!(
        matches!(&sent[..], [ViewCommand::Save { name, .. }] if name == "steps.csv"),
        "{sent:?}"
    );
    // After a search that found one, the list is as high as before: its box is in the middle.
    let top = |harness: &Driven| harness.get_by_label_contains("Find an action").rect().min.y;
    press(&mut harness, Modifiers::COMMAND, Key::P);
    harness.run_steps(4);
    assert!(top(&harness) < 240.0, "{}", top(&harness));
}

fn a_lost_device_leaves_the_window_up() {
    let mut viewer = viewer(&overload());
    viewer.set_engine(EngineState::Failed("the device was lost: planted".to_string()));
    viewer.note(Note::Problem("request 3: no room".to_string()));
    let mut harness = driven(viewer);
    assert!(harness.query_all_by_label_contains("the device was lost: planted").count() > 0);
    assert!(harness.query_by_label("request 3: no room").is_some());
    let newest = shown(&harness).0;
    press(&mut harness, Modifiers::NONE, Key::ArrowLeft);
    assert_eq!(shown(&harness).0, newest - 1, "the past can still be looked at");
    harness.get_by_label("Dismiss").click();
    harness.run();
    assert!(harness.query_by_label("request 3: no room").is_none());
}

fn following_shows_what_comes_in() {
    let events = overload();
    let (early, late) = events.split_at(events.len() / 2);
    let mut harness = driven(viewer(early));
    assert_eq!(shown(&harness).0, early[early.len() - 1].step);
    press(&mut harness, Modifiers::NONE, Key::Space);
    let stood = shown(&harness).0;
    late.iter().for_each(|event| harness.state_mut().push(event));
    harness.run();
    assert_eq!(shown(&harness).0, stood, "a paused view stands while the engine goes on");
    press(&mut harness, Modifiers::NONE, Key::End);
    assert_eq!(shown(&harness).0, events[events.len() - 1].step);
}

fn layout_is_kept() {
    let mut one = viewer(&overload());
    one.restore("not ours");
    let text = one.saved();
    let mut other = Viewer::default();
    other.restore(&text);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(json(&other.saved()), json(&text));
    assert!(text.contains("timeline"), "{text}");
    // One that was saved before a view was added would hide it.
    other.restore(&text.replace("\"what_if\"", "\"why\""));
    assert!(other.saved().contains("what_if"), "{}", other.saved());
}

fn the_first_run_explains_the_map() {
    let mut viewer = Viewer::default();
    overload().iter().for_each(|event| viewer.push(event));
    let mut harness = driven(viewer);
    assert!(harness.query_all_by_label_contains("Hollow cells are free").count() > 0);
    harness.get_by_label("Understood").click();
    harness.run();
    assert_eq!(harness.query_all_by_label_contains("Hollow cells are free").count(), 0);
    let text = harness.state().saved();
    let mut next = Viewer::default();
    next.restore(&text);
    let harness = driven(next);
    assert_eq!(harness.query_all_by_label_contains("Hollow cells are free").count(), 0);
}

fn small_and_scaled_windows_hold() {
    let events = overload();
    for (size, scale) in
        [(vec2(1280.0, 720.0), 1.5), (vec2(900.0, 560.0), 1.0), (vec2(300.0, 200.0), 1.0)]
    {
        let harness = Harness::builder().with_size(size).with_pixels_per_point(scale);
        let show = |ui: &mut egui::Ui, viewer: &mut Viewer| viewer.show(ui);
        let mut harness = harness.build_ui_state(show, viewer(&events));
        harness.run();
        assert_eq!(shown(&harness).1, Play::Following);
    }
    // 1280 by 720 pixels at 150 %: the panels give way, and what is looked at has room.
    let mut viewer = viewer(&events);
    viewer.go(STEP);
    let harness = driven_in(vec2(1280.0 / 1.5, 720.0 / 1.5), viewer);
    let of = |label: &str| {
        let mut all = harness.get_all_by_label_contains(label);
        all.next().unwrap_or_else(|| panic!("{label} is not drawn")).rect()
    };
    assert!(of("Details").min.x > 640.0, "{}", of("Details"));
    assert!(of("block 0, ").width() >= 19.0, "room for a label: {}", of("block 0, "));
    let (slot, strip) = (of("slot 2, sequence 2: decode"), of("time, step "));
    assert!(slot.max.y < strip.min.y - 30.0, "{slot} is behind {strip}");
    assert!(of("All actions").max.x <= 1280.0 / 1.5, "{}", of("All actions"));
}

fn idle_asks_for_no_frame() {
    let mut harness = driven(viewer(&overload()));
    harness.run_steps(4);
    let output = harness.output().viewport_output.values().next().expect("a viewport");
    let delay = output.repaint_delay;
    assert!(delay > std::time::Duration::from_secs(3600), "a frame is asked for in {delay:?}");
}

/// What a frame of 200 slots and 10,000 blocks costs the processor. The time is shown, not judged.
fn frame_cost() {
    let (slots, blocks) = (200, 50);
    let mut stream = Stream::of(slots, blocks);
    for step in 0..50 {
        stream.step(slots, 8 + step, 1);
    }
    let mut viewer = viewer(&stream.events);
    let mut ctx = egui::Context::default();
    Viewer::prepare(&ctx);
    let frame = |viewer: &mut Viewer, ctx: &mut egui::Context, at: u32| {
        let rect = egui::Rect::from_min_size(egui::Pos2::ZERO, vec2(1920.0, 1080.0));
        let input = egui::RawInput {
            screen_rect: Some(rect),
            time: Some(f64::from(at) / 60.0),
            ..egui::RawInput::default()
        };
        let mut output = ctx.run_ui(input, |ui| viewer.show(ui));
        output.textures_delta.clear();
        ctx.tessellate(output.shapes, output.pixels_per_point).len()
    };
    for at in 0..5 {
        frame(&mut viewer, &mut ctx, at);
    }
    let frames = 20;
    let began = Instant::now();
    for at in 0..frames {
        assert!(frame(&mut viewer, &mut ctx, 5 + at) > 0);
    }
    let each = began.elapsed().as_micros() / u128::from(frames);
    let held = viewer.history().live().blocks.iter().filter(|b| b.tables > 0).count();
    assert_eq!((held, viewer.history().live().running()), (10_000, slots));
    println!("a frame of {slots} slots and {held} blocks: {each} µs");
}
