//! Device time by kernel, where the device has timestamps.

use super::paint;
use super::stage::{Stage, describe, is_read};
use crate::base::{duration, form};
use crate::trace::{Event, Stamped};
use egui::{Align2, FontId, ScrollArea, Sense, Ui, pos2, vec2};
use std::collections::BTreeMap;

/// Launches and nanoseconds of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    pub launches: u64,
    pub nanos: u64,
}

/// Totals since the stream began.
#[derive(Clone, Debug, Default)]
pub struct Kernels(BTreeMap<String, Cost>);

impl Kernels {
    pub fn push(&mut self, stamped: &Stamped) {
        if let Event::KernelTimed { kernel, launches, nanos, .. } = &stamped.event {
            let cost = self.0.entry(kernel.clone()).or_default();
            cost.launches = cost.launches.saturating_add(u64::from(*launches));
            cost.nanos = cost.nanos.saturating_add(*nanos);
        }
    }
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>, all: &Kernels) {
    if all.0.is_empty() {
        ui.weak("No kernel times in this stream: the device has no timestamps, or they are off.");
        return;
    }
    let step = stage.picture.last_step.step;
    let mut here = Kernels::default();
    stage.history.events_of(step).for_each(|e| here.push(e));
    let whole: u64 = all.0.values().fold(0, |sum, c| sum.saturating_add(c.nanos));
    let mut rows: Vec<(&String, &Cost)> = all.0.iter().collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.1.nanos));
    ui.weak(format!("{} in all kernels; right: in step {step}", duration(whole / 1000)));
    ScrollArea::vertical().auto_shrink(false).show_rows(ui, 20.0, rows.len(), |ui, range| {
        for (name, cost) in &rows[range] {
            let (rect, response) =
                ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
            let part = cost.nanos as f32 / whole.max(1) as f32;
            let bar = rect.with_max_x(rect.min.x + rect.width() * part);
            ui.painter().rect_filled(bar, 2.0, paint::tint(paint::FINISHED, 0.5, ui.visuals()));
            let of = here.0.get(*name).copied().unwrap_or_default();
            let launches = form(cost.launches, "launch", "launches");
            let all = format!(
                "{} · {:.1} % · {} {launches} · {}",
                duration(cost.nanos / 1000),
                part * 100.0,
                cost.launches,
                duration(of.nanos / 1000),
            );
            let (font, color) = (FontId::proportional(12.5), ui.visuals().text_color());
            let right = pos2(rect.max.x - 4.0, rect.center().y);
            let numbers = ui.painter().text(right, Align2::RIGHT_CENTER, &all, font, color);
            let left = pos2(rect.min.x + 4.0, rect.center().y);
            paint::line(ui.painter(), left, numbers.min.x - left.x - 6.0, name, (12.5, color));
            if is_read(ui) {
                describe(ui, ("kernel", *name), rect, format!("{name}: {all}"));
            }
            response.on_hover_ui(|ui| {
                ui.label(format!("{name}: {all} in this step"));
            });
        }
    });
}
