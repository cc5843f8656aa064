//! What a sequence wrote: every token on the colour of the time it took, with whom it waited for.

use super::counters::go_to;
use super::gaps;
use super::paint;
use super::stage::Stage;
use crate::base::{SequenceId, counted, duration};
use egui::{Color32, Mesh, Rect, RichText, ScrollArea, Sense, Shape, Ui, pos2, vec2};

/// The sequence in focus, or the one that wrote last.
fn chosen(stage: &Stage<'_>) -> Option<SequenceId> {
    let focus = stage.focus.pinned.and_then(|mark| mark.sequence(stage.picture));
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
    let heat = Heat::of(&gaps);
    ui.horizontal(|ui| {
        ui.strong(format!("sequence {id}"));
        ui.label(counted(shown as u64, "token"));
        if let Some(first) = life.gap_micros(0).filter(|_| shown > 0) {
            ui.weak(format!("first after {}", duration(first)));
        }
        if let Some(middle) = gaps.get(gaps.len() / 2) {
            ui.weak(format!("then {} each, {} at worst", duration(*middle), duration(most)));
        }
    });
    if shown > 1 {
        heat.legend(ui);
    }
    if let Some(text) = stage.prompts.get(&life.request) {
        ui.weak(shorten(text, 160));
    }
    let mut clicked = None;
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing = vec2(1.0, 3.0);
            for index in 0..shown {
                if token(ui, stage, id, index, heat) {
                    clicked = Some(index);
                }
            }
        });
    });
    if let Some(index) = clicked {
        go_to(stage, id, index);
    }
}

/// The waits that the ends of the scale of colours stand for, in microseconds.
#[derive(Clone, Copy)]
struct Heat {
    least: u64,
    most: u64,
}

impl Heat {
    /// From the shortest wait to the longest, in equal ratios; a factor of ten at least, so that
    /// only a stall is bright.
    fn of(sorted: &[u64]) -> Self {
        let least = sorted.first().copied().unwrap_or(1).max(1);
        let most = sorted.last().copied().unwrap_or(1).max(least.saturating_mul(10));
        Self { least, most }
    }

    fn color(self, micros: u64) -> Color32 {
        let part = |micros: u64| (micros.max(self.least) as f32 / self.least as f32).ln();
        paint::heat(part(micros) / part(self.most))
    }

    fn legend(self, ui: &mut Ui) {
        ui.horizontal(|ui| {
            ui.weak(format!("waited {}", duration(self.least)));
            let (rect, _) = ui.allocate_exact_size(vec2(120.0, 10.0), Sense::hover());
            let mut mesh = Mesh::default();
            let pieces = 24;
            for piece in 0..pieces {
                let x = |at: i32| rect.min.x + rect.width() * at as f32 / pieces as f32;
                let (from, to) = (pos2(x(piece), rect.min.y), pos2(x(piece + 1), rect.max.y));
                let color = paint::heat(piece as f32 / (pieces - 1) as f32);
                mesh.add_colored_rect(Rect::from_min_max(from, to), color);
            }
            ui.painter().add(Shape::mesh(mesh));
            ui.weak(format!("{}; the first is not on the scale", duration(self.most)));
        });
    }
}

/// One token; true when it was clicked.
fn token(ui: &mut Ui, stage: &Stage<'_>, id: SequenceId, index: usize, heat: Heat) -> bool {
    let Some(life) = stage.lives.get(id) else { return false };
    let Some(mark) = life.tokens.get(index) else { return false };
    let gap = life.gap_micros(index).unwrap_or(0);
    let back = if index == 0 { ui.visuals().extreme_bg_color } else { heat.color(gap) };
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
