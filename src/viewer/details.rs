//! What is pinned or pointed at, in full: a sequence, a block, or a step with its decisions.

use super::command::ViewCommand;
use super::composition;
use super::gaps;
use super::slots::doing;
use super::stage::{Mark, Stage, beside_bar};
use super::text::shorten;
use super::why;
use crate::base::{BlockId, PrefixCache, SequenceId, counted, duration};
use crate::trace::{Asked, BlockPicture, Picture};
use egui::{Grid, RichText, ScrollArea, Ui, vec2};
use std::ops::Range;

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let mark = stage.focus.pinned.or(stage.focus.hovered);
    ui.horizontal(|ui| {
        ui.strong("Details");
        if stage.focus.pinned.is_some() && ui.small_button("Unpin").clicked() {
            stage.focus.pinned = None;
        }
    });
    ScrollArea::vertical().id_salt("details").auto_shrink(false).show(ui, |ui| {
        beside_bar(ui);
        match mark {
            Some(Mark::Sequence(id)) => sequence(ui, stage, id),
            Some(Mark::Block(id)) => block(ui, stage, id),
            Some(Mark::Host(id, index)) => in_host(ui, stage, id, index),
            Some(Mark::Step(step)) => of_step(ui, stage, step),
            None => {
                ui.weak("Point at anything to see it here; click to keep it.");
                ui.add_space(6.0);
                of_step(ui, stage, stage.picture.last_step.step);
            }
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
        ("prompt", counted(life.prompt, "token")),
        ("written", format!("{shown} of at most {}", life.max_new_tokens)),
        ("first token", first.map_or("–".to_string(), duration)),
    ];
    if let Some(asked) = stage.lives.asked(life.request) {
        entries.push(("sampled", sampling(asked)));
    }
    if life.preemptions > 0 {
        let lost = counted(life.lost, "computed position");
        let lost = format!("{}, {lost} lost", life.preemptions);
        entries.push(("preemptions", lost));
    }
    if life.tenant > 0 || life.class > 0 {
        entries.push(("tenant, class", format!("{}, {}", life.tenant, life.class)));
    }
    if let Some(s) = now {
        entries.push(("computed", format!("{} of {} known", s.computed, s.known)));
        entries.push(("blocks", list(&s.blocks)));
        if s.swapped > 0 {
            let blocks = stage.picture.host_blocks().filter(|(holder, _)| *holder == id).count();
            let blocks = counted(blocks as u64, "block");
            let kept = format!("{} in {blocks}", counted(s.swapped, "position"));
            entries.push(("in host memory", kept));
        }
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
    if let Some(s) = now.filter(|_| stage.live)
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

/// How its tokens are drawn, what is as usual left out.
fn sampling(asked: &Asked) -> String {
    let drawn = asked.temperature != 0.0;
    let mut text = match drawn {
        true => format!("temperature {}", asked.temperature),
        false => "the likeliest token".to_string(),
    };
    // The likeliest is never cut off, but penalties change which that is.
    for (name, value, usual, counts) in [
        ("top p", asked.top_p, 1.0, drawn),
        ("min p", asked.min_p, 0.0, drawn),
        ("repetition penalty", asked.repetition_penalty, 1.0, true),
        ("presence penalty", asked.presence_penalty, 0.0, true),
        ("frequency penalty", asked.frequency_penalty, 0.0, true),
    ] {
        if counts && value != usual {
            text += &format!(", {name} {value}");
        }
    }
    if drawn && asked.top_k > 0 {
        text += &format!(", top k {}", asked.top_k);
    }
    if !asked.logit_bias.is_empty() {
        text += &format!(", biases for {}", counted(asked.logit_bias.len() as u64, "token"));
    }
    if asked.guided {
        text += ", held to a grammar";
    }
    match (drawn, asked.choices) {
        (false, _) => text,
        (true, 0 | 1) => text + &format!(", seed {}", asked.seed),
        (true, of) => text + &format!(", seed {} for the first of {of} choices", asked.seed),
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
    let hash = ("hash", hash(stage.picture, b));
    let Some(owner) = b.owner.filter(|_| b.tables > 0) else {
        let state = if b.cached { "free; sequences that begin alike can use it" } else { "free" };
        let held = ("held by", "0 sequences".to_string());
        table(ui, "block", &[("state", state.to_string()), held, hash]);
        return decided(ui, stage, id);
    };
    let holders = stage.picture.sequences.iter().filter(|(_, s)| s.blocks.contains(&id));
    let holders: Vec<String> = holders.map(|(holder, _)| holder.to_string()).collect();
    let from = b.index.saturating_mul(size);
    let to = from.saturating_add(size);
    let entries = [
        ("sequence", owner.to_string()),
        ("held by", format!("{} ({})", b.tables, holders.join(", "))),
        ("positions", format!("{from} to {}", to.saturating_sub(1))),
        ("computed", format!("{} of {size}", stage.picture.filled(owner, b.index))),
        hash,
    ];
    table(ui, "block", &entries);
    content(ui, stage, owner, from..to);
    decided(ui, stage, id);
}

/// Why a block's content is where it is, the newest first.
fn decided(ui: &mut Ui, stage: &mut Stage<'_>, id: BlockId) {
    const MOST: usize = 12;
    let mut all = stage.decisions.about_block(id, stage.picture.step).rev().peekable();
    if all.peek().is_none() {
        return;
    }
    ui.separator();
    ui.weak("decisions, the newest first");
    for stamped in all.take(MOST) {
        why::line(ui, stage.time, stage.steps, stamped);
    }
}

/// What the content is known by to sequences that begin alike, or why it is not.
fn hash(picture: &Picture, block: &BlockPicture) -> String {
    let off = picture.policies.is_some_and(|p| p.prefix_cache == PrefixCache::Off);
    match block.hash {
        Some(hash) => hash.to_string(),
        None if block.cached => "not told by this stream".to_string(),
        None if off => "none, the prefix cache is off".to_string(),
        None if block.tables > 0 => "none until it is full".to_string(),
        None => "none".to_string(),
    }
}

/// What lies in host memory, to come back as the block at `index` of the sequence's table.
fn in_host(ui: &mut Ui, stage: &mut Stage<'_>, id: SequenceId, index: u32) {
    ui.heading(format!("Sequence {id}, block {index}"));
    let size = stage.picture.limits.map_or(0, |l| l.block_size);
    let filled = stage.picture.filled_in_host(id, index);
    if filled == 0 {
        ui.weak("Not in host memory at this moment.");
        return;
    }
    let from = index.saturating_mul(size);
    let to = from.saturating_add(size);
    let entries = [
        ("state", "swapped out; it comes back when its sequence returns".to_string()),
        ("positions", format!("{from} to {}", to.saturating_sub(1))),
        ("computed", format!("{filled} of {size}")),
    ];
    table(ui, "in host memory", &entries);
    content(ui, stage, id, from..to);
}

/// The text at some positions of a sequence, as far as it is known at the shown moment.
fn content(ui: &mut Ui, stage: &mut Stage<'_>, id: SequenceId, positions: Range<u32>) {
    let Some(life) = stage.lives.get(id) else { return };
    let known = stage.lives.prompt(life.request);
    let [from, to] = [positions.start, positions.end].map(|at| at.min(life.prompt) as usize);
    let prompt = from..to;
    let given: String =
        prompt.clone().filter_map(|at| known.get(at)).map(|&token| stage.word(token)).collect();
    let written: String = life.tokens[..stage.tokens_shown(life)]
        .iter()
        .filter(|t| positions.contains(&t.gap.position))
        .map(|t| stage.word(t.token))
        .collect();
    ui.add_space(4.0);
    if given.is_empty() && !prompt.is_empty() {
        ui.weak(format!("{} of the prompt", counted(prompt.len() as u64, "position")));
    }
    for (name, text) in [("of the prompt", given), ("written", written)] {
        if !text.is_empty() {
            ui.weak(name);
            ui.add(egui::Label::new(RichText::new(text).monospace()).wrap());
        }
    }
    if ui.link(format!("Sequence {id}")).clicked() {
        stage.focus.pinned = Some(Mark::Sequence(id));
    }
}

fn of_step(ui: &mut Ui, stage: &mut Stage<'_>, step: u64) {
    ui.heading(format!("Step {step}"));
    if let Some(row) = stage.steps.row(step) {
        ui.add(egui::Label::new(composition::tell(row)).wrap());
    }
    ui.separator();
    if let Some(chosen) = stage.decisions.budget(step) {
        ui.weak("its budget");
        why::line(ui, stage.time, stage.steps, chosen);
    }
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
