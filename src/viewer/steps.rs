//! One small row per step: what the composition chart, the scrubber and the timeline's borders
//! show.

use crate::trace::{Event, Stamped};
use std::collections::VecDeque;

/// What happened around a step, for the marks on the time axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    pub arrived: u16,
    pub admitted: u16,
    pub preempted: u16,
    pub finished: u16,
    pub refused: u16,
    /// Limits or policies changed.
    pub changed: bool,
}

/// A planned step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepRow {
    pub step: u64,
    /// When it was planned, and when its outcome was in; 0 until then.
    pub planned_micros: u64,
    pub ran_micros: u64,
    pub rows: u32,
    pub decode: u32,
    /// Of `decode`, guesses, and those of them that were right; 0 until that is told.
    pub drafted: u32,
    pub right: u32,
    pub prefill: u32,
    pub padding: u32,
    pub budget: u32,
    pub waiting: u32,
    pub free: u32,
    pub plan_micros: u64,
    pub build_micros: u64,
    pub device_micros: u64,
    /// Of the device's time, that of its kernels; 0 where they are not timed.
    pub kernel_nanos: u64,
    pub marks: Marks,
}

impl StepRow {
    pub fn tokens(&self) -> u32 {
        self.decode.saturating_add(self.prefill).saturating_add(self.padding)
    }

    /// Guesses that were not right, or of which that is not known yet.
    pub fn wrong(&self) -> u32 {
        self.drafted.saturating_sub(self.right)
    }

    /// Of the device's time, that of kernels, and the rest, which is the way there and back: known
    /// where kernels are timed.
    pub fn device_parts(&self) -> Option<(u64, u64)> {
        // Kernels that took longer than their step are a lie of the clock.
        let kernels = (self.kernel_nanos / 1000).min(self.device_micros);
        (self.kernel_nanos > 0).then_some((kernels, self.device_micros - kernels))
    }

    /// Plan, build and device together.
    pub fn total_micros(&self) -> u64 {
        self.plan_micros.saturating_add(self.build_micros).saturating_add(self.device_micros)
    }
}

/// Rows by step, oldest first.
#[derive(Default)]
pub struct Steps {
    rows: VecDeque<StepRow>,
    /// Marks from before the first step.
    early: Marks,
}

impl Steps {
    pub fn push(&mut self, stamped: &Stamped) {
        match stamped.event {
            Event::StepPlanned {
                step,
                rows,
                decode,
                tokens,
                padding,
                budget,
                waiting,
                free,
                ..
            } => {
                let row = StepRow {
                    step,
                    planned_micros: stamped.micros,
                    rows,
                    decode,
                    prefill: tokens.saturating_sub(decode).saturating_sub(padding),
                    padding,
                    budget,
                    waiting,
                    free,
                    marks: std::mem::take(&mut self.early),
                    ..StepRow::default()
                };
                self.rows.push_back(row);
            }
            Event::StepRan { step, plan_micros, build_micros, device_micros } => {
                let Some(row) = self.of(step) else { return };
                row.ran_micros = stamped.micros;
                row.plan_micros = plan_micros;
                row.build_micros = build_micros;
                row.device_micros = device_micros;
            }
            Event::KernelTimed { nanos, .. } => {
                let Some(row) = self.of(stamped.step) else { return };
                row.kernel_nanos = row.kernel_nanos.saturating_add(nanos);
            }
            Event::RowDrafted { len, .. } => {
                let Some(row) = self.of(stamped.step) else { return };
                row.drafted = row.drafted.saturating_add(len);
            }
            Event::DraftsTried { right, .. } => {
                let Some(row) = self.of(stamped.step) else { return };
                row.right = row.right.saturating_add(right);
            }
            _ => self.mark(stamped),
        }
    }

    /// The row of the step that runs.
    fn of(&mut self, step: u64) -> Option<&mut StepRow> {
        self.rows.back_mut().filter(|r| r.step == step)
    }

    /// Decisions of a plan are stamped with its step but come before its row: they wait in `early`.
    fn mark(&mut self, stamped: &Stamped) {
        let last = self.rows.back_mut().filter(|r| r.step >= stamped.step);
        let marks = last.map_or(&mut self.early, |row| &mut row.marks);
        match stamped.event {
            Event::RequestArrived { .. } => marks.arrived = marks.arrived.saturating_add(1),
            Event::SequenceAdmitted { .. } => marks.admitted = marks.admitted.saturating_add(1),
            Event::SequencePreempted { .. } => marks.preempted = marks.preempted.saturating_add(1),
            Event::SequenceFinished { .. } => marks.finished = marks.finished.saturating_add(1),
            Event::RequestRefused { .. } => marks.refused = marks.refused.saturating_add(1),
            Event::LimitsChanged { .. } | Event::PoliciesChanged { .. } => marks.changed = true,
            _ => {}
        }
    }

    pub fn forget_before(&mut self, step: u64) {
        while self.rows.front().is_some_and(|r| r.step < step) {
            self.rows.pop_front();
        }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&StepRow> {
        self.rows.get(index)
    }

    pub fn last(&self) -> Option<&StepRow> {
        self.rows.back()
    }

    /// Index of the last row at or before `step`.
    pub fn index_of(&self, step: u64) -> usize {
        self.rows.partition_point(|r| r.step <= step).saturating_sub(1)
    }

    /// Index of the last row planned at or before `micros`.
    pub fn index_at(&self, micros: u64) -> usize {
        self.rows.partition_point(|r| r.planned_micros <= micros).saturating_sub(1)
    }

    /// The row of `step`, if it was planned and is kept.
    pub fn row(&self, step: u64) -> Option<&StepRow> {
        self.rows.get(self.index_of(step)).filter(|r| r.step == step)
    }

    pub fn range(&self, from: usize, to: usize) -> impl Iterator<Item = &StepRow> {
        let to = to.min(self.rows.len());
        self.rows.range(from.min(to)..to)
    }
}
