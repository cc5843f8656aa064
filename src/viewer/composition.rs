//! What steps are made of: decode, prefill and padding against the budget above, and where their
//! time went below.

use super::gaps::duration;
use super::paint;
use super::stage::{Mark, Stage, describe, is_read};
use super::steps::StepRow;
use egui::{Align2, Color32, FontId, Mesh, Rect, Sense, Shape, Ui, pos2, vec2};

const BAR: f32 = 7.0;

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    legend(ui);
    let size = ui.available_size();
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let columns = (rect.width() / BAR).floor().max(1.0) as usize;
    // The shown step is the last bar.
    let end = stage.steps.index_of(stage.picture.step) + 1;
    let first = end.saturating_sub(columns);
    let rows: Vec<StepRow> = stage.steps.range(first, end).copied().collect();
    if rows.is_empty() {
        ui.painter().text(
            rect.center(),
            Align2::CENTER_CENTER,
            "Nothing has run yet.",
            FontId::proportional(13.0),
            ui.visuals().weak_text_color(),
        );
        return;
    }
    let upper = rect.with_max_y(rect.min.y + rect.height() * 0.58);
    let lower = rect.with_min_y(upper.max.y + 10.0);
    tokens(ui, upper, &rows);
    times(ui, lower, &rows);
    marks(ui, stage, rect, &rows);
    let Some(at) = response.hover_pos() else { return };
    let Some(row) = rows.get(((at.x - rect.min.x) / BAR) as usize) else { return };
    stage.focus.hover(Mark::Step(row.step));
    if response.clicked() {
        stage.focus.pin(Mark::Step(row.step));
    }
    response.on_hover_text_at_pointer(tell(row));
}

fn legend(ui: &mut Ui) {
    ui.horizontal_wrapped(|ui| {
        paint::legend(ui, "decode", paint::DECODE);
        paint::legend(ui, "prefill", paint::PREFILL);
        paint::legend(ui, "padding", paint::PADDING);
        paint::legend(ui, "device", paint::FINISHED);
        paint::legend(ui, "plan and build", paint::QUEUED);
        ui.weak("line: budget");
    });
}

/// "step 12: 3 decode + 45 prefill of 64 tokens; 21 ms device, 40 µs plan".
pub fn tell(row: &StepRow) -> String {
    let padding =
        if row.padding > 0 { format!(" + {} padding", row.padding) } else { String::new() };
    format!(
        "step {}: {} decode + {} prefill{padding} of {} tokens, {} rows, {} waiting, {} blocks \
         free\n{} device, {} build, {} plan",
        row.step,
        row.decode,
        row.prefill,
        row.budget,
        row.rows,
        row.waiting,
        row.free,
        duration(row.device_micros),
        duration(row.build_micros),
        duration(row.plan_micros),
    )
}

fn bar(rect: Rect, at: usize, from: f32, to: f32) -> Rect {
    let x = rect.min.x + at as f32 * BAR;
    let y = |part: f32| rect.max.y - rect.height() * part.min(1.0);
    Rect::from_min_max(pos2(x, y(to)), pos2(x + BAR - 1.0, y(from)))
}

fn tokens(ui: &Ui, rect: Rect, rows: &[StepRow]) {
    let most = rows.iter().map(|r| r.budget.max(r.tokens())).max().unwrap_or(1).max(1) as f32;
    let most = most * 1.06;
    let mut mesh = Mesh::default();
    for (at, row) in rows.iter().enumerate() {
        let mut from = 0.0;
        for (part, color) in [
            (row.decode, paint::DECODE),
            (row.prefill, paint::PREFILL),
            (row.padding, paint::PADDING),
        ] {
            let to = from + part as f32 / most;
            let area = bar(rect, at, from, to);
            mesh.add_colored_rect(area, color);
            if color == paint::PADDING && part > 0 {
                paint::hatch(&mut mesh, area, Color32::BLACK.gamma_multiply(0.5));
            }
            from = to;
        }
        let level = bar(rect, at, 0.0, row.budget as f32 / most);
        let line = level.with_max_y(level.min.y + 1.5);
        mesh.add_colored_rect(line, ui.visuals().strong_text_color());
    }
    ui.painter().add(Shape::mesh(mesh));
    let last = &rows[rows.len() - 1];
    corner(ui, rect, &format!("tokens per step, budget {}", last.budget));
}

fn times(ui: &Ui, rect: Rect, rows: &[StepRow]) {
    let mut sorted: Vec<u64> = rows.iter().map(StepRow::total_micros).collect();
    sorted.sort_unstable();
    // One slow step must not flatten all others.
    let most = sorted[(sorted.len() - 1) * 98 / 100].max(1) as f32 * 1.1;
    let mut mesh = Mesh::default();
    for (at, row) in rows.iter().enumerate() {
        let device = row.device_micros as f32 / most;
        let all = row.total_micros() as f32 / most;
        mesh.add_colored_rect(bar(rect, at, 0.0, device), paint::FINISHED);
        mesh.add_colored_rect(bar(rect, at, device, all), paint::QUEUED);
        if all > 1.0 {
            // Taller than the axis: a wedge says so.
            let top = bar(rect, at, 1.0, 1.0).center_top();
            paint::wedge(&mut mesh, top, 4.0, false, ui.visuals().strong_text_color());
        }
    }
    ui.painter().add(Shape::mesh(mesh));
    corner(ui, rect, &format!("time per step, top {}", duration(most as u64)));
}

fn corner(ui: &Ui, rect: Rect, text: &str) {
    let font = FontId::proportional(11.5);
    let color = ui.visuals().text_color();
    let galley = ui.painter().layout_no_wrap(text.to_string(), font, color);
    let at = rect.min + vec2(4.0, 0.0);
    let back = Rect::from_min_size(at, galley.size()).expand(2.0);
    ui.painter().rect_filled(back, 2.0, ui.visuals().panel_fill.gamma_multiply(0.85));
    ui.painter().galley(at, galley, color);
}

/// The marked step, and nodes for readers.
fn marks(ui: &Ui, stage: &Stage<'_>, rect: Rect, rows: &[StepRow]) {
    let marked = match stage.focus.mark() {
        Some(Mark::Step(step)) => Some(step),
        _ => None,
    };
    let read = is_read(ui);
    for (at, row) in rows.iter().enumerate() {
        let area = bar(rect, at, 0.0, 1.0);
        if marked == Some(row.step) {
            let back = ui.visuals().selection.bg_fill.gamma_multiply(0.4);
            ui.painter().rect_filled(area, 0.0, back);
        }
        if read {
            describe(ui, ("bar", row.step), area, tell(row));
        }
    }
}
