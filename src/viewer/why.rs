//! Why: every decision as a sentence, and the log of them.

use super::lives::Lives;
use super::stage::Stage;
use super::steps::Steps;
use super::time::Time;
use crate::base::SequenceId;
use crate::trace::{Event, History, Stamped, sentence};
use egui::{Label, RichText, ScrollArea, Sense, Ui};
use std::collections::VecDeque;

/// True for what the engine decided, against what merely happened.
pub fn is_decision(event: &Event) -> bool {
    matches!(
        event,
        Event::LimitsChanged { .. }
            | Event::PoliciesChanged { .. }
            | Event::RequestRefused { .. }
            | Event::SequenceAdmitted { .. }
            | Event::AdmissionDelayed { .. }
            | Event::PrefixMatched { .. }
            | Event::PromptShared { .. }
            | Event::BlockCopied { .. }
            | Event::BlockMerged { .. }
            | Event::BlockEvicted { .. }
            | Event::BlocksExpired { .. }
            | Event::RowDelayed { .. }
            | Event::RowCut { .. }
            | Event::BudgetChosen { .. }
            | Event::SequencePreempted { .. }
            | Event::SequenceFinished { .. }
            | Event::EventsDropped { .. }
    )
}

/// The decisions of the kept stream.
#[derive(Default)]
pub struct Decisions(VecDeque<Stamped>);

impl Decisions {
    pub fn push(&mut self, stamped: &Stamped) {
        if is_decision(&stamped.event) && !self.repeats(&stamped.event) {
            self.0.push_back(stamped.clone());
        }
    }

    /// A row that stays delayed is told once, not in each step until something else is decided.
    fn repeats(&self, event: &Event) -> bool {
        let Event::RowDelayed { sequence, .. } = event else { return false };
        let recent = self.0.iter().rev().take(16).find(|e| names(&e.event, *sequence));
        recent.is_some_and(|e| matches!(e.event, Event::RowDelayed { .. }))
    }

    pub fn forget_before(&mut self, step: u64) {
        while self.0.front().is_some_and(|e| e.step < step) {
            self.0.pop_front();
        }
    }

    /// Those up to `step`, oldest first.
    fn until(&self, step: u64) -> usize {
        self.0.partition_point(|e| e.step <= step)
    }

    /// Those up to `step` that name a sequence.
    pub fn about(&self, id: SequenceId, step: u64) -> impl Iterator<Item = &Stamped> {
        self.0.range(..self.until(step)).filter(move |e| names(&e.event, id))
    }
}

fn names(event: &Event, id: SequenceId) -> bool {
    match event {
        Event::RequestRefused { sequence, .. }
        | Event::SequenceAdmitted { sequence, .. }
        | Event::AdmissionDelayed { sequence, .. }
        | Event::PrefixMatched { sequence, .. }
        | Event::BlockCopied { sequence, .. }
        | Event::BlockMerged { sequence, .. }
        | Event::BlocksExpired { sequence, .. }
        | Event::RowDelayed { sequence, .. }
        | Event::RowCut { sequence, .. }
        | Event::SequenceFinished { sequence, .. } => *sequence == id,
        Event::PromptShared { sequence, sibling, .. } => *sequence == id || *sibling == id,
        Event::SequencePreempted { victim, gainer, .. } => *victim == id || *gainer == id,
        _ => false,
    }
}

/// One decision; a click goes to its step.
pub fn line(ui: &mut Ui, time: &mut Time, steps: &Steps, stamped: &Stamped) {
    let text = sentence(&stamped.event).unwrap_or_default();
    let text = RichText::new(format!("step {}: {text}", stamped.step));
    let response = ui.add(Label::new(text).wrap().sense(Sense::click()));
    if response.on_hover_cursor(egui::CursorIcon::PointingHand).clicked() {
        time.go(stamped.step, steps);
    }
}

/// The log, newest at the end.
pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let count = stage.decisions.until(stage.picture.step);
    if count == 0 {
        ui.weak("Nothing has been decided yet.");
        return;
    }
    let height = ui.text_style_height(&egui::TextStyle::Body);
    let area = ScrollArea::vertical().auto_shrink(false).stick_to_bottom(true);
    area.show_rows(ui, height, count, |ui, range| {
        for stamped in stage.decisions.0.range(range) {
            let text = sentence(&stamped.event).unwrap_or_default();
            let text = format!("step {}: {text}", stamped.step);
            let label = Label::new(&text).truncate().sense(Sense::click());
            if ui.add(label).on_hover_text(text).clicked() {
                stage.time.go(stamped.step, stage.steps);
            }
        }
    });
}

/// The rows of a step and why each has its length.
pub fn rows(history: &History, steps: &Steps, lives: &Lives, step: u64) -> Vec<String> {
    let budget = steps.row(step).map_or((0, 0, 0), |r| (r.budget, r.decode, r.tokens()));
    let rows = history.events_of(step).filter_map(|stamped| match stamped.event {
        Event::RowPlanned { sequence, start, len, samples, .. } => {
            Some(planned(lives, budget, (sequence, start, len, samples)))
        }
        Event::RowPadded { sequence, slot, len, .. } => {
            let whose = sequence.map_or("nobody".to_string(), |s| format!("sequence {s}"));
            Some(format!(
                "slot {slot}: {len} positions of padding; {whose} is done, the batch is fixed."
            ))
        }
        _ => None,
    });
    rows.collect()
}

fn planned(
    lives: &Lives,
    (budget, decode, tokens): (u32, u32, u32),
    (sequence, start, len, samples): (SequenceId, u32, u32, bool),
) -> String {
    let end = start + len;
    let life = lives.get(sequence);
    let is_decode = len == 1 && life.is_some_and(|l| start >= l.prompt);
    if is_decode {
        return format!("sequence {sequence}: decodes position {start}.");
    }
    let lead = format!("sequence {sequence}: computes positions {start} to {}", end - 1);
    match (samples, tokens >= budget) {
        (true, _) => format!("{lead} and so all that is known; its next token follows."),
        (false, true) => format!(
            "{lead}; the piece ends where the budget of {budget} tokens does, {decode} of which \
             went to decoding first."
        ),
        (false, false) => format!("{lead}; more follows in the next step."),
    }
}
