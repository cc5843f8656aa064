//! Streams for the rows: a recorded overload, and made ones of any size.

use crate::support::root;
use std::fs::File;
use std::ops::Range;
use tilewright::base::{BlockId, Limits, RequestId, SequenceId, Victim};
use tilewright::trace::{BlockList, Event, LimitsReason, PreemptMethod, PreemptReason, Stamped};
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

/// A sequence gets the slot of its number.
fn admitted(sequence: u32, blocks: u32, free: u32) -> Event {
    let (sequence, slot) = (SequenceId(sequence), sequence);
    let (kept, peak, passed, waited_micros) = (0, 0, 0, 0);
    Event::SequenceAdmitted { sequence, slot, blocks, free, kept, peak, passed, waited_micros }
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
        let limits =
            Limits { sequences_max: slots, blocks: pool, host_blocks: 8, ..Limits::default() };
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
            stream.push(admitted(s, blocks, pool - s * blocks));
            stream.take(sequence, s * blocks..(s + 1) * blocks);
        }
        stream
    }

    fn take(&mut self, sequence: SequenceId, blocks: Range<u32>) {
        let ids: Vec<BlockId> = blocks.map(BlockId).collect();
        for (at, ids) in ids.chunks(BlockList::MAX).enumerate() {
            let mut list = BlockList::default();
            assert!(ids.iter().all(|id| list.push(*id)));
            let from = (at * BlockList::MAX) as u32;
            self.push(Event::BlocksTaken { sequence, from, blocks: list, free: 0 });
        }
    }

    /// One step in which every sequence computes `len` positions from `start` on and gets a token.
    pub fn step(&mut self, slots: u32, start: u32, len: u32) {
        self.guess(slots, start, len, (0, 0));
    }

    /// The same, and every row goes on with `drafted` guesses of which `right` are right.
    pub fn guess(&mut self, slots: u32, start: u32, len: u32, (drafted, right): (u32, u32)) {
        self.step += 1;
        let step = self.step;
        let tokens = slots * (len + drafted);
        self.push(Event::StepPlanned {
            step,
            rows: slots,
            decode: if len == 1 { tokens } else { 0 },
            tokens,
            padding: 0,
            budget: tokens.max(64),
            waiting: 0,
            free: 0,
            unused: 0,
        });
        for s in 0..slots {
            let sequence = SequenceId(s);
            self.push(Event::RowPlanned { sequence, slot: s, start, len, samples: true });
            if drafted > 0 {
                self.push(Event::RowDrafted { sequence, start: start + len, len: drafted });
            }
        }
        self.micros += 900;
        self.push(Event::StepRan { step, plan_micros: 10, build_micros: 20, device_micros: 870 });
        for s in 0..slots {
            let sequence = SequenceId(s);
            if drafted > 0 {
                self.push(Event::DraftsTried { sequence, drafted, right });
            }
            for position in start + len..=start + len + right {
                self.push(Event::TokenSampled { sequence, position, token: 300 + s });
            }
        }
        self.micros += 100;
    }

    /// One step that decodes, with what its kernels took.
    pub fn timed(&mut self, slots: u32, start: u32, kernels: &[Event]) {
        self.step(slots, start, 1);
        let ran = self.events.iter().rposition(|e| matches!(e.event, Event::StepRan { .. }));
        let at = ran.expect("it ran");
        for (more, kernel) in kernels.iter().enumerate() {
            let stamped = Stamped { event: kernel.clone(), ..self.events[at].clone() };
            self.events.insert(at + more, stamped);
        }
        for (seq, stamped) in (0..).zip(&mut self.events) {
            stamped.seq = seq;
        }
    }

    /// Nothing happens for so long.
    pub fn wait(&mut self, micros: u64) {
        self.micros += micros;
    }

    /// The last of three sequences goes to host memory with 40 positions; the others go on.
    pub fn swapped() -> Self {
        let mut stream = Self::of(3, 4);
        stream.step(3, 0, 40);
        let victim = SequenceId(2);
        stream.push(Event::SequencePreempted {
            victim,
            gainer: SequenceId(0),
            reason: PreemptReason::OutOfBlocks,
            policy: Victim::Youngest,
            juniors: 2,
            method: PreemptMethod::Swap,
            recompute_micros: 900,
            swap_micros: 80,
            host_free: 8,
            lost: 0,
            blocks: 4,
            times: 1,
        });
        stream.push(Event::BlocksReturned { sequence: victim, from: 0, count: 4, free: 4 });
        stream.step(2, 40, 1);
        stream
    }

    /// The same sequence comes back, into the blocks that it had.
    pub fn swap_in(&mut self) {
        let (sequence, tokens) = (SequenceId(2), 40);
        self.push(admitted(2, 4, 4));
        self.push(Event::SequenceSwappedIn { sequence, expired: 0, blocks: 3, tokens });
        self.take(sequence, 8..12);
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
