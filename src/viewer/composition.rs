//! What steps are made of: decode, prefill and padding against the budget above, and where their
//! time went below.

use super::paint;
use super::stage::{Mark, Stage, describe, is_read};
use super::steps::StepRow;
use crate::base::{counted, duration, form};
use egui::{Align2, Color32, FontId, Mesh, Rect, Sense, Shape, Ui, pos2};

const BAR: f32 = 7.0;
/// Above each chart, what it shows.
const TITLE: f32 = 16.0;

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let columns = (ui.available_width() / BAR).floor().max(1.0) as usize;
    // The shown step is the last bar.
    let end = stage.steps.index_of(stage.picture.step) + 1;
    let first = end.saturating_sub(columns);
    let rows: Vec<StepRow> = stage.steps.range(first, end).copied().collect();
    legend(ui, &rows);
    let (rect, response) = ui.allocate_exact_size(ui.available_size(), Sense::click());
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

fn legend(ui: &mut Ui, rows: &[StepRow]) {
    let guesses = rows.iter().any(|row| row.drafted > 0);
    let timed = rows.iter().any(|row| row.kernel_nanos > 0);
    ui.horizontal_wrapped(|ui| {
        let decode = if guesses { "decode (hatched: wrong guesses)" } else { "decode" };
        paint::legend(ui, decode, paint::DECODE);
        paint::legend(ui, "prefill", paint::PREFILL);
        paint::legend(ui, "padding", paint::PADDING);
        let device = if timed { "device (hatched: submit and readback)" } else { "device" };
        paint::legend(ui, device, paint::FINISHED);
        paint::legend(ui, "plan and build", paint::QUEUED);
        ui.weak("line: budget");
    });
}

/// "step 12: 7 decode (4 guesses, 3 right) + 45 prefill of 64 tokens; 21 ms device, 40 µs plan".
pub fn tell(row: &StepRow) -> String {
    let padding =
        if row.padding > 0 { format!(" + {} padding", row.padding) } else { String::new() };
    let guesses = match row.drafted {
        0 => String::new(),
        drafted => {
            format!(" ({drafted} {}, {} right)", form(drafted, "guess", "guesses"), row.right)
        }
    };
    let parts = row.device_parts().map_or(String::new(), |(kernels, rest)| {
        format!(" ({} kernels, {} submit and readback)", duration(kernels), duration(rest))
    });
    let times = match row.ran_micros {
        0 => "not back yet".to_string(),
        _ => format!(
            "{} device{parts}, {} build, {} plan",
            duration(row.device_micros),
            duration(row.build_micros),
            duration(row.plan_micros),
        ),
    };
    format!(
        "step {}: {} decode{guesses} + {} prefill{padding} of {}, {}, {} waiting, {} free
\
         {times}",
        row.step,
        row.decode,
        row.prefill,
        counted(row.budget, "token"),
        counted(row.rows, "row"),
        row.waiting,
        counted(row.free, "block"),
    )
}

fn bar(rect: Rect, at: usize, from: f32, to: f32) -> Rect {
    let x = rect.min.x + at as f32 * BAR;
    let y = |part: f32| rect.max.y - rect.height() * part.min(1.0);
    Rect::from_min_max(pos2(x, y(to)), pos2(x + BAR - 1.0, y(from)))
}

fn tokens(ui: &Ui, rect: Rect, rows: &[StepRow]) {
    let last = &rows[rows.len() - 1];
    let rect = titled(ui, rect, &format!("tokens per step, budget {}", last.budget));
    let most = rows.iter().map(|r| r.budget.max(r.tokens())).max().unwrap_or(1).max(1) as f32;
    let most = most * 1.06;
    let mut mesh = Mesh::default();
    for (at, row) in rows.iter().enumerate() {
        let mut from = 0.0;
        // Hatched is what was computed for nothing.
        for (part, color, hatched) in [
            (row.decode.saturating_sub(row.wrong()), paint::DECODE, false),
            (row.wrong(), paint::DECODE, true),
            (row.prefill, paint::PREFILL, false),
            (row.padding, paint::PADDING, true),
        ] {
            let to = from + part as f32 / most;
            let area = bar(rect, at, from, to);
            mesh.add_colored_rect(area, color);
            if hatched && part > 0 {
                paint::hatch(&mut mesh, area, Color32::BLACK.gamma_multiply(0.5));
            }
            from = to;
        }
        let level = bar(rect, at, 0.0, row.budget as f32 / most);
        let line = level.with_max_y(level.min.y + 1.5);
        mesh.add_colored_rect(line, ui.visuals().strong_text_color());
    }
    ui.painter().add(Shape::mesh(mesh));
}

fn times(ui: &Ui, rect: Rect, rows: &[StepRow]) {
    let mut sorted: Vec<u64> = rows.iter().map(StepRow::total_micros).collect();
    sorted.sort_unstable();
    // One slow step must not flatten all others.
    let most = sorted[(sorted.len() - 1) * 98 / 100].max(1) as f32 * 1.1;
    let rect = titled(ui, rect, &format!("time per step, top {}", duration(most as u64)));
    let mut mesh = Mesh::default();
    for (at, row) in rows.iter().enumerate() {
        let device = row.device_micros as f32 / most;
        let all = row.total_micros() as f32 / most;
        mesh.add_colored_rect(bar(rect, at, 0.0, device), paint::FINISHED);
        if let Some((kernels, _)) = row.device_parts() {
            let rest = bar(rect, at, kernels as f32 / most, device);
            paint::hatch(&mut mesh, rest, Color32::BLACK.gamma_multiply(0.5));
        }
        mesh.add_colored_rect(bar(rect, at, device, all), paint::QUEUED);
        if all > 1.0 {
            // Taller than the axis: a wedge says so.
            let top = bar(rect, at, 1.0, 1.0).center_top();
            paint::wedge(&mut mesh, top, 4.0, false, ui.visuals().strong_text_color());
        }
    }
    ui.painter().add(Shape::mesh(mesh));
}

/// The title at the top, and the room below it.
fn titled(ui: &Ui, rect: Rect, title: &str) -> Rect {
    let left = pos2(rect.min.x + 4.0, rect.min.y + TITLE / 2.0 - 1.0);
    paint::line(ui.painter(), left, rect.width(), title, (11.5, ui.visuals().text_color()));
    rect.with_min_y(rect.min.y + TITLE)
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
