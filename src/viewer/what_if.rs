//! What if: the recorded arrivals under other policies, in a simulation, beside the run as it was.
//! The simulation itself is somebody else's; here its results are laid side by side on one time
//! axis.

use super::command::{Open, ViewCommand};
use super::drive::policy_grid;
use super::lives::{Life, Lives, Slice};
use super::paint;
use super::stage::{Focus, Mark, Stage, describe, is_read};
use super::timeline::{self, Reached};
use crate::base::{Limits, Policies, SequenceId, counted, duration};
use crate::trace::{Event, Stamped, Summary};
use egui::{
    Align, Align2, Color32, FontId, Grid, Label, Layout, Mesh, Rect, RichText, ScrollArea, Sense,
    Shape, Ui, pos2, vec2,
};

/// Slots drawn of each run; more would be too thin to see.
const LANES_MAX: u32 = 48;
/// Height of a lane, as a part of the view's, and at least and at most.
const LANE_PART: f32 = 0.031;
const LANE_MIN: f32 = 3.0;
const LANE_MAX: f32 = 14.0;
/// Lanes from this height on have room for a label.
const LABEL: f32 = 11.0;
/// From this height on the colours have a legend here too.
const ROOMY: f32 = 400.0;
/// Width of the policies beside the runs.
const TERMS: f32 = 216.0;

/// A simulated run.
pub struct Rerun {
    policies: Policies,
    summary: Summary,
    events: Vec<Stamped>,
    sequences: u64,
    /// By their beginning.
    slices: Vec<(SequenceId, Slice)>,
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
        let sequences = lives.iter().count() as u64;
        let of = |(id, life): (SequenceId, &Life)| {
            life.slices.iter().map(|slice| (id, *slice)).collect::<Vec<_>>()
        };
        let mut slices: Vec<_> = lives.iter().flat_map(of).collect();
        slices.sort_by_key(|(id, slice)| (slice.from_micros, *id));
        let slots = slices.iter().filter_map(|(_, s)| s.slot).max();
        let slots = slots.map_or(0, |s| s.saturating_add(1));
        Self { policies, summary, events, sequences, slices, began, ended, slots }
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
    running: bool,
    result: Option<Box<Comparison>>,
    /// What is lit in both runs. Simulated sequences are numbered anew: the same number is another
    /// request in the run that is shown.
    focus: Focus,
}

impl WhatIf {
    /// What is being simulated is of another source: nobody answers here.
    pub fn source_changed(&mut self) {
        self.running = false;
    }

    /// The simulation is done, or has failed.
    pub fn done(&mut self, result: Option<Comparison>) {
        self.running = false;
        self.result = result.map(Box::new);
        self.focus = Focus::default();
    }

    pub fn unpin(&mut self) {
        self.focus.pinned = None;
    }
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>, all: &mut WhatIf, block_picos: u64) {
    let Some(limits_now) = stage.picture.limits else {
        ui.weak("Nothing has run yet.");
        return;
    };
    // Side by side, so that what comes is in sight of what asked for it.
    ui.horizontal_top(|ui| {
        let height = ui.available_height();
        ui.allocate_ui_with_layout(vec2(TERMS, height), Layout::top_down(Align::LEFT), |ui| {
            let terms = ScrollArea::vertical().id_salt("what-if terms").auto_shrink(false);
            terms.show(ui, |ui| terms_of(ui, stage, all, (limits_now, block_picos)));
        });
        ui.separator();
        let Some(found) = &all.result else {
            let about = "The same requests at the same times, under other policies, simulated: \
                         both runs appear here, one above the other on one time axis.";
            ui.add(Label::new(RichText::new(about).weak()).wrap());
            return;
        };
        // The timeline has the same legend.
        let (roomy, lane) = (ui.available_height() > ROOMY, ui.available_height() * LANE_PART);
        let area = ScrollArea::both().id_salt("what-if found").auto_shrink(false);
        area.show(ui, |ui| {
            ui.vertical(|ui| {
                runs(ui, stage, (found, &mut all.focus), (roomy, lane));
                ui.separator();
                table(ui, found);
            });
        });
    });
    if all.focus.turn() {
        ui.ctx().request_repaint();
    }
}

/// What is to be different, and the button.
fn terms_of(
    ui: &mut Ui,
    stage: &mut Stage<'_>,
    all: &mut WhatIf,
    (limits_now, block_picos): (Limits, u64),
) {
    let policies = all.policies.get_or_insert(stage.picture.policies.unwrap_or_default());
    let limits = all.limits.get_or_insert(limits_now);
    let text = if all.running { "Simulating…" } else { "What if?" };
    let button = ui.add_enabled(!all.running, egui::Button::new(text));
    if button.on_hover_text("Run these arrivals again with these policies").clicked() {
        let (policies, limits) = (*policies, *limits);
        stage.commands.push(ViewCommand::WhatIf { policies, limits, block_picos });
        all.running = true;
    }
    policy_grid(ui, "what-if policies", policies, false);
    Grid::new("what-if limits").num_columns(2).spacing(vec2(8.0, 3.0)).show(ui, |ui| {
        for (name, value, most) in [
            ("tokens per step", &mut limits.step_tokens_max, 1 << 20),
            ("sequences", &mut limits.sequences_max, 4096),
            ("blocks", &mut limits.blocks, 1 << 24),
        ] {
            let label = ui.weak(name);
            ui.add(egui::DragValue::new(value).range(1..=most)).labelled_by(label.id);
            ui.end_row();
        }
    });
}

/// What the two simulated runs are called.
const SAME: &str = "simulated";
const OTHER: &str = "what if";

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
        for (head, about) in [
            ("", ""),
            ("recorded", "As it was measured"),
            (SAME, "The recorded policies, simulated: how far the simulation can be believed"),
            (OTHER, "The chosen policies, simulated"),
            ("change", "From one simulation to the other"),
        ] {
            ui.strong(head).on_hover_text(about);
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
                Some(true) => paint::readable(paint::DECODE, ui.visuals().panel_fill),
                Some(false) => paint::readable(paint::PREEMPTED, ui.visuals().panel_fill),
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
fn runs(
    ui: &mut Ui,
    stage: &mut Stage<'_>,
    (found, focus): (&Comparison, &mut Focus),
    (roomy, lane): (bool, f32),
) {
    let span = [&found.same, &found.other].map(|r| r.ended.saturating_sub(r.began)).into_iter();
    let span = span.max().unwrap_or(0).max(1);
    if roomy {
        timeline::phases(ui);
    }
    for (name, run) in [(SAME, &found.same), (OTHER, &found.other)] {
        ui.horizontal(|ui| {
            ui.strong(name);
            let p = &run.policies;
            ui.weak(format!("{} · {} · {} · {}", p.batching, p.prefill, p.admission, p.order));
            ui.label(duration(run.ended.saturating_sub(run.began)));
            let button = ui.small_button("Look into it");
            if button.on_hover_text("Show this run in every view").clicked() {
                let terms = if name == SAME { "the recorded policies" } else { name };
                let (name, events) = (terms.to_string(), run.events.clone());
                stage.commands.push(ViewCommand::Open(Open::Run { name, events }));
            }
        });
        let rect = lanes(ui, focus, run, span, lane);
        if is_read(ui) {
            let time = duration(run.ended.saturating_sub(run.began));
            let sequences = counted(run.sequences, "sequence");
            let slots = counted(run.slots, "slot");
            let label = format!("{name}: {sequences} in {slots}, {time}");
            describe(ui, ("run", name), rect, label);
        }
    }
    axis(ui, span);
}

/// The ends and the quarters of the time that both runs are drawn over.
fn axis(ui: &mut Ui, span: u64) {
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 14.0), Sense::hover());
    let (font, color) = (FontId::proportional(11.0), ui.visuals().weak_text_color());
    for quarter in 0..=4u64 {
        let x = rect.min.x + rect.width() * quarter as f32 / 4.0;
        let align = match quarter {
            0 => Align2::LEFT_TOP,
            4 => Align2::RIGHT_TOP,
            _ => Align2::CENTER_TOP,
        };
        let text = duration(span / 4 * quarter);
        ui.painter().text(pos2(x, rect.min.y), align, text, font.clone(), color);
    }
}

/// The queue in one lane, where several may wait at a time, and a lane per slot.
fn lanes(ui: &mut Ui, focus: &mut Focus, run: &Rerun, span: u64, lane: f32) -> Rect {
    let lanes = run.slots.clamp(1, LANES_MAX);
    let most = 10.0 * lane / (lanes as f32 + 1.0);
    let height = lane.min(most).clamp(LANE_MIN, LANE_MAX);
    let size = vec2(ui.available_width(), height * (lanes as f32 + 1.0));
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let x = |micros: u64| {
        let part = micros.saturating_sub(run.began) as f32 / span as f32;
        rect.min.x + rect.width() * part
    };
    let lit = focus.mark();
    let pointer = response.hover_pos();
    let (mut mesh, mut texts, mut hit) = (Mesh::default(), Vec::new(), None);
    let mut reached = Reached::default();
    for &(id, ref slice) in &run.slices {
        let lane = match slice.slot {
            None => 0,
            Some(slot) if slot < lanes => slot + 1,
            Some(_) => continue,
        };
        let y = rect.min.y + height * lane as f32;
        let area = Rect::from_min_max(
            pos2(x(slice.from_micros), y),
            pos2(x(slice.to_micros).max(x(slice.from_micros) + 0.7), y + height - 1.0),
        );
        if lane > 0 && !reached.adds(lane, area) {
            continue;
        }
        let strength = if lit.is_none_or(|lit| lit == Mark::Sequence(id)) { 1.0 } else { 0.3 };
        let (back, patterned) = timeline::paint_slice(ui, &mut mesh, slice, id, area, strength);
        if lane > 0 && height >= LABEL && area.width() > 2.0 * height {
            texts.push((area.left_center(), id, back, patterned));
        }
        if pointer.is_some_and(|at| area.expand(0.5).contains(at)) {
            hit = Some((id, slice));
        }
    }
    ui.painter().rect_filled(rect, 2.0, Color32::from_black_alpha(20));
    ui.painter().add(Shape::mesh(mesh));
    for (left, id, back, patterned) in texts {
        let font = FontId::proportional(height - 2.0);
        let colors = (paint::ink_on(back), patterned.then_some(back));
        let at = left + vec2(8.0, 0.0);
        paint::plated(ui.painter(), at, Align2::LEFT_CENTER, id, font, colors);
    }
    match hit {
        Some((id, slice)) => {
            focus.hover(Mark::Sequence(id));
            if response.clicked() {
                focus.pin(Mark::Sequence(id));
            }
            response.on_hover_text_at_pointer(timeline::tell(id, slice));
        }
        None => {
            response.on_hover_text("Above: the queue. Below: a lane per slot.");
        }
    }
    rect
}
