//! Who waits, in which order, by which score, for how long, and for what.

use super::paint;
use super::slots::chip;
use super::stage::{Mark, Stage, describe, is_read};
use crate::base::{Order, SequenceId, counted, duration, form};
use crate::trace::{DelayReason, Picture, SequencePicture};
use egui::{Id, Rect, ScrollArea, Sense, Ui, pos2, vec2};

const ROW: f32 = 22.0;
const COLUMNS: [(&str, f32); 7] = [
    ("place", 6.0),
    ("sequence", 40.0),
    ("score", 98.0),
    ("waits", 148.0),
    ("prompt", 204.0),
    ("tenant", 254.0),
    ("why", 308.0),
];

/// Whether each tenant has an order of its own.
fn takes_turns(picture: &Picture) -> bool {
    matches!(picture.policies.unwrap_or_default().order, Order::Fair { .. })
}

/// Those that wait, each with its place: by score, and where tenants take turns, among its
/// tenant's. Whose turn that is, the stream does not tell.
fn places(picture: &Picture) -> Vec<(usize, SequenceId)> {
    let fair = takes_turns(picture);
    let mut turns: Vec<_> = picture
        .queue
        .iter()
        .filter_map(|id| {
            let s = picture.sequences.get(id)?;
            Some((if fair { s.tenant } else { 0 }, picture.score(s), s.order, *id))
        })
        .collect();
    turns.sort_unstable();
    let mut place = (0, 0);
    turns
        .into_iter()
        .map(|(lane, _, _, id)| {
            place = if place.0 == lane { (lane, place.1 + 1) } else { (lane, 1) };
            (place.1, id)
        })
        .collect()
}

/// What the order goes by, and of what it is made.
fn score(picture: &Picture, s: &SequencePicture) -> String {
    match picture.policies.unwrap_or_default().order {
        Order::Fcfs => format!("#{}", s.order + 1),
        _ => picture.score(s).to_string(),
    }
}

fn about_score(order: Order) -> &'static str {
    match order {
        Order::Fcfs => "The lowest is next: the number of its arrival.",
        Order::Shortest => {
            "The lowest is next: tokens processed before it came, and prompt and foreseen output \
             as a part of the longest, times the aging."
        }
        Order::Priority => {
            "The lowest is next: tokens processed before it came, and its class as a part of the \
             last, times the aging."
        }
        Order::Fair { .. } => {
            "The lowest is its tenant's next: tokens processed before it came. Of the tenants the \
             one is next that was served least."
        }
    }
}

/// Since when a waiting sequence waits: its arrival, or its last preemption.
fn since(stage: &Stage<'_>, id: SequenceId, s: &SequencePicture) -> u64 {
    let shown = stage.picture.step;
    let life = stage.lives.get(id);
    let slice = life.and_then(|l| l.slices.iter().rfind(|s| s.from_step <= shown));
    slice.filter(|s| s.slot.is_none()).map_or(s.arrived_micros, |s| s.from_micros)
}

/// What the one at `place` waits for, in words.
fn reason(picture: &Picture, place: usize, s: &SequencePicture) -> String {
    if place > 1 && s.delay.is_none() {
        return "behind others".to_string();
    }
    match s.delay {
        Some(DelayReason::Slots) => "for a slot".to_string(),
        Some(DelayReason::Blocks) => {
            let free = picture.free_blocks();
            format!("for blocks: {free} {} free", form(free, "is", "are"))
        }
        Some(DelayReason::Peak) => "for room at the foreseen peak".to_string(),
        Some(DelayReason::Protected) => "so that nobody is preempted too often".to_string(),
        Some(DelayReason::Sibling) => "for its prompt, which a sibling computes".to_string(),
        Some(DelayReason::InFlight) => "for the step it was preempted out of".to_string(),
        None if takes_turns(picture) => "its tenant's next".to_string(),
        None => "next".to_string(),
    }
}

/// The same with its class, where that counts, and what became of it before.
fn why(picture: &Picture, place: usize, s: &SequencePicture) -> String {
    let mut why = reason(picture, place, s);
    if picture.policies.is_some_and(|p| p.order == Order::Priority) {
        why += &format!(", class {}", s.class);
    }
    match s.preemptions {
        0 => {}
        1 => why += ", preempted once",
        times => why += &format!(", preempted {times} times"),
    }
    if s.swapped > 0 {
        why += &format!(", {} in host memory", counted(s.swapped, "position"));
    }
    why
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let waiting = places(stage.picture);
    let order = stage.picture.policies.unwrap_or_default().order;
    ui.horizontal(|ui| {
        let count = waiting.len();
        ui.label(format!("{count} {}", form(count as u64, "waits", "wait")));
        ui.weak(format!("order: {order}"));
    });
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
    for (name, x) in COLUMNS {
        let color = ui.visuals().weak_text_color();
        let left = pos2(rect.min.x + x, rect.center().y);
        paint::line(ui.painter(), left, rect.max.x - left.x, name, (11.5, color));
        if name == "score" {
            let area = Rect::from_min_size(pos2(left.x, rect.min.y), vec2(40.0, rect.height()));
            let head = ui.interact(area, Id::unique("what the score is"), Sense::hover());
            head.on_hover_text(about_score(order));
        }
    }
    if waiting.is_empty() {
        ui.weak("Nobody waits.");
        return;
    }
    ScrollArea::vertical().auto_shrink(false).show_rows(ui, ROW, waiting.len(), |ui, rows| {
        ui.spacing_mut().item_spacing.y = 0.0;
        for &(place, id) in &waiting[rows] {
            row(ui, stage, place, id);
        }
    });
}

fn row(ui: &mut Ui, stage: &mut Stage<'_>, place: usize, id: SequenceId) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let picture = stage.picture;
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
    let waits = duration(picture.micros.saturating_sub(since(stage, id, s)));
    let (score, why) = (score(picture, s), why(picture, place, s));
    let tenant = s.tenant.to_string();
    let label = format!("queue place {place}, sequence {id}, score {score}, waits {waits}, {why}");
    chip(ui, pos2(rect.min.x + COLUMNS[1].1, rect.center().y), id);
    let texts = [place.to_string(), String::new(), score, waits, s.prompt.to_string(), tenant, why];
    for (at, text) in texts.into_iter().enumerate() {
        let left = pos2(rect.min.x + COLUMNS[at].1, rect.center().y);
        let end = COLUMNS.get(at + 1).map_or(rect.max.x, |next| rect.min.x + next.1 - 4.0);
        paint::line(&painter, left, end - left.x, text, (13.0, ui.visuals().text_color()));
    }
    if is_read(ui) {
        describe(ui, ("queue", id), rect, label.clone());
    }
    response.on_hover_ui(|ui| {
        ui.label(label);
    });
}
