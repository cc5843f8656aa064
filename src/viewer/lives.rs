//! What became of each sequence over time: the slices of the timeline and the moments of its
//! tokens. A fold like the picture, but of the past instead of the present.

use crate::base::{RequestId, SequenceId, TokenId};
use crate::trace::{Asked, Attribution, Event, FinishReason, Gap, Picture, PreemptMethod, Stamped};
use std::collections::{BTreeMap, BTreeSet};

/// What a sequence did between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// In the queue for the first time.
    Queued,
    /// Computing a piece of known tokens, prompt or recomputation.
    Prefill,
    /// One token a step.
    Decode,
    /// In the queue again after it lost its place.
    Preempted,
    /// The same, with what it had computed in host memory.
    Swapped,
    /// In a slot without a row in the step.
    Held,
    /// Done, its slot computed for nothing until the batch ends.
    Padding,
}

/// A stretch of one phase. Decode steps in a row are one slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    pub phase: Phase,
    /// `None` while it waits.
    pub slot: Option<u32>,
    pub from_step: u64,
    pub to_step: u64,
    pub from_micros: u64,
    pub to_micros: u64,
    /// Positions computed.
    pub positions: u32,
}

/// A token's moment, and what it waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenMark {
    pub token: TokenId,
    pub step: u64,
    pub micros: u64,
    pub gap: Gap,
}

/// One sequence from its arrival on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Life {
    pub request: RequestId,
    pub prompt: u32,
    pub max_new_tokens: u32,
    pub tenant: u32,
    pub class: u8,
    pub arrived_micros: u64,
    pub slot: Option<u32>,
    pub slices: Vec<Slice>,
    pub tokens: Vec<TokenMark>,
    /// Highest position ever computed: less of it is computed again after a preemption.
    pub computed_once: u32,
    pub preemptions: u32,
    pub lost: u32,
    pub finished: Option<(FinishReason, u64, u64)>,
}

impl Life {
    /// Time from the token before (the arrival for the first) to the token at `index`.
    pub fn gap_micros(&self, index: usize) -> Option<u64> {
        Some(self.tokens.get(index)?.gap.micros)
    }

    /// Index of the token with the longest wait before it, the first token aside.
    pub fn worst_gap(&self) -> Option<usize> {
        (1..self.tokens.len()).max_by_key(|&i| self.gap_micros(i))
    }

    /// When it ended, or `now`.
    pub fn end_micros(&self, now: u64) -> u64 {
        self.finished.map_or(now, |f| f.2)
    }

    fn open(&mut self, phase: Phase, stamped: &Stamped) {
        self.slices.push(Slice {
            phase,
            slot: self.slot,
            from_step: stamped.step,
            to_step: stamped.step,
            from_micros: stamped.micros,
            to_micros: stamped.micros,
            positions: 0,
        });
    }

    /// Stretches the last slice up to here.
    fn close(&mut self, stamped: &Stamped) {
        if let Some(last) = self.slices.last_mut() {
            last.to_micros = stamped.micros;
            last.to_step = stamped.step;
        }
    }
}

/// All kept sequences.
#[derive(Default)]
pub struct Lives {
    all: BTreeMap<SequenceId, Life>,
    /// Sequences with a row in the step that runs.
    rows: Vec<SequenceId>,
    /// Prompts, where the stream tells them, and how the answers are sampled.
    prompts: BTreeMap<RequestId, Vec<TokenId>>,
    asked: BTreeMap<RequestId, Box<Asked>>,
    attribution: Attribution,
}

impl Lives {
    /// The sequences of a stream that is joined late, without their past.
    pub fn resume(picture: &Picture) -> Self {
        let stamped = |micros| Stamped {
            seq: picture.seq,
            step: picture.step,
            micros,
            event: Event::Unknown,
        };
        let all = picture.sequences.iter().map(|(&sequence, seen)| {
            let mut life = Life {
                request: seen.request,
                prompt: seen.prompt,
                max_new_tokens: seen.max_new_tokens,
                tenant: seen.tenant,
                class: seen.class,
                arrived_micros: seen.arrived_micros,
                slot: seen.slot,
                computed_once: seen.computed,
                preemptions: seen.preemptions,
                ..Life::default()
            };
            if seen.slot.is_none() {
                let phase = match (seen.preemptions, seen.swapped) {
                    (0, _) => Phase::Queued,
                    (_, 0) => Phase::Preempted,
                    _ => Phase::Swapped,
                };
                life.open(phase, &stamped(picture.micros));
            }
            (sequence, life)
        });
        Self { all: all.collect(), attribution: Attribution::resume(picture), ..Self::default() }
    }

    pub fn get(&self, sequence: SequenceId) -> Option<&Life> {
        self.all.get(&sequence)
    }

    /// The tokens of a request's prompt, as far as they were told.
    pub fn prompt(&self, request: RequestId) -> &[TokenId] {
        self.prompts.get(&request).map_or(&[], Vec::as_slice)
    }

    /// What a request asked for, if that was told.
    pub fn asked(&self, request: RequestId) -> Option<&Asked> {
        // In a server's feed this is withheld: nothing real has no penalty at all.
        self.asked.get(&request).map(Box::as_ref).filter(|asked| asked.repetition_penalty > 0.0)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (SequenceId, &Life)> {
        self.all.iter().map(|(id, life)| (*id, life))
    }

    /// Of those that have a token, the sequence and index with the longest wait between two tokens.
    pub fn worst_gap(&self) -> Option<(SequenceId, usize)> {
        let worst = self.all.iter().filter_map(|(id, l)| {
            let index = l.worst_gap()?;
            Some((*id, index, l.gap_micros(index)?))
        });
        worst.max_by_key(|w| w.2).map(|w| (w.0, w.1))
    }

    pub fn push(&mut self, stamped: &Stamped) {
        let gap = self.attribution.push(stamped);
        match stamped.event {
            Event::RequestAsked { .. } | Event::PromptGiven { .. } => self.ask(&stamped.event),
            Event::RequestArrived {
                request,
                sequence,
                prompt,
                max_new_tokens,
                tenant,
                class,
                ..
            } => {
                let mut life = Life {
                    request,
                    prompt,
                    max_new_tokens,
                    tenant,
                    class,
                    arrived_micros: stamped.micros,
                    ..Life::default()
                };
                life.open(Phase::Queued, stamped);
                self.all.insert(sequence, life);
            }
            Event::SequenceAdmitted { sequence, slot, .. } => self.change(sequence, |life| {
                life.close(stamped);
                life.slot = Some(slot);
            }),
            Event::StepPlanned { .. } => self.rows.clear(),
            Event::RowPlanned { sequence, start, len, .. } => {
                self.rows.push(sequence);
                self.change(sequence, |life| row(life, stamped, start, len));
            }
            Event::DraftsTried { sequence, right, .. } => {
                self.change(sequence, |l| guessed(l, right))
            }
            Event::RowPadded { sequence: Some(sequence), len, .. } => {
                self.rows.push(sequence);
                self.change(sequence, |life| padding(life, stamped, len));
            }
            Event::RowDelayed { sequence, .. } => self.change(sequence, |life| {
                if life.slices.last().is_none_or(|s| s.phase != Phase::Held) {
                    life.open(Phase::Held, stamped);
                }
                life.close(stamped);
            }),
            Event::StepRan { .. } => {
                for sequence in std::mem::take(&mut self.rows) {
                    self.change(sequence, |life| life.close(stamped));
                }
            }
            Event::TokenSampled { sequence, token, .. } => self.change(sequence, |life| {
                let (step, micros) = (stamped.step, stamped.micros);
                life.tokens.extend(gap.map(|gap| TokenMark { token, step, micros, gap }));
            }),
            Event::SequencePreempted { victim, method, lost, .. } => {
                self.change(victim, |life| preempted(life, stamped, method, lost));
            }
            Event::SequenceFinished { sequence, reason, .. } => self.change(sequence, |life| {
                if life.slot.is_none() {
                    life.close(stamped);
                }
                life.finished = Some((reason, stamped.step, stamped.micros));
            }),
            _ => {}
        }
    }

    fn ask(&mut self, event: &Event) {
        match event {
            Event::RequestAsked { request, asked, .. } => {
                self.asked.insert(*request, asked.clone());
            }
            Event::PromptGiven { request, tokens } => {
                self.prompts.entry(*request).or_default().extend(tokens);
            }
            _ => {}
        }
    }

    fn change(&mut self, sequence: SequenceId, change: impl FnOnce(&mut Life)) {
        if let Some(life) = self.all.get_mut(&sequence) {
            change(life);
        }
    }

    /// Drops what ended before `step`.
    pub fn forget_before(&mut self, step: u64) {
        self.all.retain(|_, life| life.finished.is_none_or(|f| f.1 >= step));
        let kept: BTreeSet<RequestId> = self.all.values().map(|life| life.request).collect();
        self.prompts.retain(|request, _| kept.contains(request));
        self.asked.retain(|request, _| kept.contains(request));
        for life in self.all.values_mut() {
            let old = life.tokens.partition_point(|t| t.step < step);
            life.tokens.drain(..old);
            let old = life.slices.partition_point(|s| s.to_step < step);
            life.slices.drain(..old.min(life.slices.len().saturating_sub(1)));
        }
    }
}

/// Of its row's guesses so many were right; the others leave nothing behind.
fn guessed(life: &mut Life, right: u32) {
    life.computed_once = life.computed_once.saturating_add(right);
    if let Some(last) = life.slices.last_mut().filter(|s| s.phase == Phase::Decode) {
        last.positions = last.positions.saturating_add(right);
    }
}

/// Positions computed in the place of a sequence that is done. What pads the prompt of one that is
/// not belongs to its own row.
fn padding(life: &mut Life, stamped: &Stamped, len: u32) {
    if life.finished.is_none() {
        return;
    }
    if life.slices.last().is_none_or(|s| s.phase != Phase::Padding) {
        life.open(Phase::Padding, stamped);
    }
    if let Some(last) = life.slices.last_mut() {
        last.positions = last.positions.saturating_add(len);
    }
}

/// It lost its slot, and what it had computed with it, or not.
fn preempted(life: &mut Life, stamped: &Stamped, method: PreemptMethod, lost: u32) {
    life.slot = None;
    life.preemptions += 1;
    life.lost = life.lost.saturating_add(lost);
    let phase = match method {
        PreemptMethod::Recompute => Phase::Preempted,
        PreemptMethod::Swap => Phase::Swapped,
    };
    life.open(phase, stamped);
}

/// A row of the step being planned.
fn row(life: &mut Life, stamped: &Stamped, start: u32, len: u32) {
    let end = start.saturating_add(len);
    // One position beyond everything computed before is a decode step; all else catches up.
    let phase = if len == 1 && start >= life.prompt && end > life.computed_once {
        Phase::Decode
    } else {
        Phase::Prefill
    };
    life.computed_once = life.computed_once.max(end);
    let joins = life.slices.last().is_some_and(|last| {
        let next = last.to_step == stamped.step || last.to_step.saturating_add(1) == stamped.step;
        phase == Phase::Decode && last.phase == phase && last.slot == life.slot && next
    });
    if !joins {
        life.open(phase, stamped);
    }
    if let Some(last) = life.slices.last_mut() {
        last.to_step = stamped.step;
        last.to_micros = stamped.micros;
        last.positions = last.positions.saturating_add(len);
    }
}
