//! A stream kept so that any step of it can be shown again: events in segments, each behind a
//! keyframe, the picture before its first event. A step is reached by folding at most one segment.
//! Memory is bounded: whole segments leave at the old end, and the oldest step that can still be
//! shown is known.

use super::event::{Event, Stamped};
use super::fold::fold;
use super::picture::Picture;
use std::collections::VecDeque;

/// Events of a segment at least: folding so many takes a few milliseconds at most.
const SEGMENT_EVENTS_MIN: usize = 4096;
/// And at most: large pictures want few keyframes, but a seek folds up to this many.
const SEGMENT_EVENTS_MAX: usize = 1 << 16;

struct Segment {
    /// The state before the first event.
    keyframe: Picture,
    events: Vec<Stamped>,
    bytes: usize,
}

impl Segment {
    fn first_step(&self) -> u64 {
        self.events.first().map_or(self.keyframe.step, |e| e.step)
    }
}

/// The kept part of a stream. Events must come in order.
pub struct History {
    segments: VecDeque<Segment>,
    live: Picture,
    bytes: usize,
    bytes_max: usize,
    forgotten: u64,
}

/// The picture that a reader asked for last: the next one is often a step further, and then only
/// that step is folded.
#[derive(Clone, Default)]
pub struct Cursor(Option<Shown>);

#[derive(Clone)]
struct Shown {
    picture: Picture,
    /// Stream position behind the last event folded in.
    next_seq: u64,
}

impl History {
    /// Keeps about `bytes_max` bytes of events and keyframes, the newest segment in any case.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            segments: VecDeque::new(),
            live: Picture::default(),
            bytes: 0,
            bytes_max,
            forgotten: 0,
        }
    }

    /// The same for a stream that is joined late: `picture` is its state so far.
    pub fn resume(picture: Picture, bytes_max: usize) -> Self {
        Self { live: picture, ..Self::new(bytes_max) }
    }

    /// Adds the next event; true when old ones were forgotten for it.
    pub fn push(&mut self, stamped: &Stamped) -> bool {
        // A step is never split: the picture of its end is behind its last event.
        let full = self.segments.back().is_none_or(|s| {
            let room = (4 * picture_bytes(&s.keyframe) / size_of::<Stamped>())
                .clamp(SEGMENT_EVENTS_MIN, SEGMENT_EVENTS_MAX);
            s.events.len() >= room && s.events.last().is_some_and(|e| e.step != stamped.step)
        });
        if full {
            let keyframe = self.live.clone();
            let bytes = picture_bytes(&keyframe);
            self.bytes += bytes;
            self.segments.push_back(Segment { keyframe, events: Vec::new(), bytes });
        }
        fold(&mut self.live, stamped);
        if let Some(segment) = self.segments.back_mut() {
            let bytes = event_bytes(stamped);
            segment.events.push(stamped.clone());
            segment.bytes += bytes;
            self.bytes += bytes;
        }
        self.forget()
    }

    fn forget(&mut self) -> bool {
        let before = self.forgotten;
        while self.bytes > self.bytes_max && self.segments.len() > 1 {
            let Some(old) = self.segments.pop_front() else { break };
            self.bytes -= old.bytes;
            self.forgotten += old.events.len() as u64;
        }
        self.forgotten > before
    }

    /// The state after the newest event.
    pub fn live(&self) -> &Picture {
        &self.live
    }

    /// The oldest step that can be shown whole.
    pub fn oldest_step(&self) -> u64 {
        self.segments.front().map_or(self.live.step, Segment::first_step)
    }

    pub fn newest_step(&self) -> u64 {
        self.live.step
    }

    /// Events that left at the old end.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Bytes of events and keyframes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Kept events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Stamped> {
        self.segments.iter().flat_map(|s| &s.events)
    }

    /// Kept events of `step`, what came in after its commit included.
    pub fn events_of(&self, step: u64) -> impl Iterator<Item = &Stamped> {
        let segment = self.segments.get(self.segment_of(step));
        let events = segment.map_or(&[][..], |s| &s.events);
        let from = events.partition_point(|e| e.step < step);
        events[from..].iter().take_while(move |e| e.step == step)
    }

    /// The last segment that begins at or before `step`.
    fn segment_of(&self, step: u64) -> usize {
        self.segments.partition_point(|s| s.first_step() <= step).saturating_sub(1)
    }

    /// The state after the last event of `step`; of the oldest or newest kept step beyond those.
    pub fn picture_at<'a>(&'a self, step: u64, cursor: &'a mut Cursor) -> &'a Picture {
        if step >= self.live.step {
            return &self.live;
        }
        let step = step.max(self.oldest_step());
        let index = self.segment_of(step);
        let Some(segment) = self.segments.get(index) else { return &self.live };
        let first = segment.keyframe.seq;
        let behind = segment.events.partition_point(|e| e.step <= step);
        let shown = match cursor.0.take() {
            // Reached by folding forward, within the segment.
            Some(shown) if shown.next_seq > first && shown.picture.step <= step => Some(shown),
            _ => None,
        };
        let mut shown =
            shown.unwrap_or_else(|| Shown { picture: segment.keyframe.clone(), next_seq: first });
        let from = segment.events.partition_point(|e| e.seq < shown.next_seq);
        for stamped in &segment.events[from.min(behind)..behind] {
            fold(&mut shown.picture, stamped);
            shown.next_seq = stamped.seq.saturating_add(1);
        }
        &cursor.0.insert(shown).picture
    }
}

/// What an event takes; prompts are told in pieces of many tokens.
fn event_bytes(stamped: &Stamped) -> usize {
    let tokens = match &stamped.event {
        Event::PromptGiven { tokens, .. } => size_of_val(tokens.as_slice()),
        _ => 0,
    };
    size_of::<Stamped>() + tokens
}

/// About what a picture takes.
fn picture_bytes(picture: &Picture) -> usize {
    let tables: usize = picture.sequences.values().map(|s| s.blocks.len()).sum();
    size_of::<Picture>()
        + size_of_val(picture.blocks.as_slice())
        + size_of_val(picture.slots.as_slice())
        + size_of_val(picture.last_step.rows.as_slice())
        + picture.sequences.len() * (size_of::<super::picture::SequencePicture>() + 32)
        + (tables + picture.queue.len()) * size_of::<u32>()
}
