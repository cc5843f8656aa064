//! What a sequence wrote: every token on the colour of the time it took, with whom it waited for.

use super::counters::go_to;
use super::gaps::{self, duration};
use super::paint;
use super::stage::{Mark, Stage};
use crate::base::SequenceId;
use egui::{RichText, ScrollArea, Sense, Ui, vec2};

/// The sequence in focus, or the one that wrote last.
fn chosen(stage: &Stage<'_>) -> Option<SequenceId> {
    let focus = stage.focus.pinned.and_then(|mark| match mark {
        Mark::Sequence(id) => Some(id),
        Mark::Block(block) => stage.picture.blocks.get(block.index())?.owner,
        Mark::Step(_) => None,
    });
    focus.filter(|id| stage.lives.get(*id).is_some()).or_else(|| {
        let shown = stage.lives.iter().filter_map(|(id, life)| {
            let at = stage.tokens_shown(life).checked_sub(1)?;
            Some((life.tokens[at].micros, id))
        });
        shown.max().map(|s| s.1)
    })
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let Some(id) = chosen(stage) else {
        ui.weak("No token has been written yet.");
        return;
    };
    let Some(life) = stage.lives.get(id) else { return };
    let shown = stage.tokens_shown(life);
    let mut gaps: Vec<u64> = (1..shown).filter_map(|i| life.gap_micros(i)).collect();
    gaps.sort_unstable();
    let most = gaps.last().copied().unwrap_or(1).max(1);
    ui.horizontal(|ui| {
        ui.strong(format!("sequence {id}"));
        ui.label(format!("{shown} tokens"));
        if let Some(first) = life.gap_micros(0).filter(|_| shown > 0) {
            ui.weak(format!("first after {}", duration(first)));
        }
        if let Some(middle) = gaps.get(gaps.len() / 2) {
            ui.weak(format!("then {} each, {} at worst", duration(*middle), duration(most)));
        }
    });
    if let Some(text) = stage.prompts.get(&life.request) {
        ui.weak(shorten(text, 160));
    }
    let mut clicked = None;
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing = vec2(1.0, 3.0);
            for index in 0..shown {
                if token(ui, stage, id, index, most) {
                    clicked = Some(index);
                }
            }
        });
    });
    if let Some(index) = clicked {
        go_to(stage, id, index);
    }
}

/// One token; true when it was clicked.
fn token(ui: &mut Ui, stage: &Stage<'_>, id: SequenceId, index: usize, most: u64) -> bool {
    let Some(life) = stage.lives.get(id) else { return false };
    let Some(mark) = life.tokens.get(index) else { return false };
    let gap = life.gap_micros(index).unwrap_or(0);
    // By decades, so that a stall stands out and the usual still differs.
    let heat = if index == 0 { 0.0 } else { (gap.max(1) as f32).ln() / (most.max(2) as f32).ln() };
    let back = paint::heat(heat.powi(3));
    let word = stage.word(mark.token).replace(['\n', '\r'], "¶");
    let text = RichText::new(word).background_color(back).color(paint::ink_on(back)).monospace();
    let response = ui.add(egui::Label::new(text).sense(Sense::click()).selectable(false));
    let clicked = response.clicked();
    response.on_hover_ui(|ui| {
        let position = mark.gap.position;
        ui.label(format!("token {} at position {position}, step {}", index + 1, mark.step));
        ui.label(gaps::sentence(&mark.gap));
    });
    clicked
}

/// The start of a text on one line.
pub fn shorten(text: &str, chars: usize) -> String {
    let line = text.replace(['\n', '\r'], "¶");
    match line.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
