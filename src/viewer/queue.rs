//! Who waits, in which order, for how long, and for what.

use super::gaps::duration;
use super::slots::chip;
use super::stage::{Mark, Stage, describe, is_read};
use crate::base::SequenceId;
use crate::trace::{DelayReason, Picture, SequencePicture};
use egui::{Align2, FontId, ScrollArea, Sense, Ui, pos2, vec2};

const ROW: f32 = 22.0;
const COLUMNS: [f32; 6] = [6.0, 44.0, 108.0, 178.0, 250.0, 304.0];

/// Since when a waiting sequence waits: its arrival, or its last preemption.
fn since(stage: &Stage<'_>, id: SequenceId, s: &SequencePicture) -> u64 {
    let shown = stage.picture.step;
    let life = stage.lives.get(id);
    let slice = life.and_then(|l| l.slices.iter().rfind(|s| s.from_step <= shown));
    slice.filter(|s| s.slot.is_none()).map_or(s.arrived_micros, |s| s.from_micros)
}

/// What the next of the queue waits for, in words.
fn reason(picture: &Picture, place: usize, s: &SequencePicture) -> String {
    if place > 0 && s.delay.is_none() {
        return "behind others".to_string();
    }
    match s.delay {
        Some(DelayReason::Slots) => "for a slot".to_string(),
        Some(DelayReason::Blocks) => format!("for blocks: {} are free", picture.free_blocks()),
        Some(DelayReason::Peak) => "for room at the foreseen peak".to_string(),
        Some(DelayReason::Protected) => "so that nobody is preempted too often".to_string(),
        Some(DelayReason::Sibling) => "for its prompt, which a sibling computes".to_string(),
        Some(DelayReason::InFlight) => "for the step it was preempted out of".to_string(),
        None => "next".to_string(),
    }
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let queue = &stage.picture.queue;
    ui.horizontal(|ui| {
        ui.label(format!("{} wait", queue.len()));
        if let Some(policies) = stage.picture.policies {
            ui.weak(format!("order: {}", policies.order));
        }
    });
    let names = ["place", "sequence", "waits", "prompt", "tenant", "why"];
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
    for (name, x) in names.iter().zip(COLUMNS) {
        let at = pos2(rect.min.x + x, rect.center().y);
        let color = ui.visuals().weak_text_color();
        ui.painter().text(at, Align2::LEFT_CENTER, name, FontId::proportional(11.5), color);
    }
    if queue.is_empty() {
        ui.weak("Nobody waits.");
        return;
    }
    ScrollArea::vertical().auto_shrink(false).show_rows(ui, ROW, queue.len(), |ui, places| {
        ui.spacing_mut().item_spacing.y = 0.0;
        for place in places {
            row(ui, stage, place);
        }
    });
}

fn row(ui: &mut Ui, stage: &mut Stage<'_>, place: usize) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let picture = stage.picture;
    let Some(&id) = picture.queue.get(place) else { return };
    let Some(s) = picture.sequences.get(&id) else { return };
    if response.hovered() {
        stage.focus.hover(Mark::Sequence(id));
    }
    if response.clicked() {
        stage.focus.pin(Mark::Sequence(id));
    }
    let painter = ui.painter_at(rect);
    if stage.focus.sequence(picture) == Some(id) {
        painter.rect_filled(rect, 2.0, ui.visuals().selection.bg_fill.gamma_multiply(0.35));
    }
    let waits = picture.micros.saturating_sub(since(stage, id, s));
    let why = reason(picture, place, s);
    let tenant =
        if s.class > 0 { format!("{} / {}", s.tenant, s.class) } else { s.tenant.to_string() };
    let again = match s.preemptions {
        0 => String::new(),
        1 => ", preempted once".to_string(),
        times => format!(", preempted {times} times"),
    };
    let prompt = format!("{} tokens", s.prompt);
    chip(ui, pos2(rect.min.x + COLUMNS[1], rect.center().y), id);
    for (x, text) in [
        (COLUMNS[0], (place + 1).to_string()),
        (COLUMNS[2], duration(waits)),
        (COLUMNS[3], prompt),
        (COLUMNS[4], tenant),
        (COLUMNS[5], format!("{why}{again}")),
    ] {
        let at = pos2(rect.min.x + x, rect.center().y);
        let color = ui.visuals().text_color();
        painter.text(at, Align2::LEFT_CENTER, text, FontId::proportional(13.0), color);
    }
    if is_read(ui) {
        let label = format!(
            "queue place {}, sequence {id}, waits {}, {why}{again}",
            place + 1,
            duration(waits)
        );
        describe(ui, ("queue", place), rect, label);
    }
}
