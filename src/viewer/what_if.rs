//! What if: the recorded arrivals under other policies, in a simulation, beside the run as it was.
//! The simulation itself is somebody else's; here its results are laid side by side on one time
//! axis.

use super::command::{Open, ViewCommand};
use super::drive::policy_grid;
use super::gaps::duration;
use super::lives::{Lives, Phase};
use super::paint;
use super::stage::Stage;
use crate::base::{Limits, Policies};
use crate::trace::{Event, Stamped, Summary};
use egui::{Color32, Grid, Mesh, Rect, ScrollArea, Sense, Shape, Ui, pos2, vec2};

/// Slots drawn of each run; more would be too thin to see.
const LANES_MAX: u32 = 48;

/// A simulated run.
pub struct Rerun {
    policies: Policies,
    summary: Summary,
    events: Vec<Stamped>,
    lives: Lives,
    began: u64,
    ended: u64,
    slots: u32,
}

impl Rerun {
    /// The run that `events` tell, from its start.
    pub fn new(policies: Policies, summary: Summary, events: Vec<Stamped>) -> Self {
        let mut lives = Lives::default();
        events.iter().for_each(|event| lives.push(event));
        let arrived = |e: &&Stamped| matches!(e.event, Event::RequestArrived { .. });
        let began = events.iter().find(arrived).map_or(0, |e| e.micros);
        let ended = events.last().map_or(began, |e| e.micros);
        let slots = lives.iter().flat_map(|(_, l)| &l.slices).filter_map(|s| s.slot).max();
        Self { policies, summary, events, lives, began, ended, slots: slots.map_or(0, |s| s + 1) }
    }
}

/// A recorded run beside what a simulation makes of it.
pub struct Comparison {
    /// As it was measured.
    pub recorded: Summary,
    /// The same policies, simulated: how far the simulation can be believed.
    pub same: Rerun,
    pub other: Rerun,
}

/// What the view holds.
#[derive(Default)]
pub struct WhatIf {
    /// What is edited, until the source changes.
    policies: Option<Policies>,
    limits: Option<Limits>,
    /// What the source says that moving a block takes; 0 if nothing does.
    pub block_picos: u64,
    running: bool,
    result: Option<Box<Comparison>>,
}

impl WhatIf {
    /// The simulation is done, or has failed.
    pub fn done(&mut self, result: Option<Comparison>) {
        self.running = false;
        self.result = result.map(Box::new);
    }
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>, all: &mut WhatIf) {
    let Some(limits_now) = stage.picture.limits else {
        ui.weak("Nothing has run yet.");
        return;
    };
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        let policies = all.policies.get_or_insert(stage.picture.policies.unwrap_or_default());
        let limits = all.limits.get_or_insert(limits_now);
        ui.weak("The same requests at the same times, under other policies, simulated.");
        ui.horizontal_top(|ui| {
            ui.vertical(|ui| policy_grid(ui, "what-if policies", policies));
            ui.add_space(12.0);
            ui.vertical(|ui| {
                for (name, value, most) in [
                    ("tokens per step", &mut limits.step_tokens_max, 1 << 20),
                    ("sequences", &mut limits.sequences_max, 4096),
                    ("blocks", &mut limits.blocks, 1 << 24),
                ] {
                    ui.horizontal(|ui| {
                        let label = ui.weak(name);
                        ui.add(egui::DragValue::new(value).range(1..=most)).labelled_by(label.id);
                    });
                }
                let text = if all.running { "Simulating…" } else { "What if?" };
                let button = ui.add_enabled(!all.running, egui::Button::new(text));
                if button.on_hover_text("Run these arrivals again with these policies").clicked() {
                    let (policies, limits, block_picos) = (*policies, *limits, all.block_picos);
                    stage.commands.push(ViewCommand::WhatIf { policies, limits, block_picos });
                    all.running = true;
                }
            });
        });
        if let Some(found) = &all.result {
            ui.separator();
            table(ui, found);
            ui.separator();
            runs(ui, stage, found);
        }
    });
}

/// A line of the table: name, value of a summary, unit, and whether less is better.
type Line = (&'static str, fn(&Summary) -> f64, &'static str, bool);

const LINES: [Line; 12] = [
    ("time to first token, p50", |s| s.ttft_ms.p50, "ms", true),
    ("time to first token, p99", |s| s.ttft_ms.p99, "ms", true),
    ("between tokens, p50", |s| s.itl_ms.p50, "ms", true),
    ("between tokens, p99", |s| s.itl_ms.p99, "ms", true),
    ("time per output token, p50", |s| s.tpot_ms.p50, "ms", true),
    ("in the queue, p99", |s| s.queue_ms.p99, "ms", true),
    ("whole request, p50", |s| s.e2el_ms.p50, "ms", true),
    ("output tokens per second", |s| s.output_throughput, "", false),
    ("requests per second", |s| s.request_throughput, "", false),
    ("preemptions", |s| s.counts.preemptions as f64, "", true),
    ("places of the batch used", |s| 100.0 * s.utilization, "%", false),
    ("fairness between tenants", |s| s.fairness, "", false),
];

fn table(ui: &mut Ui, found: &Comparison) {
    Grid::new("what-if").num_columns(5).spacing(vec2(16.0, 3.0)).striped(true).show(ui, |ui| {
        for head in ["", "recorded", "the same, simulated", "what if", "change"] {
            ui.strong(head);
        }
        ui.end_row();
        for (name, value, unit, less) in LINES {
            ui.label(name);
            let (same, other) = (value(&found.same.summary), value(&found.other.summary));
            for v in [value(&found.recorded), same, other] {
                ui.monospace(format!("{} {unit}", number(v)).trim_end().to_string());
            }
            let (text, better) = change(same, other, less);
            let color = match better {
                Some(true) => paint::tint(paint::DECODE, 0.9, ui.visuals()),
                Some(false) => paint::tint(paint::PREEMPTED, 0.9, ui.visuals()),
                None => ui.visuals().weak_text_color(),
            };
            ui.colored_label(color, text);
            ui.end_row();
        }
    });
}

/// Three digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => "–".to_string(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// "+12 %, worse", and whether it is better; nothing under one part in two hundred counts.
fn change(from: f64, to: f64, less_is_better: bool) -> (String, Option<bool>) {
    if from.is_nan() || to.is_nan() {
        return (String::new(), None);
    }
    if (to - from).abs() <= from.abs() * 0.005 {
        return ("the same".to_string(), None);
    }
    let better = (to < from) == less_is_better;
    let word = if better { "better" } else { "worse" };
    if from == 0.0 {
        return (format!("from none, {word}"), Some(better));
    }
    (format!("{:+.0} %, {word}", 100.0 * (to - from) / from), Some(better))
}

/// Both runs over one time axis, the longer one filling the width.
fn runs(ui: &mut Ui, stage: &mut Stage<'_>, found: &Comparison) {
    let span = [&found.same, &found.other].map(|r| r.ended.saturating_sub(r.began)).into_iter();
    let span = span.max().unwrap_or(0).max(1);
    for (name, run) in [("the same, simulated", &found.same), ("what if", &found.other)] {
        ui.horizontal(|ui| {
            ui.strong(name);
            let p = &run.policies;
            ui.weak(format!("{} · {} · {} · {}", p.batching, p.prefill, p.admission, p.order));
            ui.weak(duration(run.ended.saturating_sub(run.began)));
            if ui
                .small_button("Look into it")
                .on_hover_text("Show this run in every view")
                .clicked()
            {
                let (name, events) = (name.to_string(), run.events.clone());
                stage.commands.push(ViewCommand::Open(Open::Run { name, events }));
            }
        });
        lanes(ui, run, span, stage.focus.sequence(stage.picture).map(|s| s.0));
    }
}

fn lanes(ui: &mut Ui, run: &Rerun, span: u64, lit: Option<u32>) {
    let lanes = run.slots.clamp(1, LANES_MAX);
    let height = (120.0 / lanes as f32).clamp(3.0, 9.0);
    let size = vec2(ui.available_width(), height * (lanes as f32 + 1.0));
    let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
    let x = |micros: u64| {
        let part = micros.saturating_sub(run.began) as f32 / span as f32;
        rect.min.x + rect.width() * part
    };
    let mut mesh = Mesh::default();
    for (id, life) in run.lives.iter() {
        for slice in &life.slices {
            let lane = match slice.slot {
                // The queue is one lane above: where it is dark, somebody waits.
                None => 0,
                Some(slot) if slot < lanes => slot + 1,
                Some(_) => continue,
            };
            let color = match slice.phase {
                Phase::Queued | Phase::Preempted => paint::QUEUED.gamma_multiply(0.25),
                Phase::Held | Phase::Padding => paint::PADDING,
                Phase::Prefill => paint::PREFILL,
                Phase::Decode => paint::owner(id),
            };
            let dim = lit.is_some_and(|lit| lit != id.0);
            let y = rect.min.y + height * lane as f32;
            let area = Rect::from_min_max(
                pos2(x(slice.from_micros), y),
                pos2(x(slice.to_micros).max(x(slice.from_micros) + 0.7), y + height - 1.0),
            );
            mesh.add_colored_rect(area, if dim { color.gamma_multiply(0.3) } else { color });
        }
    }
    ui.painter().rect_filled(rect, 2.0, Color32::from_black_alpha(20));
    ui.painter().add(Shape::mesh(mesh));
    response.on_hover_text("Above: the queue. Below: a lane per slot in the sequences' colours.");
}
