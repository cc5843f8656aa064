//! A stream as Chrome trace JSON, which ui.perfetto.dev opens: one thread per slot with a slice per
//! row, one for the engine's own steps, counters, and an async track per sequence.
//! Format: "Trace Event Format", the JSON object form; times are microseconds.

use super::event::{Event, Stamped};
use super::fold::fold;
use super::picture::{Picture, RowPicture};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;

/// The engine's own thread; slot N is thread N + 1.
const ENGINE: u32 = 0;

/// Writes the whole document.
pub fn write_perfetto<'a>(
    to: &mut impl Write,
    events: impl Iterator<Item = &'a Stamped>,
) -> std::io::Result<()> {
    let mut out = Document { to, first: true, named: BTreeSet::new(), queued: BTreeSet::new() };
    out.to.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    out.put(&json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "tilewright"}}))?;
    out.thread(ENGINE, "engine")?;
    let mut picture = Picture::default();
    for stamped in events {
        fold(&mut picture, stamped);
        out.event(stamped, &picture)?;
    }
    out.to.write_all(b"\n]}\n")
}

struct Document<'a, W> {
    to: &'a mut W,
    first: bool,
    /// Slots whose thread has its name.
    named: BTreeSet<u32>,
    /// Sequences whose span in the queue is open.
    queued: BTreeSet<u32>,
}

impl<W: Write> Document<'_, W> {
    fn put(&mut self, value: &Value) -> std::io::Result<()> {
        self.to.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut *self.to, value)?;
        Ok(())
    }

    fn thread(&mut self, id: u32, name: &str) -> std::io::Result<()> {
        let args = json!({ "name": name });
        self.put(&json!({"ph": "M", "pid": 1, "tid": id, "name": "thread_name", "args": args}))
    }

    fn slice(
        &mut self,
        tid: u32,
        name: &str,
        ts: u64,
        dur: u64,
        args: Value,
    ) -> std::io::Result<()> {
        self.put(&json!({
            "ph": "X", "pid": 1, "tid": tid, "name": name, "ts": ts, "dur": dur, "args": args,
        }))
    }

    fn event(&mut self, stamped: &Stamped, picture: &Picture) -> std::io::Result<()> {
        let ts = stamped.micros;
        let track = |ph: &str, id: u32, name: &str, args: Value| {
            json!({
                "ph": ph, "cat": "sequence", "pid": 1, "id": id, "name": name, "ts": ts,
                "args": args,
            })
        };
        match &stamped.event {
            Event::RequestArrived { sequence, prompt, max_new_tokens, .. } => {
                let args = json!({"prompt": prompt, "max_new_tokens": max_new_tokens});
                self.put(&track("b", sequence.0, &format!("sequence {sequence}"), args))?;
                self.queued.insert(sequence.0);
                self.put(&track("b", sequence.0, "queued", json!({})))
            }
            Event::SequenceAdmitted { sequence, slot, .. } => {
                self.queued.remove(&sequence.0);
                self.put(&track("e", sequence.0, "queued", json!({ "slot": slot })))
            }
            Event::SequencePreempted { victim, gainer, method, lost, blocks, .. } => {
                let args = json!({
                    "for": gainer, "method": method, "lost_tokens": lost, "blocks": blocks,
                });
                self.put(&track("n", victim.0, "preempted", args))?;
                self.queued.insert(victim.0);
                self.put(&track("b", victim.0, "queued", json!({})))
            }
            Event::SequenceFinished { sequence, reason, generated, .. } => {
                if self.queued.remove(&sequence.0) {
                    self.put(&track("e", sequence.0, "queued", json!({})))?;
                }
                let args = json!({"reason": reason, "generated": generated});
                self.put(&track("e", sequence.0, &format!("sequence {sequence}"), args))
            }
            Event::StepRan { .. } => self.step(ts, picture),
            Event::KernelTimed { kernel, launches, nanos, .. } => {
                let args = json!({"launches": launches, "nanos": nanos});
                self.put(&json!({
                    "ph": "i", "s": "t", "pid": 1, "tid": ENGINE, "name": kernel, "ts": ts,
                    "args": args,
                }))
            }
            _ => Ok(()),
        }
    }

    /// The parts of a step that ended at `end`, its rows, and the counters.
    fn step(&mut self, end: u64, picture: &Picture) -> std::io::Result<()> {
        let last = &picture.last_step;
        let device = end.saturating_sub(last.device_micros);
        let build = device.saturating_sub(last.build_micros);
        let plan = build.saturating_sub(last.plan_micros);
        let args = json!({"step": last.step, "tokens": last.tokens, "budget": last.budget});
        self.slice(ENGINE, "plan", plan, last.plan_micros, json!({}))?;
        self.slice(ENGINE, "build", build, last.build_micros, json!({}))?;
        self.slice(ENGINE, &format!("step {}", last.step), device, last.device_micros, args)?;
        for row in &last.rows {
            let thread = row.slot.saturating_add(1);
            if self.named.insert(row.slot) {
                self.thread(thread, &format!("slot {}", row.slot))?;
            }
            let positions = row.len.saturating_add(row.drafts);
            let args = json!({"step": last.step, "start": row.start, "positions": positions});
            self.slice(thread, &row_name(row), device, last.device_micros, args)?;
        }
        let prefill = last.tokens.saturating_sub(last.decode).saturating_sub(last.padding);
        for (name, args) in [
            ("free blocks", json!({"free": picture.free_blocks()})),
            ("waiting", json!({"waiting": picture.queue.len()})),
            ("tokens", json!({"decode": last.decode, "prefill": prefill, "padding": last.padding})),
        ] {
            self.put(&json!({"ph": "C", "pid": 1, "name": name, "ts": end, "args": args}))?;
        }
        Ok(())
    }
}

fn row_name(row: &RowPicture) -> String {
    match (row.sequence, row.pad) {
        (Some(sequence), false) if row.drafts > 0 => {
            format!("decode {sequence} and {} guesses", row.drafts)
        }
        (Some(sequence), false) if row.len == 1 => format!("decode {sequence}"),
        (Some(sequence), false) => format!("prefill {sequence}"),
        _ => "padding".to_string(),
    }
}
