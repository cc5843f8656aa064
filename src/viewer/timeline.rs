//! The timeline: a lane per slot with what ran there, lanes of the queue above, step borders, and
//! the shown moment. Recorded time runs to the right.

use super::lives::{Life, Phase, Slice};
use super::paint;
use super::stage::{Mark, Stage, Window, describe, is_read};
use super::time::Play;
use super::why;
use crate::base::{SequenceId, counted, duration};
use egui::{
    Align2, Color32, FontId, Key, Mesh, Painter, Rect, Response, ScrollArea, Sense, Shape, Ui,
    pos2, vec2,
};
use std::collections::BTreeMap;

const LANE: f32 = 20.0;
/// Height of the queue, at least and where there is room, and of a lane of it at most.
const QUEUE_MIN: f32 = 42.0;
const QUEUE: f32 = 112.0;
const QUEUE_LANE: f32 = 14.0;
/// Between the queue and the slots, and below for the numbers of steps.
const GAP: f32 = 6.0;
const FOOT: f32 = 18.0;
/// Waiting sequences shown one above the other; more share the last lane.
const QUEUE_LANES: usize = 16;
/// Bars from this height on have room for a label.
const LABEL: f32 = 8.0;
const NAMES: f32 = 52.0;
/// Steps that take more pixels have borders, and numbers stand so far apart.
const BORDERS: f32 = 7.0;
const NUMBERS: f32 = 48.0;
/// What is shown at first of a long stream, in microseconds.
const SPAN: f64 = 120e6;
/// What can be zoomed to, at least and at most.
const SPAN_MIN: f64 = 100.0;
const SPAN_MAX: f64 = 1e12;

/// Recorded time to pixels.
#[derive(Clone, Copy)]
struct Scale {
    window: Window,
    left: f32,
    width: f32,
    /// Height of the queue.
    queue: f32,
}

impl Scale {
    fn x(&self, micros: f64) -> f32 {
        let part = (micros - self.window.from) / (self.window.to - self.window.from);
        self.left + self.width * part.clamp(-4.0, 5.0) as f32
    }

    fn micros(&self, x: f32) -> f64 {
        let part = f64::from((x - self.left) / self.width.max(1.0));
        self.window.from + part * (self.window.to - self.window.from)
    }
}

/// A painted slice, for hit tests and tooltips.
struct Drawn {
    rect: Rect,
    sequence: SequenceId,
    slice: Slice,
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    if stage.steps.is_empty() {
        ui.weak("Nothing has run yet.");
        return;
    }
    let window = window_of(stage);
    bar(ui, stage, window);
    let window = stage.window.unwrap_or(window);
    let slots = stage.lives.iter().flat_map(|(_, l)| &l.slices).filter_map(|s| s.slot).max();
    let lanes = slots.map_or(1, |s| s.saturating_add(1));
    let slots = GAP + lanes as f32 * LANE + FOOT;
    let queue = (ui.available_height() - slots).clamp(QUEUE_MIN, QUEUE);
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        let size = vec2(ui.available_width(), (queue + slots).max(ui.available_height()));
        let (rect, response) = ui.allocate_exact_size(size, Sense::click_and_drag());
        let (left, width) = (rect.min.x + NAMES, rect.width() - NAMES);
        let scale = Scale { window, left, width, queue };
        let painter = ui.painter_at(rect);
        names(ui, &painter, &scale, rect, lanes);
        let inner = rect.with_min_x(scale.left);
        let lanes_painter = ui.painter_at(inner);
        borders(ui, &lanes_painter, stage, &scale, rect);
        let drawn = slices(ui, &lanes_painter, stage, &scale, rect);
        moment(ui, &lanes_painter, stage, &scale, rect);
        pointer(ui, stage, &response, &scale, &drawn);
    });
}

/// The chosen window, or what suits the stream.
fn window_of(stage: &mut Stage<'_>) -> Window {
    let at = stage.picture.micros as f64;
    if let Some(window) = stage.window {
        let seen = |moment: f64| moment >= window.from && moment <= window.to;
        let (before, in_sight) = (window.at, seen(at));
        // Who looks at the past of a run that goes on is left there.
        let left = stage.time.play == Play::Following && !seen(before);
        window.at = at;
        if before != at && !in_sight && !left {
            let half = (window.to - window.from) / 2.0;
            (window.from, window.to) = (at - half, at + half);
        }
        return *window;
    }
    let whole = whole(stage);
    if whole.to - whole.from <= SPAN {
        return whole;
    }
    let centre = match stage.time.play {
        Play::Following => whole.to - SPAN / 2.0,
        _ => at,
    };
    Window { from: centre - SPAN / 2.0, to: centre + SPAN / 2.0, at }
}

/// All that is kept, with a little room at both ends.
fn whole(stage: &Stage<'_>) -> Window {
    let first = stage.steps.get(0).map_or(0, |r| r.planned_micros) as f64;
    let last = stage.steps.last().map_or(0, |r| r.ran_micros.max(r.planned_micros)) as f64;
    let margin = ((last - first) * 0.02).max(1000.0);
    Window { from: first - margin, to: last + margin, at: stage.picture.micros as f64 }
}

/// The window `factor` times as near, `here` staying where it is.
fn zoomed(window: Window, here: f64, factor: f64) -> Window {
    let whole = window.to - window.from;
    let span = (whole / factor).clamp(SPAN_MIN, SPAN_MAX);
    let part = (here - window.from) / whole;
    Window { from: here - part * span, to: here + (1.0 - part) * span, ..window }
}

/// What shows all: nothing chosen, where that is all.
fn all(stage: &Stage<'_>) -> Option<Window> {
    Some(whole(stage)).filter(|whole| whole.to - whole.from > SPAN)
}

fn bar(ui: &mut Ui, stage: &mut Stage<'_>, window: Window) {
    ui.horizontal_wrapped(|ui| {
        let zoom = |factor: f64| Some(zoomed(window, (window.from + window.to) / 2.0, factor));
        if ui.small_button("Fit").on_hover_text("Show all (double click)").clicked() {
            *stage.window = all(stage);
        }
        if ui.small_button("+").on_hover_text("Zoom in (Ctrl + wheel, or W)").clicked() {
            *stage.window = zoom(2.0);
        }
        if ui.small_button("−").on_hover_text("Zoom out (Ctrl + wheel, or S)").clicked() {
            *stage.window = zoom(0.5);
        }
        ui.weak(duration((window.to - window.from) as u64));
        legend(ui);
    });
}

/// What colours stand for here, by itself on a line.
pub fn phases(ui: &mut Ui) {
    ui.horizontal_wrapped(legend);
}

fn legend(ui: &mut Ui) {
    for (name, color) in [
        ("queued", paint::QUEUED),
        ("preempted", paint::PREEMPTED),
        ("swapped", paint::SWAPPED),
        ("prefill", paint::PREFILL),
        ("decode", paint::DECODE),
        ("padding, or no row", paint::PADDING),
    ] {
        ui.add_space(4.0);
        paint::legend(ui, name, color);
    }
}

fn slot_y(scale: &Scale, rect: Rect, slot: u32) -> f32 {
    rect.min.y + scale.queue + GAP + slot as f32 * LANE
}

fn names(ui: &Ui, painter: &Painter, scale: &Scale, rect: Rect, lanes: u32) {
    let color = ui.visuals().weak_text_color();
    let font = FontId::proportional(11.5);
    let at = pos2(rect.min.x + 4.0, rect.min.y + QUEUE_LANE);
    painter.text(at, Align2::LEFT_CENTER, "queue", font.clone(), color);
    // Only those in sight: a damaged recording may name any slot.
    let seen = ui.clip_rect().y_range();
    let slot_at = |y: f32| ((y - slot_y(scale, rect, 0)) / LANE).max(0.0) as u32;
    for slot in slot_at(seen.min)..slot_at(seen.max).saturating_add(1).min(lanes) {
        let at = pos2(rect.min.x + 4.0, slot_y(scale, rect, slot) + LANE / 2.0);
        painter.text(at, Align2::LEFT_CENTER, format!("slot {slot}"), font.clone(), color);
        let line = pos2(rect.max.x, slot_y(scale, rect, slot));
        painter.hline(rect.min.x..=line.x, line.y, (0.5, color.gamma_multiply(0.35)));
    }
}

/// Lines where steps begin, once they are far enough apart, with some of their numbers.
fn borders(ui: &Ui, painter: &Painter, stage: &Stage<'_>, scale: &Scale, rect: Rect) {
    let first = stage.steps.index_at(scale.window.from.max(0.0) as u64);
    let last = stage.steps.index_at(scale.window.to.max(0.0) as u64) + 1;
    let color = ui.visuals().weak_text_color();
    // Where the last step began, and from where on there is room for a number.
    let (mut before, mut free) = (f32::MIN, f32::MIN);
    for row in stage.steps.range(first, last) {
        let x = scale.x(row.planned_micros as f64);
        let apart = x - std::mem::replace(&mut before, x);
        if apart > BORDERS {
            painter.vline(x, rect.y_range(), (0.5, color.gamma_multiply(0.4)));
        }
        if x >= free {
            free = x + NUMBERS;
            let at = pos2(x + 2.0, rect.max.y - 9.0);
            painter.text(at, Align2::LEFT_CENTER, row.step, FontId::proportional(10.0), color);
        }
    }
}

fn color_of(slice: &Slice) -> Color32 {
    match slice.phase {
        Phase::Queued => paint::QUEUED,
        Phase::Preempted => paint::PREEMPTED,
        Phase::Swapped => paint::SWAPPED,
        Phase::Prefill => paint::PREFILL,
        Phase::Decode => paint::DECODE,
        Phase::Held | Phase::Padding => paint::PADDING,
    }
}

fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Preempted => "preempted, queued again",
        Phase::Swapped => "preempted, in host memory, queued again",
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
        Phase::Held => "in its slot without a row",
        Phase::Padding => "done, its place is padding",
    }
}

/// A slice to its end; one in which somebody still waits reaches to the newest moment.
fn whole_slice(stage: &Stage<'_>, life: &Life, slice: &Slice) -> Slice {
    let is_last = life.slices.last() == Some(slice);
    if is_last && slice.slot.is_none() && life.finished.is_none() {
        let now = stage.history.live();
        return Slice { to_step: now.step, to_micros: now.micros, ..*slice };
    }
    *slice
}

/// Slices of sequences that lived in the window, by their beginning.
fn within<'a>(stage: &Stage<'a>, window: Window) -> Vec<(SequenceId, &'a Life, &'a Slice)> {
    let mut all = Vec::new();
    for (id, life) in stage.lives.iter() {
        // Its place may be padding for longer than it lived.
        let last = life.slices.last().map_or(0, |s| s.to_micros);
        let ended = (life.end_micros(u64::MAX).max(last) as f64) < window.from;
        if !ended && life.arrived_micros as f64 <= window.to {
            all.extend(life.slices.iter().map(|slice| (id, life, slice)));
        }
    }
    all.sort_by_key(|(id, _, slice)| (slice.from_micros, *id));
    all
}

/// The lane of the queue for each slice in which somebody waits, and whether it is another's at
/// that time as well; and how many lanes that takes.
fn queue_lanes(
    all: &[(SequenceId, &Life, &Slice)],
    stage: &Stage<'_>,
) -> (Vec<(usize, bool)>, usize) {
    // Until when each lane is taken.
    let mut until: Vec<u64> = Vec::new();
    let mut lanes = Vec::with_capacity(all.len());
    for (_, life, slice) in all {
        if slice.slot.is_some() {
            lanes.push((0, false));
            continue;
        }
        let free = until.iter().position(|&u| u <= slice.from_micros);
        let lane = free.unwrap_or(until.len().min(QUEUE_LANES - 1));
        let shares = free.is_none() && until.len() == QUEUE_LANES;
        until.resize(until.len().max(lane + 1), 0);
        until[lane] = until[lane].max(whole_slice(stage, life, slice).to_micros);
        lanes.push((lane, shares));
    }
    (lanes, until.len())
}

/// How far each slot's lane is painted. Slices come by their beginning.
#[derive(Default)]
pub struct Reached(BTreeMap<u32, f32>);

impl Reached {
    /// Whether there is something to see of the next slice; of less than half a pixel there is not.
    pub fn adds(&mut self, slot: u32, area: Rect) -> bool {
        let reached = self.0.entry(slot).or_insert(f32::MIN);
        let adds = area.max.x >= *reached + 0.5;
        if adds {
            *reached = area.max.x;
        }
        adds
    }
}

fn slices(ui: &Ui, painter: &Painter, stage: &Stage<'_>, scale: &Scale, rect: Rect) -> Vec<Drawn> {
    let lit = stage.focus.sequence(stage.picture);
    let (mut mesh, mut texts, mut drawn) = (Mesh::default(), Vec::new(), Vec::new());
    let mut reached = Reached::default();
    let all = within(stage, scale.window);
    let (lanes, count) = queue_lanes(&all, stage);
    let pitch = (scale.queue / count.max(1) as f32).min(QUEUE_LANE);
    for ((id, life, slice), (lane, shares)) in all.into_iter().zip(lanes) {
        let slice = whole_slice(stage, life, slice);
        let (from, to) = (slice.from_micros as f64, slice.to_micros as f64);
        let (y, height) = match slice.slot {
            Some(slot) => (slot_y(scale, rect, slot) + 1.0, LANE - 3.0),
            None => (rect.min.y + lane as f32 * pitch + 1.0, pitch - (pitch / 7.0).min(2.0)),
        };
        let seen = ui.clip_rect().y_range();
        let outside = y + height < seen.min || y > seen.max;
        if outside || to < scale.window.from || from > scale.window.to {
            continue;
        }
        let area = Rect::from_min_max(pos2(scale.x(from), y), pos2(scale.x(to), y + height));
        let area = area.with_max_x(area.max.x.max(area.min.x + 1.0));
        if slice.slot.is_some_and(|slot| !reached.adds(slot, area)) {
            continue;
        }
        let strength = if lit.is_none_or(|l| l == id) { 1.0 } else { 0.3 };
        let back = paint_slice(ui, &mut mesh, &slice, id, area, strength);
        // Where its lane of the queue is another's as well, there is no room for a label.
        if area.width() > 18.0 && area.height() >= LABEL && !shares {
            texts.push((area, id, back));
        }
        drawn.push(Drawn { rect: area, sequence: id, slice });
    }
    painter.add(Shape::mesh(mesh));
    for (area, id, (back, patterned)) in texts {
        let at = pos2(area.min.x.max(scale.left) + 8.0, area.center().y - 0.5);
        let font = FontId::proportional((area.height() + 0.5).min(12.0));
        let colors = (paint::ink_on(back), patterned.then_some(back));
        paint::plated(painter, at, Align2::LEFT_CENTER, id, font, colors);
    }
    if is_read(ui) {
        for (at, d) in drawn.iter().enumerate() {
            describe(ui, ("slice", at), d.rect, tell(d.sequence, &d.slice));
        }
    }
    drawn
}

/// The phase in its colour, the owner in a stripe at the left; the colour, and whether a pattern
/// is over it.
pub fn paint_slice(
    ui: &Ui,
    mesh: &mut Mesh,
    slice: &Slice,
    id: SequenceId,
    area: Rect,
    strength: f32,
) -> (Color32, bool) {
    let visuals = ui.visuals();
    let back = paint::tint(color_of(slice), 0.85 * strength, visuals);
    mesh.add_colored_rect(area, back);
    if area.width() > 6.0 {
        let stripe = area.with_max_x(area.min.x + 4.0);
        mesh.add_colored_rect(stripe, paint::tint(paint::owner(id), strength, visuals));
    }
    let ink = Color32::BLACK.gamma_multiply(0.35 * strength);
    let wide = area.width() > 4.0;
    match slice.phase {
        Phase::Preempted | Phase::Padding if wide => paint::hatch(mesh, area, ink),
        Phase::Swapped if wide => paint::stripes(mesh, area, ink),
        Phase::Prefill => {
            let edge = paint::tint(paint::FINISHED, strength, visuals);
            paint::frame(mesh, area, 1.0, edge);
        }
        _ => {}
    }
    (back, matches!(slice.phase, Phase::Preempted | Phase::Padding | Phase::Swapped))
}

/// "slot 2, sequence 3: decode, steps 12 to 40, 29 positions, 310 ms".
pub fn tell(sequence: SequenceId, s: &Slice) -> String {
    let place = s.slot.map_or("queue".to_string(), |slot| format!("slot {slot}"));
    let steps = if s.from_step == s.to_step {
        format!("step {}", s.from_step)
    } else {
        format!("steps {} to {}", s.from_step, s.to_step)
    };
    let positions = match s.positions {
        0 => String::new(),
        some => format!(", {}", counted(some, "position")),
    };
    let time = duration(s.to_micros.saturating_sub(s.from_micros));
    format!("{place}, sequence {sequence}: {}, {steps}{positions}, {time}", name_of(s.phase))
}

/// What was decided about it meanwhile.
fn decided(stage: &Stage<'_>, d: &Drawn) -> String {
    let (from, to) = (d.slice.from_step, d.slice.to_step);
    why::told(stage.decisions.about(d.sequence, to).filter(|decision| decision.step >= from))
}

fn moment(ui: &Ui, painter: &Painter, stage: &Stage<'_>, scale: &Scale, rect: Rect) {
    let x = scale.x(stage.picture.micros as f64);
    painter.vline(x, rect.y_range(), (1.5, ui.visuals().strong_text_color()));
}

/// Tooltip, focus, pinning, going to a moment, pan and zoom.
fn pointer(ui: &Ui, stage: &mut Stage<'_>, response: &Response, scale: &Scale, drawn: &[Drawn]) {
    if response.double_clicked() {
        *stage.window = all(stage);
        return;
    }
    let mut window = scale.window;
    let span = window.to - window.from;
    if response.dragged() {
        let by = f64::from(response.drag_delta().x / scale.width.max(1.0)) * span;
        (window.from, window.to) = (window.from - by, window.to - by);
    }
    if let Some(at) = response.hover_pos() {
        let zoom = f64::from(ui.input(egui::InputState::zoom_delta));
        let typing = ui.ctx().egui_wants_keyboard_input();
        let keys = ui.input(|i| {
            // With Ctrl they are somebody else's.
            let plain = !typing && i.modifiers.is_none();
            let pressed = |key| f64::from(u8::from(plain && i.key_pressed(key)));
            pressed(Key::W) - pressed(Key::S)
        });
        let factor = zoom * 1.4f64.powf(keys);
        if factor != 1.0 {
            let here = scale.micros(at.x);
            window = zoomed(window, here, factor);
        }
        let sideways = f64::from(ui.input(|i| i.smooth_scroll_delta().x));
        let by = sideways / f64::from(scale.width.max(1.0)) * (window.to - window.from);
        (window.from, window.to) = (window.from - by, window.to - by);
        let hit = drawn.iter().find(|d| d.rect.expand(1.0).contains(at));
        if let Some(hit) = hit {
            stage.focus.hover(Mark::Sequence(hit.sequence));
            response.clone().on_hover_ui_at_pointer(|ui| {
                ui.label(tell(hit.sequence, &hit.slice) + &decided(stage, hit));
            });
        }
        if response.clicked() {
            match hit {
                Some(hit) => stage.focus.pin(Mark::Sequence(hit.sequence)),
                None => {
                    let index = stage.steps.index_at(scale.micros(at.x).max(0.0) as u64);
                    let step = stage.steps.get(index).map_or(0, |r| r.step);
                    stage.time.go(step, stage.steps);
                }
            }
        }
    }
    if window != scale.window {
        *stage.window = Some(window);
    }
}
