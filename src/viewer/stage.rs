//! What a view draws from and writes to, the same for all: the shown picture, the past, the focus
//! that lights one thing up everywhere, and the wishes on their way out.

use super::command::ViewCommand;
use super::lives::{Life, Lives};
use super::source::Words;
use super::steps::Steps;
use super::time::Time;
use super::why::Decisions;
use crate::base::{BlockId, RequestId, SequenceId, TokenId};
use crate::trace::{History, Picture, WITHHELD};
use egui::accesskit::{Node, Rect as NodeRect, Role};
use egui::{Id, Rect, Ui};
use std::collections::BTreeMap;

/// A thing that can be pointed at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    Sequence(SequenceId),
    Block(BlockId),
    /// What will be the block at an index of a sequence's table, while it lies in host memory.
    Host(SequenceId, u32),
    Step(u64),
}

impl Mark {
    /// The sequence it belongs to.
    pub fn sequence(self, picture: &Picture) -> Option<SequenceId> {
        match self {
            Self::Sequence(sequence) | Self::Host(sequence, _) => Some(sequence),
            Self::Block(block) => picture.blocks.get(block.index())?.owner,
            Self::Step(_) => None,
        }
    }
}

/// What is pointed at and what is pinned. Hovering in this frame shows in the next one, so that
/// every view agrees.
#[derive(Clone, Copy, Default, Debug)]
pub struct Focus {
    pub hovered: Option<Mark>,
    pub pinned: Option<Mark>,
    next: Option<Mark>,
}

impl Focus {
    pub fn hover(&mut self, mark: Mark) {
        self.next = Some(mark);
    }

    /// Pins a mark; the same one again lets go.
    pub fn pin(&mut self, mark: Mark) {
        self.pinned = if self.pinned == Some(mark) { None } else { Some(mark) };
    }

    /// The end of a frame; true when another one is needed to show the change.
    pub fn turn(&mut self) -> bool {
        let next = self.next.take();
        let changed = next != self.hovered;
        self.hovered = next;
        changed
    }

    /// The pointed at comes before the pinned.
    pub fn mark(&self) -> Option<Mark> {
        self.hovered.or(self.pinned)
    }

    /// The sequence that is lit: the marked one, or the owner of the marked block.
    pub fn sequence(&self, picture: &Picture) -> Option<SequenceId> {
        self.mark()?.sequence(picture)
    }
}

/// The part of the timeline that is looked at, in recorded microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Window {
    pub from: f64,
    pub to: f64,
    /// The moment that was shown when it was drawn last: another one is brought into sight.
    pub at: f64,
}

/// Everything for one frame of one view.
pub struct Stage<'a> {
    pub picture: &'a Picture,
    pub history: &'a History,
    pub steps: &'a Steps,
    pub lives: &'a Lives,
    pub decisions: &'a Decisions,
    pub words: Option<&'a Words>,
    pub prompts: &'a BTreeMap<RequestId, String>,
    pub focus: &'a mut Focus,
    pub time: &'a mut Time,
    pub window: &'a mut Option<Window>,
    pub commands: &'a mut Vec<ViewCommand>,
    /// An engine is here to answer and to be driven.
    pub live: bool,
}

impl Stage<'_> {
    /// The text of a token, or its id, or a dot where it is not told.
    pub fn word(&self, token: TokenId) -> String {
        if token == WITHHELD {
            return "·".to_string();
        }
        let text = self.words.and_then(|words| words(token));
        text.unwrap_or_else(|| format!("[{token}]"))
    }

    /// Tokens of a life that are known at the shown moment.
    pub fn tokens_shown(&self, life: &Life) -> usize {
        life.tokens.partition_point(|t| t.step <= self.picture.step)
    }

    /// The end of what a sequence has written, at most `chars` long.
    pub fn tail(&self, life: &Life, chars: usize) -> String {
        let shown = self.tokens_shown(life);
        let mut text = String::new();
        for mark in life.tokens[shown.saturating_sub(chars)..shown].iter() {
            text.push_str(&self.word(mark.token));
        }
        let text = text.replace(['\n', '\r'], "¶");
        let skip = text.chars().count().saturating_sub(chars);
        let tail: String = text.chars().skip(skip).collect();
        if skip > 0 { format!("…{tail}") } else { tail }
    }

    /// Tokens per second over the last tokens at the shown moment.
    pub fn rate(&self, life: &Life) -> Option<f64> {
        let shown = &life.tokens[..self.tokens_shown(life)];
        let recent = &shown[shown.len().saturating_sub(16)..];
        let (first, last) = (recent.first()?, recent.last()?);
        let micros = last.micros.saturating_sub(first.micros);
        (micros > 0).then(|| (recent.len() - 1) as f64 * 1e6 / micros as f64)
    }
}

/// Leaves room for the bar of the scroll area around it, which lies over its content.
pub fn beside_bar(ui: &mut Ui) {
    ui.set_max_width(ui.available_width() - ui.spacing().scroll.bar_width);
}

/// True while somebody reads the accessible tree; only then is it worth building.
pub fn is_read(ui: &Ui) -> bool {
    ui.ctx().accesskit_node_builder(ui.scope_id(), |_| ()).is_some()
}

/// An accessible node for something painted, so that readers and tests find it.
pub fn describe(ui: &Ui, salt: impl std::hash::Hash + std::fmt::Debug, rect: Rect, label: String) {
    let id = Id::unique(("painted", ui.scope_id(), salt));
    ui.ctx().accesskit_node_builder(id, |node: &mut Node| {
        node.set_role(Role::Cell);
        node.set_label(label);
        node.set_bounds(NodeRect {
            x0: rect.min.x.into(),
            y0: rect.min.y.into(),
            x1: rect.max.x.into(),
            y1: rect.max.y.into(),
        });
    });
}
