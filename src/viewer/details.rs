//! What is pinned or pointed at, in full: a sequence, a block, or a step with its decisions.

use super::command::ViewCommand;
use super::composition;
use super::gaps::{self, duration};
use super::slots::doing;
use super::stage::{Mark, Stage};
use super::text::shorten;
use super::why;
use crate::base::{BlockId, SequenceId};
use egui::{Grid, RichText, ScrollArea, Ui, vec2};

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let mark = stage.focus.pinned.or(stage.focus.hovered);
    ui.horizontal(|ui| {
        ui.strong("Details");
        if stage.focus.pinned.is_some() && ui.small_button("Unpin").clicked() {
            stage.focus.pinned = None;
        }
    });
    ScrollArea::vertical().id_salt("details").auto_shrink(false).show(ui, |ui| match mark {
        Some(Mark::Sequence(id)) => sequence(ui, stage, id),
        Some(Mark::Block(id)) => block(ui, stage, id),
        Some(Mark::Step(step)) => of_step(ui, stage, step),
        None => {
            ui.weak("Point at anything to see it here; click to keep it.");
            ui.add_space(6.0);
            of_step(ui, stage, stage.picture.last_step.step);
        }
    });
}

fn table(ui: &mut Ui, salt: &str, entries: &[(&str, String)]) {
    Grid::new(salt).num_columns(2).spacing(vec2(10.0, 2.0)).show(ui, |ui| {
        for (name, value) in entries {
            ui.weak(*name);
            ui.add(egui::Label::new(value).wrap());
            ui.end_row();
        }
    });
}

fn sequence(ui: &mut Ui, stage: &mut Stage<'_>, id: SequenceId) {
    ui.heading(format!("Sequence {id}"));
    let Some(life) = stage.lives.get(id) else {
        ui.weak("Not in the kept part of the stream.");
        return;
    };
    let shown = stage.tokens_shown(life);
    let now = stage.picture.sequences.get(&id);
    let state = match (now, life.finished) {
        (Some(s), _) if s.slot.is_some() => {
            format!("{} in slot {}", doing(stage.picture, id), s.slot.unwrap_or_default())
        }
        (Some(_), _) => "waiting".to_string(),
        (None, Some((reason, step, _))) => format!("finished ({reason:?}) in step {step}"),
        (None, None) => "not there at this moment".to_string(),
    };
    let first = life.gap_micros(0).filter(|_| shown > 0);
    let mut entries = vec![
        ("request", life.request.to_string()),
        ("state", state),
        ("prompt", format!("{} tokens", life.prompt)),
        ("written", format!("{shown} of at most {}", life.max_new_tokens)),
        ("first token", first.map_or("–".to_string(), duration)),
    ];
    if life.preemptions > 0 {
        let lost = format!("{}, {} computed tokens lost", life.preemptions, life.lost);
        entries.push(("preemptions", lost));
    }
    if life.tenant > 0 || life.class > 0 {
        entries.push(("tenant, class", format!("{}, {}", life.tenant, life.class)));
    }
    if let Some(s) = now {
        entries.push(("computed", format!("{} of {} known", s.computed, s.known)));
        entries.push(("blocks", list(&s.blocks)));
    }
    table(ui, "sequence", &entries);
    if let Some(text) = stage.prompts.get(&life.request) {
        ui.add_space(4.0);
        ui.weak("prompt");
        ui.label(shorten(text, 400));
    }
    let worst = life.worst_gap().filter(|&at| at < shown);
    if let Some(at) = worst
        && let Some(mark) = life.tokens.get(at)
    {
        ui.add_space(4.0);
        ui.weak(format!("longest wait, token {}", at + 1));
        ui.label(gaps::sentence(&mark.gap));
    }
    if let Some(s) = now
        && ui.button("Cancel its request").clicked()
    {
        stage.commands.push(ViewCommand::Cancel(s.request));
    }
    ui.separator();
    ui.weak("decisions");
    for stamped in stage.decisions.about(id, stage.picture.step) {
        why::line(ui, stage.time, stage.steps, stamped);
    }
}

fn list(blocks: &[BlockId]) -> String {
    // Those behind a sliding window are gone, the table keeps their places.
    let blocks: Vec<&BlockId> = blocks.iter().filter(|b| **b != BlockId::EXPIRED).collect();
    let shown: Vec<String> = blocks.iter().take(64).map(ToString::to_string).collect();
    let rest =
        if blocks.len() > 64 { format!(" and {} more", blocks.len() - 64) } else { String::new() };
    format!("{} ({}{rest})", blocks.len(), shown.join(" "))
}

fn block(ui: &mut Ui, stage: &mut Stage<'_>, id: BlockId) {
    ui.heading(format!("Block {id}"));
    let Some(b) = stage.picture.blocks.get(id.index()) else {
        ui.weak("The pool of this moment has no such block.");
        return;
    };
    let size = stage.picture.limits.map_or(0, |l| l.block_size);
    let Some(owner) = b.owner.filter(|_| b.tables > 0) else {
        let state = if b.cached { "free; sequences that begin alike can use it" } else { "free" };
        table(ui, "block", &[("state", state.to_string())]);
        return;
    };
    let holders: Vec<String> = stage
        .picture
        .sequences
        .iter()
        .filter(|(_, s)| s.blocks.contains(&id))
        .map(|(holder, _)| holder.to_string())
        .collect();
    let from = b.index * size;
    let entries = [
        ("sequence", owner.to_string()),
        ("held by", format!("{} ({})", b.tables, holders.join(", "))),
        ("positions", format!("{from} to {}", from + size.saturating_sub(1))),
        ("computed", format!("{} of {size}", stage.picture.filled(owner, b.index))),
    ];
    table(ui, "block", &entries);
    let Some(life) = stage.lives.get(owner) else { return };
    let shown = stage.tokens_shown(life);
    let inside = |position: u32| (from..from + size).contains(&position);
    let words: String = life.tokens[..shown]
        .iter()
        .filter(|t| inside(t.gap.position))
        .map(|t| stage.word(t.token))
        .collect();
    ui.add_space(4.0);
    if from < life.prompt {
        let prompt = life.prompt.min(from + size) - from;
        ui.weak(format!("{prompt} positions of the prompt"));
    }
    if !words.is_empty() {
        ui.weak("written text in it");
        ui.add(egui::Label::new(RichText::new(words).monospace()).wrap());
    }
    if ui.link(format!("Sequence {owner}")).clicked() {
        stage.focus.pinned = Some(Mark::Sequence(owner));
    }
}

fn of_step(ui: &mut Ui, stage: &mut Stage<'_>, step: u64) {
    ui.heading(format!("Step {step}"));
    if let Some(row) = stage.steps.row(step) {
        ui.add(egui::Label::new(composition::tell(row)).wrap());
    }
    ui.separator();
    ui.weak("decisions");
    let mut any = false;
    for stamped in stage.history.events_of(step) {
        if why::is_decision(&stamped.event) {
            why::line(ui, stage.time, stage.steps, stamped);
            any = true;
        }
    }
    if !any {
        ui.weak("none");
    }
    ui.separator();
    ui.weak("rows");
    for sentence in why::rows(stage.history, stage.steps, stage.lives, step) {
        ui.add(egui::Label::new(sentence).wrap());
    }
}
