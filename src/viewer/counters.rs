//! Totals at the shown moment, and a few of them over time.

use super::gaps;
use super::paint;
use super::stage::{Mark, Stage};
use super::steps::StepRow;
use crate::base::{SequenceId, duration};
use egui::{Color32, Grid, ScrollArea, Sense, Shape, Stroke, Ui, pos2, vec2};

/// Steps that the rates and curves look back over.
const RECENT: usize = 240;

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        let end = stage.steps.index_of(stage.picture.step) + 1;
        let recent: Vec<StepRow> =
            stage.steps.range(end.saturating_sub(RECENT), end).copied().collect();
        curves(ui, &recent);
        ui.separator();
        totals(ui, stage, &recent);
        worst(ui, stage);
    });
}

fn curves(ui: &mut Ui, recent: &[StepRow]) {
    /// Name, colour, and what it shows of a step.
    type Curve = (&'static str, Color32, fn(&StepRow) -> f64);
    let named: [Curve; 4] = [
        ("free blocks", paint::DECODE, |r| f64::from(r.free)),
        ("waiting", paint::QUEUED, |r| f64::from(r.waiting)),
        ("rows", paint::PREFILL, |r| f64::from(r.rows)),
        ("step time", paint::FINISHED, |r| r.total_micros() as f64),
    ];
    for (name, color, value) in named {
        let (rect, response) =
            ui.allocate_exact_size(vec2(ui.available_width(), 34.0), Sense::hover());
        let most = recent.iter().map(value).fold(1.0, f64::max);
        let x = |at: usize| {
            let part = at as f32 / recent.len().saturating_sub(1).max(1) as f32;
            rect.min.x + 96.0 + (rect.width() - 150.0) * part
        };
        let y = |v: f64| rect.max.y - 3.0 - (rect.height() - 6.0) * (v / most) as f32;
        let points = recent.iter().enumerate().map(|(at, r)| pos2(x(at), y(value(r)))).collect();
        ui.painter().add(Shape::line(points, Stroke::new(1.6, color)));
        let text = |at, text: String, color| {
            let font = egui::FontId::proportional(12.0);
            ui.painter().text(at, egui::Align2::LEFT_CENTER, text, font, color);
        };
        let now = recent.last().map_or(0.0, value);
        let told = |v: f64| {
            if name == "step time" { duration(v as u64) } else { format!("{v:.0}") }
        };
        text(pos2(rect.min.x + 4.0, rect.center().y), name.to_string(), ui.visuals().text_color());
        let right = pos2(rect.max.x - 48.0, rect.center().y);
        text(right, told(now), ui.visuals().strong_text_color());
        response.on_hover_text(format!("{name}: {} now, {} at most", told(now), told(most)));
    }
}

fn totals(ui: &mut Ui, stage: &Stage<'_>, recent: &[StepRow]) {
    let c = &stage.picture.counters;
    let span = match (recent.first(), recent.last()) {
        (Some(a), Some(b)) => b.ran_micros.max(b.planned_micros).saturating_sub(a.planned_micros),
        _ => 0,
    };
    let per_second = |tokens: u64| match span {
        0 => "–".to_string(),
        span => format!("{:.0}", tokens as f64 * 1e6 / span as f64),
    };
    let kept = |r: &StepRow| u64::from(r.decode.saturating_sub(r.wrong()));
    let decode: u64 = recent.iter().map(kept).sum();
    let prefill: u64 = recent.iter().map(|r| u64::from(r.prefill)).sum();
    let finished: u64 = c.finished.values().sum();
    let oldest = stage.history.oldest_step();
    let mebibytes = stage.history.bytes() as f64 / f64::from(1 << 20);
    let kept = format!("from step {oldest} on, {mebibytes:.1} MiB");
    let guesses = (c.drafted_tokens > 0)
        .then(|| ("tokens guessed, right", format!("{}, {}", c.drafted_tokens, c.drafts_right)));
    let entries = [
        ("decode tokens per second", per_second(decode)),
        ("prefill tokens per second", per_second(prefill)),
        ("steps", c.steps.to_string()),
        ("running, waiting", format!("{}, {}", stage.picture.running(), stage.picture.queue.len())),
        ("requests arrived", c.arrived.to_string()),
        ("requests refused", c.refused.to_string()),
        ("sequences finished", finished.to_string()),
        ("preemptions", c.preempted.to_string()),
        ("computed tokens lost by them", c.lost_tokens.to_string()),
        ("rows delayed", c.delayed.to_string()),
        ("tokens sampled", c.sampled_tokens.to_string()),
        ("prefill tokens", c.prefill_tokens.to_string()),
        ("padding tokens", c.padding_tokens.to_string()),
        ("tokens found in the prefix cache", c.matched_tokens.to_string()),
        ("shared, cached blocks", {
            let p = stage.picture;
            format!("{}, {}", p.shared_blocks(), p.cached_blocks())
        }),
        ("blocks to and from host memory", format!("{}, {}", c.swapped_out, c.swapped_in)),
        ("device time", duration(c.device_micros)),
        ("events lost on the way", c.events_dropped.to_string()),
        ("kept", kept),
    ];
    Grid::new("totals").num_columns(2).spacing(vec2(18.0, 3.0)).striped(true).show(ui, |ui| {
        for (name, value) in entries.into_iter().chain(guesses) {
            ui.weak(name);
            ui.strong(value);
            ui.end_row();
        }
    });
}

/// The longest wait between two tokens of the whole stream, and on whose account.
fn worst(ui: &mut Ui, stage: &mut Stage<'_>) {
    let Some((id, index)) = stage.lives.worst_gap() else { return };
    let mark = stage.lives.get(id).and_then(|life| life.tokens.get(index));
    let Some(told) = mark.map(|mark| gaps::sentence(&mark.gap)) else { return };
    ui.separator();
    let text = format!("Worst token gap, sequence {id}, token {}: {told}", index + 1);
    let response = ui.add(egui::Label::new(text).wrap().sense(Sense::click()));
    if response.on_hover_text("Go to it").clicked() {
        go_to(stage, id, index);
    }
}

/// Shows the moment of a token and pins its sequence.
pub fn go_to(stage: &mut Stage<'_>, id: SequenceId, index: usize) {
    let step = stage.lives.get(id).and_then(|l| l.tokens.get(index)).map(|t| t.step);
    if let Some(step) = step {
        stage.time.go(step, stage.steps);
        stage.focus.pinned = Some(Mark::Sequence(id));
    }
}
