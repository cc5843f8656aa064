//! The bottom: playing, the shown step, and the whole kept stream as a strip with marks. The strip
//! is dragged to go through time.

use super::actions::Action;
use super::paint;
use super::stage::{Stage, describe, is_read};
use super::steps::{Marks, StepRow};
use super::time::Play;
use super::why;
use crate::base::duration;
use crate::trace::{Event, Stamped};
use egui::{Button, Mesh, Rect, Sense, Shape, Slider, Ui, pos2, vec2};

/// Returns what was asked for with the buttons.
pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) -> Option<Action> {
    let mut wish = None;
    ui.horizontal_wrapped(|ui| {
        for (text, action, about) in [
            ("Oldest", Action::Home, "To the oldest kept step"),
            ("−1", Action::Shift(-1), "One step back"),
            (
                if stage.time.play == Play::Paused { "Play" } else { "Pause" },
                Action::TogglePlay,
                "Play or pause the view; the engine is not held by it",
            ),
            ("+1", Action::Shift(1), "One step forward"),
            ("Newest", Action::Follow, "To the newest step, and follow"),
        ] {
            let about = format!("{about} ({})", action.key_text());
            if ui.add(Button::new(text).min_size(vec2(34.0, 20.0))).on_hover_text(about).clicked() {
                wish = Some(action);
            }
        }
        let word = match stage.time.play {
            Play::Paused => "view paused",
            Play::Playing => "view playing",
            Play::Following => "view following",
        };
        ui.strong(word);
        let newest = stage.steps.last().map_or(0, |r| r.step);
        ui.label(format!("step {} of {newest}", stage.picture.step));
        ui.weak(duration(stage.picture.micros));
        let oldest = stage.history.oldest_step();
        if oldest > 0 {
            ui.weak(format!("oldest kept step: {oldest}")).on_hover_text(
                "Memory is bounded: older events made room for newer ones, or came before this \
                 window looked.",
            );
        }
        let label = ui.weak("speed");
        let slider = Slider::new(&mut stage.time.speed, 0.05..=20.0).logarithmic(true).suffix("×");
        ui.add(slider.max_decimals(2)).labelled_by(label.id);
    });
    strip(ui, stage);
    wish
}

fn strip(ui: &mut Ui, stage: &mut Stage<'_>) {
    let (rect, response) =
        ui.allocate_exact_size(vec2(ui.available_width(), 30.0), Sense::click_and_drag());
    let count = stage.steps.len();
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 3.0, ui.visuals().extreme_bg_color);
    if count == 0 {
        return;
    }
    let width = rect.width();
    let x = |index: usize| rect.min.x + width * (index as f32 + 0.5) / count as f32;
    let columns = (width as usize).clamp(1, count);
    let steps = |column: usize| {
        let from = column * count / columns;
        (from, ((column + 1) * count / columns).max(from + 1))
    };
    let mut mesh = Mesh::default();
    for column in 0..columns {
        let (from, to) = steps(column);
        let sum = condense(stage.steps.range(from, to));
        let area = Rect::from_min_max(
            pos2(rect.min.x + width * column as f32 / columns as f32, rect.max.y - 16.0 * sum.full),
            pos2(rect.min.x + width * (column + 1) as f32 / columns as f32, rect.max.y),
        );
        mesh.add_colored_rect(area, paint::tint(paint::DECODE, 0.45, ui.visuals()));
        let middle = area.center().x;
        // Shape and height tell the marks apart, colour only helps.
        if sum.marks.preempted > 0 {
            paint::wedge(&mut mesh, pos2(middle, rect.min.y + 9.0), 8.0, true, paint::PREEMPTED);
        }
        if sum.marks.admitted > 0 {
            let at = pos2(middle, rect.max.y - 7.0);
            paint::wedge(&mut mesh, at, 6.0, false, paint::PREFILL);
        }
        if sum.marks.finished > 0 {
            paint::dot(&mut mesh, pos2(middle, rect.center().y - 1.0), 2.5, paint::FINISHED);
        }
        if sum.marks.refused > 0 || sum.marks.changed {
            let at = Rect::from_center_size(pos2(middle, rect.min.y + 4.0), vec2(3.0, 6.0));
            mesh.add_colored_rect(at, ui.visuals().strong_text_color());
        }
    }
    painter.add(Shape::mesh(mesh));
    let at = stage.steps.index_of(stage.picture.step);
    painter.vline(x(at), rect.y_range(), (2.0, ui.visuals().strong_text_color()));
    if let Some(pointer) = response.interact_pointer_pos().or(response.hover_pos()) {
        let part = ((pointer.x - rect.min.x) / width).clamp(0.0, 1.0);
        // Of the steps below the pointer, the first with a mark.
        let (from, to) = steps(((part * columns as f32) as usize).min(columns - 1));
        let marked = stage.steps.range(from, to).find(|row| row.marks != Marks::default());
        if let Some(row) = marked.or(stage.steps.get(from)).copied() {
            if response.clicked() || response.dragged() {
                stage.time.go(row.step, stage.steps);
            }
            let rare = |stamped: &&Stamped| is_rare(&stamped.event);
            let why = why::told(stage.decisions.of_steps(row.step, row.step).filter(rare));
            response.on_hover_text_at_pointer(tell(&row) + &why);
        }
    }
    if is_read(ui) {
        let newest = stage.steps.last().map_or(0, |r| r.step);
        let label = format!("time, step {} of {newest}", stage.picture.step);
        describe(ui, "strip", rect, label);
    }
}

/// What is told in full where its mark stands; admissions and ends are many.
fn is_rare(event: &Event) -> bool {
    matches!(
        event,
        Event::SequencePreempted { .. }
            | Event::RequestRefused { .. }
            | Event::LimitsChanged { .. }
            | Event::PoliciesChanged { .. }
            | Event::EventsDropped { .. }
    )
}

/// "step 12: 2 admitted, 1 preempted".
fn tell(row: &StepRow) -> String {
    let marks = row.marks;
    let mut text = format!("step {}", row.step);
    for (count, what) in [
        (marks.arrived, "arrived"),
        (marks.admitted, "admitted (wedge below)"),
        (marks.preempted, "preempted (wedge above)"),
        (marks.finished, "finished (dot)"),
        (marks.refused, "refused (bar)"),
    ] {
        if count > 0 {
            text += &format!("\n{count} {what}");
        }
    }
    if marks.changed {
        text += "\nlimits or policies changed (bar)";
    }
    text
}

struct Condensed {
    /// Largest share of the budget that was used.
    full: f32,
    marks: Marks,
}

fn condense<'a>(rows: impl Iterator<Item = &'a StepRow>) -> Condensed {
    let mut sum = Condensed { full: 0.0, marks: Marks::default() };
    for row in rows {
        sum.full = sum.full.max(row.tokens() as f32 / row.budget.max(1) as f32);
        let marks = &mut sum.marks;
        marks.admitted = marks.admitted.saturating_add(row.marks.admitted);
        marks.preempted = marks.preempted.saturating_add(row.marks.preempted);
        marks.finished = marks.finished.saturating_add(row.marks.finished);
        marks.refused = marks.refused.saturating_add(row.marks.refused);
        marks.changed |= row.marks.changed;
    }
    sum.full = sum.full.min(1.0);
    sum
}
