//! Why: every decision as a sentence, and the log of them.

use super::lives::Lives;
use super::stage::Stage;
use super::steps::Steps;
use super::time::Time;
use crate::base::{BlockId, SequenceId, counted, form};
use crate::trace::{Event, History, Stamped, sentence};
use egui::{Label, RichText, ScrollArea, Sense, Ui};
use std::collections::{BTreeMap, VecDeque};

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
            | Event::RowDiscarded { .. }
            | Event::BudgetChosen { .. }
            | Event::SequencePreempted { .. }
            | Event::SequenceSwappedIn { .. }
            | Event::TenantWeighted { .. }
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
    pub fn about(&self, id: SequenceId, step: u64) -> impl DoubleEndedIterator<Item = &Stamped> {
        self.0.range(..self.until(step)).filter(move |e| names(&e.event, id))
    }

    /// Those up to `step` that name a block.
    pub fn about_block(&self, id: BlockId, step: u64) -> impl DoubleEndedIterator<Item = &Stamped> {
        self.0.range(..self.until(step)).filter(move |e| names_block(&e.event, id))
    }

    /// The one of an earlier step that a step's budget is from, if any is: without a target there
    /// is none, and nothing else says that it ended.
    pub fn budget(&self, step: u64) -> Option<&Stamped> {
        let sets = |e: &&Stamped| match e.event {
            Event::BudgetChosen { .. } => true,
            Event::PoliciesChanged { policies, .. } => policies.itl_target_micros.is_none(),
            _ => false,
        };
        let earlier = self.0.partition_point(|e| e.step < step);
        let last = self.0.range(..earlier).rfind(sets);
        last.filter(|e| matches!(e.event, Event::BudgetChosen { .. }))
    }

    /// Those of the steps `from` to `to`, oldest first.
    pub fn of_steps(&self, from: u64, to: u64) -> impl Iterator<Item = &Stamped> {
        let first = self.0.partition_point(|e| e.step < from);
        self.0.range(first..self.until(to).max(first))
    }
}

/// Sentences for a tooltip: the first of them, and how many more there are.
pub fn told<'a>(decisions: impl Iterator<Item = &'a Stamped>) -> String {
    const MOST: usize = 4;
    let mut text = String::new();
    let mut more = 0u64;
    for (at, stamped) in decisions.enumerate() {
        match sentence(&stamped.event) {
            Some(told) if at < MOST => text += &format!("\nstep {}: {told}", stamped.step),
            _ => more += 1,
        }
    }
    match more {
        0 => text,
        more => format!("{text}\nand {more} more"),
    }
}

/// Whether an event is about a block's content: who shares it, and what became of it.
fn names_block(event: &Event, id: BlockId) -> bool {
    match event {
        Event::BlockEvicted { block, .. } => *block == id,
        Event::BlockCopied { from, to, .. } | Event::BlockMerged { from, to, .. } => {
            *from == id || *to == id
        }
        Event::PrefixMatched { blocks, .. } | Event::PromptShared { blocks, .. } => {
            blocks.as_slice().contains(&id)
        }
        _ => false,
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
        | Event::SequenceSwappedIn { sequence, .. }
        | Event::RowDiscarded { sequence, .. }
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
    let (mut rows, mut guessing) = (Vec::new(), BTreeMap::new());
    for stamped in history.events_of(step) {
        match stamped.event {
            Event::RowPlanned { sequence, start, len, samples, .. } => {
                rows.push(planned(lives, budget, (sequence, start, len, samples)));
            }
            Event::RowPadded { sequence, slot, len, .. } => {
                let whose = match sequence {
                    Some(sequence) => format!("sequence {sequence} is done"),
                    None => "nobody took it".to_string(),
                };
                rows.push(format!(
                    "slot {slot}: {} of padding; {whose}, the batch is fixed.",
                    counted(len, "position")
                ));
            }
            Event::RowDrafted { sequence, len, .. } => {
                if let Some(row) = rows.last_mut() {
                    let guesses = form(len, "guess", "guesses");
                    *row += &format!(" It tries {len} {guesses} at what follows.");
                    guessing.insert(sequence, rows.len() - 1);
                }
            }
            Event::DraftsTried { sequence, right, .. } => {
                if let Some(&at) = guessing.get(&sequence) {
                    let (were, tokens) = (form(right, "was", "were"), right.saturating_add(1));
                    let tokens = counted(tokens, "token");
                    rows[at] += &format!(" Of them {right} {were} right: {tokens} in a step.");
                }
            }
            _ => {}
        }
    }
    rows
}

fn planned(
    lives: &Lives,
    (budget, decode, tokens): (u32, u32, u32),
    (sequence, start, len, samples): (SequenceId, u32, u32, bool),
) -> String {
    let last = start.saturating_add(len.saturating_sub(1));
    let life = lives.get(sequence);
    let is_decode = len == 1 && life.is_some_and(|l| start >= l.prompt);
    if is_decode {
        return format!("sequence {sequence}: decodes position {start}.");
    }
    let lead = match len {
        1 => format!("sequence {sequence}: computes position {start}"),
        _ => format!("sequence {sequence}: computes positions {start} to {last}"),
    };
    match (samples, tokens >= budget) {
        (true, _) => format!("{lead} and so all that is known; its next token follows."),
        (false, true) => format!(
            "{lead}; the piece ends where the budget of {} does, {decode} of which went to \
             decoding first.",
            counted(budget, "token")
        ),
        (false, false) => format!("{lead}; more follows in the next step."),
    }
}
