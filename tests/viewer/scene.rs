//! Streams for the rows: a recorded overload, and made ones of any size.

use crate::support::root;
use std::fs::File;
use tilewright::base::{BlockId, Limits, RequestId, SequenceId};
use tilewright::trace::{BlockList, Event, LimitsReason, Stamped};
use tilewright::viewer::{Source, Viewer, read_recording};

/// The recording in assets: the preset `overload`, run by the real engine.
pub fn overload() -> Vec<Stamped> {
    let path = root().join("assets/traces/overload.jsonl.gz");
    let mut events = Vec::new();
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    read_recording(file, &mut |event| events.push(event)).expect("a sound recording");
    events
}

/// A viewer that shows these events.
pub fn viewer(events: &[Stamped]) -> Viewer {
    let mut viewer = Viewer::default().without_hint();
    viewer.open(Source::Recording { name: "test".to_string() }, None);
    events.iter().for_each(|event| viewer.push(event));
    viewer
}

/// Stamps events in order.
#[derive(Default)]
pub struct Stream {
    pub events: Vec<Stamped>,
    step: u64,
    micros: u64,
}

impl Stream {
    pub fn push(&mut self, event: Event) {
        let seq = self.events.len() as u64;
        self.events.push(Stamped { seq, step: self.step, micros: self.micros, event });
    }

    /// `slots` sequences, each with `blocks` blocks; nothing has run yet.
    pub fn of(slots: u32, blocks: u32) -> Self {
        let mut stream = Self::default();
        let pool = slots * blocks;
        let limits = Limits { sequences_max: slots, blocks: pool, ..Limits::default() };
        stream.push(Event::LimitsChanged { limits, reason: LimitsReason::Start });
        for s in 0..slots {
            let sequence = SequenceId(s);
            stream.push(Event::RequestArrived {
                request: RequestId(s),
                sequence,
                prompt: 8,
                max_new_tokens: 1 << 20,
                tenant: 0,
                class: 0,
                predicted: 8,
                waiting: s + 1,
            });
            stream.push(Event::SequenceAdmitted {
                sequence,
                slot: s,
                blocks,
                free: pool - s * blocks,
                kept: 0,
                peak: 0,
                passed: 0,
                waited_micros: 0,
            });
            let ids: Vec<BlockId> = (s * blocks..(s + 1) * blocks).map(BlockId).collect();
            for (at, ids) in ids.chunks(BlockList::MAX).enumerate() {
                let mut list = BlockList::default();
                assert!(ids.iter().all(|id| list.push(*id)));
                let from = (at * BlockList::MAX) as u32;
                stream.push(Event::BlocksTaken { sequence, from, blocks: list, free: 0 });
            }
        }
        stream
    }

    /// One step in which every sequence computes `len` positions from `start` on and gets a token.
    pub fn step(&mut self, slots: u32, start: u32, len: u32) {
        self.step += 1;
        let step = self.step;
        self.push(Event::StepPlanned {
            step,
            rows: slots,
            decode: if len == 1 { slots } else { 0 },
            tokens: slots * len,
            padding: 0,
            budget: (slots * len).max(64),
            waiting: 0,
            free: 0,
            unused: 0,
        });
        for s in 0..slots {
            let sequence = SequenceId(s);
            self.push(Event::RowPlanned { sequence, slot: s, start, len, samples: true });
        }
        self.micros += 900;
        self.push(Event::StepRan { step, plan_micros: 10, build_micros: 20, device_micros: 870 });
        for s in 0..slots {
            let (sequence, position) = (SequenceId(s), start + len);
            self.push(Event::TokenSampled { sequence, position, token: 300 + s });
        }
        self.micros += 100;
    }

    /// One step in which the place of `sequence`, which is done, computes nothing of worth.
    pub fn pad(&mut self, sequence: u32, start: u32) {
        self.step += 1;
        let (step, slot, sequence) = (self.step, sequence, Some(SequenceId(sequence)));
        self.push(Event::RowPadded { sequence, slot, start, len: 1 });
        self.micros += 900;
        self.push(Event::StepRan { step, plan_micros: 10, build_micros: 20, device_micros: 870 });
    }
}
