//! The timeline: a lane per slot with what ran there, lanes of the queue above, step borders, and
//! the shown moment. Recorded time runs to the right.

use super::gaps::duration;
use super::lives::{Life, Phase, Slice};
use super::paint;
use super::stage::{Mark, Stage, Window, describe, is_read};
use super::time::Play;
use crate::base::SequenceId;
use egui::{
    Align2, Color32, FontId, Key, Mesh, Painter, Rect, Response, ScrollArea, Sense, Shape, Ui,
    pos2, vec2,
};

const LANE: f32 = 20.0;
const QUEUE_LANE: f32 = 12.0;
/// Waiting sequences shown one above the other; more share the last lane.
const QUEUE_LANES: usize = 8;
const NAMES: f32 = 52.0;
/// What is shown at first of a long stream, in microseconds.
const SPAN: f64 = 120e6;

/// Recorded time to pixels.
#[derive(Clone, Copy)]
struct Scale {
    window: Window,
    left: f32,
    width: f32,
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
    let slots = stage.lives.iter().flat_map(|(_, l)| &l.slices).filter_map(|s| s.slot).max();
    let lanes = slots.map_or(1, |s| s + 1) as f32;
    let height = QUEUE_LANES as f32 * QUEUE_LANE + 6.0 + lanes * LANE + 18.0;
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        let size = vec2(ui.available_width(), height.max(ui.available_height()));
        let (rect, response) = ui.allocate_exact_size(size, Sense::click_and_drag());
        let scale = Scale { window, left: rect.min.x + NAMES, width: rect.width() - NAMES };
        let painter = ui.painter_at(rect);
        names(ui, &painter, rect, lanes as u32);
        let inner = rect.with_min_x(scale.left);
        let lanes_painter = ui.painter_at(inner);
        borders(ui, &lanes_painter, stage, &scale, rect);
        let drawn = slices(ui, &lanes_painter, stage, &scale, rect);
        moment(ui, &lanes_painter, stage, &scale, rect);
        pointer(ui, stage, &response, &scale, &drawn);
    });
}

/// The chosen window, or what suits the stream.
fn window_of(stage: &Stage<'_>) -> Window {
    if let Some(window) = *stage.window {
        return window;
    }
    let first = stage.steps.get(0).map_or(0, |r| r.planned_micros) as f64;
    let last = stage.steps.last().map_or(0, |r| r.ran_micros.max(r.planned_micros)) as f64;
    let margin = ((last - first) * 0.02).max(1000.0);
    if last - first <= SPAN {
        return Window { from: first - margin, to: last + margin };
    }
    let centre = match stage.time.play {
        Play::Following => last - SPAN / 2.0,
        _ => stage.picture.micros as f64,
    };
    Window { from: centre - SPAN / 2.0, to: centre + SPAN / 2.0 }
}

fn bar(ui: &mut Ui, stage: &mut Stage<'_>, window: Window) {
    ui.horizontal_wrapped(|ui| {
        let zoom = |factor: f64| {
            let centre = (window.from + window.to) / 2.0;
            let half = (window.to - window.from) / 2.0 * factor;
            Some(Window { from: centre - half, to: centre + half })
        };
        if ui.small_button("Fit").on_hover_text("Show all (double click)").clicked() {
            *stage.window = None;
        }
        if ui.small_button("+").on_hover_text("Zoom in (Ctrl + wheel)").clicked() {
            *stage.window = zoom(0.5);
        }
        if ui.small_button("−").on_hover_text("Zoom out (Ctrl + wheel)").clicked() {
            *stage.window = zoom(2.0);
        }
        ui.weak(duration((window.to - window.from) as u64));
        for (name, color) in [
            ("queued", paint::QUEUED),
            ("preempted", paint::PREEMPTED),
            ("prefill", paint::PREFILL),
            ("decode", paint::DECODE),
            ("padding, or no row", paint::PADDING),
        ] {
            ui.add_space(4.0);
            paint::legend(ui, name, color);
        }
    });
}

fn queue_y(rect: Rect, lane: usize) -> f32 {
    rect.min.y + lane as f32 * QUEUE_LANE
}

fn slot_y(rect: Rect, slot: u32) -> f32 {
    rect.min.y + QUEUE_LANES as f32 * QUEUE_LANE + 6.0 + slot as f32 * LANE
}

fn names(ui: &Ui, painter: &Painter, rect: Rect, lanes: u32) {
    let color = ui.visuals().weak_text_color();
    let font = FontId::proportional(11.5);
    let at = pos2(rect.min.x + 4.0, queue_y(rect, 0) + QUEUE_LANE);
    painter.text(at, Align2::LEFT_CENTER, "queue", font.clone(), color);
    for slot in 0..lanes {
        let at = pos2(rect.min.x + 4.0, slot_y(rect, slot) + LANE / 2.0);
        if !ui.clip_rect().expand(LANE).y_range().contains(at.y) {
            continue;
        }
        painter.text(at, Align2::LEFT_CENTER, format!("slot {slot}"), font.clone(), color);
        let line = pos2(rect.max.x, slot_y(rect, slot));
        painter.hline(rect.min.x..=line.x, line.y, (0.5, color.gamma_multiply(0.35)));
    }
}

/// Lines where steps begin, once they are far enough apart, with some of their numbers.
fn borders(ui: &Ui, painter: &Painter, stage: &Stage<'_>, scale: &Scale, rect: Rect) {
    let first = stage.steps.index_at(scale.window.from.max(0.0) as u64);
    let last = stage.steps.index_at(scale.window.to.max(0.0) as u64) + 1;
    let per_step = scale.width / (last - first).max(1) as f32;
    let color = ui.visuals().weak_text_color();
    let every = (56.0 / per_step.max(0.01)).ceil().max(1.0) as u64;
    for (at, row) in stage.steps.range(first, last).enumerate() {
        let x = scale.x(row.planned_micros as f64);
        if per_step > 7.0 {
            painter.vline(x, rect.y_range(), (0.5, color.gamma_multiply(0.4)));
        }
        if (at as u64).is_multiple_of(every) {
            let at = pos2(x + 2.0, rect.max.y - 9.0);
            painter.text(at, Align2::LEFT_CENTER, row.step, FontId::proportional(10.0), color);
        }
    }
}

fn color_of(slice: &Slice) -> Color32 {
    match slice.phase {
        Phase::Queued => paint::QUEUED,
        Phase::Preempted => paint::PREEMPTED,
        Phase::Prefill => paint::PREFILL,
        Phase::Decode => paint::DECODE,
        Phase::Held | Phase::Padding => paint::PADDING,
    }
}

fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Preempted => "preempted, queued again",
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
        Phase::Held => "in its slot without a row",
        Phase::Padding => "done, its place is padding",
    }
}

/// When a slice ends; one that still waits reaches to the newest moment.
fn end_of(stage: &Stage<'_>, life: &Life, slice: &Slice) -> u64 {
    let is_last = life.slices.last() == Some(slice);
    if is_last && slice.slot.is_none() && life.finished.is_none() {
        return stage.history.live().micros;
    }
    slice.to_micros
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

fn slices(ui: &Ui, painter: &Painter, stage: &Stage<'_>, scale: &Scale, rect: Rect) -> Vec<Drawn> {
    let lit = stage.focus.sequence(stage.picture);
    let (mut mesh, mut texts, mut drawn) = (Mesh::default(), Vec::new(), Vec::new());
    // Until when each lane of the queue is taken.
    let mut queue = [f64::MIN; QUEUE_LANES];
    let mut reached: Vec<f32> = Vec::new();
    let all = within(stage, scale.window);
    for (id, life, slice) in all {
        let (from, to) = (slice.from_micros as f64, end_of(stage, life, slice) as f64);
        // Its lane of the queue is another's as well: no room for a label.
        let mut shares = false;
        let (y, height) = match slice.slot {
            Some(slot) => (slot_y(rect, slot) + 1.0, LANE - 3.0),
            None => {
                let free = queue.iter().position(|&u| u <= from);
                let lane = free.unwrap_or(QUEUE_LANES - 1);
                shares = free.is_none();
                queue[lane] = to.max(queue[lane]);
                (queue_y(rect, lane) + 1.0, QUEUE_LANE - 2.0)
            }
        };
        let seen = ui.clip_rect().y_range();
        let outside = y + height < seen.min || y > seen.max;
        if outside || to < scale.window.from || from > scale.window.to {
            continue;
        }
        let area = Rect::from_min_max(pos2(scale.x(from), y), pos2(scale.x(to), y + height));
        let area = area.with_max_x(area.max.x.max(area.min.x + 1.0));
        // A neighbour of less than half a pixel adds nothing to see.
        if let Some(slot) = slice.slot {
            let at = slot as usize;
            reached.resize(reached.len().max(at + 1), f32::MIN);
            if area.max.x < reached[at] + 0.5 {
                continue;
            }
            reached[at] = area.max.x;
        }
        let strength = if lit.is_none_or(|l| l == id) { 1.0 } else { 0.3 };
        paint_slice(ui, &mut mesh, slice, id, area, strength);
        if area.width() > 18.0 && !shares {
            texts.push((area, id, strength));
        }
        drawn.push(Drawn {
            rect: area,
            sequence: id,
            slice: Slice { to_micros: to as u64, ..*slice },
        });
    }
    painter.add(Shape::mesh(mesh));
    for (area, id, strength) in texts {
        let at = pos2(area.min.x.max(scale.left) + 8.0, area.center().y);
        let ink = Color32::BLACK.gamma_multiply(strength);
        let font = FontId::proportional((area.height() - 3.0).min(12.0));
        painter.text(at, Align2::LEFT_CENTER, id, font, ink);
    }
    if is_read(ui) {
        for (at, d) in drawn.iter().enumerate() {
            describe(ui, ("slice", at), d.rect, tell(d));
        }
    }
    drawn
}

/// The phase in its colour, the owner in a stripe at the left, a wedge where a place was lost.
fn paint_slice(ui: &Ui, mesh: &mut Mesh, slice: &Slice, id: SequenceId, area: Rect, strength: f32) {
    let visuals = ui.visuals();
    mesh.add_colored_rect(area, paint::tint(color_of(slice), 0.85 * strength, visuals));
    if area.width() > 6.0 {
        let stripe = area.with_max_x(area.min.x + 4.0);
        mesh.add_colored_rect(stripe, paint::tint(paint::owner(id), strength, visuals));
    }
    match slice.phase {
        Phase::Preempted | Phase::Padding if area.width() > 4.0 => {
            paint::hatch(mesh, area, Color32::BLACK.gamma_multiply(0.35 * strength));
        }
        Phase::Prefill => {
            let edge = paint::tint(paint::FINISHED, strength, visuals);
            paint::frame(mesh, area, 1.0, edge);
        }
        _ => {}
    }
}

/// "sequence 3: decode, steps 12 to 40, 29 positions, 310 ms".
fn tell(d: &Drawn) -> String {
    let s = &d.slice;
    let place = s.slot.map_or("queue".to_string(), |slot| format!("slot {slot}"));
    let steps = if s.from_step == s.to_step {
        format!("step {}", s.from_step)
    } else {
        format!("steps {} to {}", s.from_step, s.to_step)
    };
    let positions =
        if s.positions > 0 { format!(", {} positions", s.positions) } else { String::new() };
    let time = duration(s.to_micros.saturating_sub(s.from_micros));
    format!("{place}, sequence {}: {}, {steps}{positions}, {time}", d.sequence, name_of(s.phase))
}

fn moment(ui: &Ui, painter: &Painter, stage: &Stage<'_>, scale: &Scale, rect: Rect) {
    let x = scale.x(stage.picture.micros as f64);
    painter.vline(x, rect.y_range(), (1.5, ui.visuals().strong_text_color()));
}

/// Tooltip, focus, pinning, going to a moment, pan and zoom.
fn pointer(ui: &Ui, stage: &mut Stage<'_>, response: &Response, scale: &Scale, drawn: &[Drawn]) {
    if response.double_clicked() {
        *stage.window = None;
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
        let keys = ui.input(|i| {
            f64::from(u8::from(i.key_pressed(Key::W))) - f64::from(u8::from(i.key_pressed(Key::S)))
        });
        let factor = zoom * 1.4f64.powf(keys);
        if factor != 1.0 {
            let here = scale.micros(at.x);
            let span = (span / factor).clamp(100.0, 1e12);
            let part = (here - window.from) / (window.to - window.from);
            window = Window { from: here - part * span, to: here + (1.0 - part) * span };
        }
        let sideways = f64::from(ui.input(|i| i.smooth_scroll_delta().x));
        let by = sideways / f64::from(scale.width.max(1.0)) * (window.to - window.from);
        (window.from, window.to) = (window.from - by, window.to - by);
        let hit = drawn.iter().find(|d| d.rect.expand(1.0).contains(at));
        if let Some(hit) = hit {
            stage.focus.hover(Mark::Sequence(hit.sequence));
            response.clone().on_hover_text_at_pointer(tell(hit));
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
