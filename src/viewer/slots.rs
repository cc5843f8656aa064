//! The slots view: a row per slot with who sits there, what it does, how far it is, and the end of
//! what it wrote.

use super::lives::Life;
use super::paint;
use super::stage::{Mark, Stage, describe, is_read};
use crate::base::SequenceId;
use crate::trace::{Picture, RowPicture, SequencePicture};
use egui::{Align2, Color32, FontId, Mesh, Rect, ScrollArea, Sense, Shape, Ui, pos2, vec2};

const ROW: f32 = 24.0;
const NAMES: [&str; 6] = ["slot", "sequence", "state", "tokens of limit", "tok/s", "text"];
/// Left edges of the columns, where there is room for all and where there is not.
const WIDE: [f32; 6] = [6.0, 40.0, 104.0, 200.0, 310.0, 372.0];
const NARROW: [f32; 6] = [4.0, 26.0, 66.0, 136.0, 216.0, 254.0];

fn columns(width: f32) -> [f32; 6] {
    if width < WIDE[5] + 40.0 { NARROW } else { WIDE }
}

/// What a sequence does in the shown step.
pub fn doing(picture: &Picture, sequence: SequenceId) -> &'static str {
    let row = picture.last_step.rows.iter().find(|r| r.sequence == Some(sequence));
    match row {
        Some(row) if row.pad => "padding",
        Some(row) if row.len > 1 => "prefill",
        Some(_) => "decode",
        None => "no row",
    }
}

/// "slot 2, sequence 3, decode, 27 of 96 tokens".
fn label(slot: usize, sequence: SequenceId, picture: &Picture, s: &SequencePicture) -> String {
    let doing = doing(picture, sequence);
    let most = s.prompt.saturating_add(s.max_new_tokens);
    format!("slot {slot}, sequence {sequence}, {doing}, {} of {most} tokens", s.known)
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    header(ui);
    let slots = stage.picture.slots.len();
    if slots == 0 {
        ui.weak("Nothing has run yet.");
        return;
    }
    ScrollArea::vertical().auto_shrink(false).show_rows(ui, ROW, slots, |ui, rows| {
        ui.spacing_mut().item_spacing.y = 0.0;
        for slot in rows {
            row(ui, stage, slot);
        }
    });
}

fn header(ui: &mut Ui) {
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
    let (painter, columns) = (ui.painter_at(rect), columns(rect.width()));
    for (at, name) in NAMES.into_iter().enumerate() {
        let left = pos2(rect.min.x + columns[at], rect.center().y);
        let end = columns.get(at + 1).map_or(rect.max.x, |next| rect.min.x + next - 3.0);
        let color = ui.visuals().weak_text_color();
        paint::line(&painter, left, end - left.x, name, (11.5, color));
    }
}

fn row(ui: &mut Ui, stage: &mut Stage<'_>, slot: usize) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let (painter, columns) = (ui.painter_at(rect), columns(rect.width()));
    let visuals = ui.visuals().clone();
    let text = |x: f32, text: String, color: Color32| {
        let at = pos2(rect.min.x + x, rect.center().y);
        painter.text(at, Align2::LEFT_CENTER, text, FontId::proportional(13.0), color);
    };
    text(columns[0], slot.to_string(), visuals.weak_text_color());
    let sequence = stage.picture.slots.get(slot).copied().flatten();
    let found = sequence.and_then(|id| Some((id, stage.picture.sequences.get(&id)?)));
    let Some((id, s)) = found else {
        text(columns[1], "empty".to_string(), visuals.weak_text_color());
        if is_read(ui) {
            describe(ui, ("slot", slot), rect, format!("slot {slot}, empty"));
        }
        return;
    };
    if response.hovered() {
        stage.focus.hover(Mark::Sequence(id));
    }
    if response.clicked() {
        stage.focus.pin(Mark::Sequence(id));
    }
    if stage.focus.sequence(stage.picture) == Some(id) {
        painter.rect_filled(rect, 2.0, visuals.selection.bg_fill.gamma_multiply(0.35));
    }
    chip(ui, pos2(rect.min.x + columns[1], rect.center().y), id);
    let doing = doing(stage.picture, id);
    text(columns[2], doing_text(stage.picture, id, doing), visuals.text_color());
    let progress = Rect::from_min_size(
        pos2(rect.min.x + columns[3], rect.min.y + 4.0),
        vec2(columns[4] - columns[3] - 8.0, ROW - 8.0),
    );
    progress_bar(ui, progress, s);
    let life = stage.lives.get(id);
    let rate = life.and_then(|l| stage.rate(l));
    text(columns[4], rate.map_or("–".to_string(), rounded), visuals.text_color());
    if let Some(life) = life {
        tail(ui, stage, rect.with_min_x(rect.min.x + columns[5]), life);
    }
    if is_read(ui) {
        describe(ui, ("slot", slot), rect, label(slot, id, stage.picture, s));
    }
    menu(&response, stage, id);
}

/// The end of what it wrote: where that is too long, its beginning is cut.
fn tail(ui: &Ui, stage: &Stage<'_>, room: Rect, life: &Life) {
    // No letter that is much written is narrower.
    let most = (room.width() / 3.5).max(0.0) as usize;
    let (font, color) = (FontId::proportional(13.0), ui.visuals().text_color());
    let galley = ui.painter().layout_no_wrap(stage.tail(life, most), font, color);
    let left = room.min.x.min(room.max.x - 2.0 - galley.size().x);
    let at = pos2(left, room.center().y - galley.size().y / 2.0);
    ui.painter_at(room).galley(at, galley, color);
}

/// Two digits at least.
fn rounded(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// Right click: copy, cancel.
fn menu(response: &egui::Response, stage: &mut Stage<'_>, id: SequenceId) {
    response.context_menu(|ui| {
        if ui.button("Copy sequence id").clicked() {
            ui.ctx().copy_text(id.to_string());
            ui.close();
        }
        let request = stage.picture.sequences.get(&id).map(|s| s.request).filter(|_| stage.live);
        if let Some(request) = request
            && ui.button("Cancel its request").clicked()
        {
            stage.commands.push(super::command::ViewCommand::Cancel(request));
            ui.close();
        }
    });
}

fn doing_text(picture: &Picture, id: SequenceId, doing: &str) -> String {
    let row = picture.last_step.rows.iter().find(|r| r.sequence == Some(id) && !r.pad);
    match row {
        Some(RowPicture { len, .. }) if *len > 1 => format!("prefill +{len}"),
        Some(RowPicture { drafts, .. }) if *drafts > 0 => format!("decode +{drafts}?"),
        _ => doing.to_string(),
    }
}

/// The sequence's number on its colour.
pub fn chip(ui: &Ui, left: egui::Pos2, id: SequenceId) {
    let rect = Rect::from_min_size(left - vec2(0.0, 8.0), vec2(34.0, 16.0));
    let color = paint::owner(id);
    ui.painter().rect_filled(rect, 3.0, color);
    let ink = paint::ink_on(color);
    ui.painter().text(rect.center(), Align2::CENTER_CENTER, id, FontId::proportional(12.0), ink);
}

/// Prompt computed, generated, and what may still come; the numbers stand on it.
fn progress_bar(ui: &Ui, rect: Rect, s: &SequencePicture) {
    let visuals = ui.visuals();
    let most = s.prompt.saturating_add(s.max_new_tokens).max(1) as f32;
    let mut mesh = Mesh::default();
    let mut part = |from: u32, to: u32, color: Color32| {
        let x = |tokens: u32| rect.min.x + rect.width() * (tokens as f32 / most).min(1.0);
        let bar = Rect::from_min_max(pos2(x(from), rect.min.y), pos2(x(to), rect.max.y));
        mesh.add_colored_rect(bar, color);
    };
    let computed_prompt = s.computed.min(s.prompt);
    part(0, computed_prompt, paint::tint(paint::PREFILL, 0.55, visuals));
    part(s.prompt, s.known.max(s.prompt), paint::tint(paint::DECODE, 0.55, visuals));
    paint::frame(&mut mesh, rect, 1.0, visuals.weak_text_color());
    ui.painter().add(Shape::mesh(mesh));
    let text = format!("{} / {}", s.known, most);
    let font = FontId::proportional(11.0);
    ui.painter().text(
        rect.center(),
        Align2::CENTER_CENTER,
        text,
        font,
        visuals.strong_text_color(),
    );
}
