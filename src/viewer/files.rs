//! Recordings in, tables out: reading a trace (plain or gzip), and what a kept stream is exported
//! as.

use super::steps::{StepRow, Steps};
use crate::trace::{
    Header, History, Reader, Stamped, TraceError, unpacked, write_header, write_line,
    write_perfetto,
};
use std::io::{Read, Write};

/// Reads a recording and hands on its events; returns its header. The events before a damage are
/// handed on.
pub fn read_recording(
    from: impl Read,
    take: &mut dyn FnMut(Stamped),
) -> Result<Header, TraceError> {
    let mut reader = Reader::new(unpacked(from)?)?;
    for event in reader.by_ref() {
        take(event?);
    }
    Ok(reader.header().clone())
}

/// The kept events, as `--record` writes them.
pub fn to_jsonl(header: &Header, history: &History) -> Vec<u8> {
    written(|to| {
        write_header(to, header)?;
        history.events().try_for_each(|event| write_line(to, event))
    })
}

/// For ui.perfetto.dev.
pub fn to_perfetto(history: &History) -> Vec<u8> {
    written(|to| write_perfetto(to, history.events()))
}

/// One line per step.
pub fn to_csv(steps: &Steps) -> Vec<u8> {
    written(|to| {
        writeln!(
            to,
            "step,planned_micros,ran_micros,rows,decode,prefill,padding,budget,waiting,free_blocks,\
             plan_micros,build_micros,device_micros,kernel_micros,arrived,admitted,preempted,\
             finished,refused,drafted,right"
        )?;
        steps.range(0, steps.len()).try_for_each(|row| csv_line(to, row))
    })
}

fn csv_line(to: &mut Vec<u8>, row: &StepRow) -> std::io::Result<()> {
    let marks = &row.marks;
    let counts = [marks.arrived, marks.admitted, marks.preempted, marks.finished, marks.refused];
    let small = [row.rows, row.decode, row.prefill, row.padding, row.budget, row.waiting, row.free];
    let fields = [row.step, row.planned_micros, row.ran_micros]
        .into_iter()
        .chain(small.map(u64::from))
        .chain([row.plan_micros, row.build_micros, row.device_micros])
        .chain([row.device_parts().map_or(0, |parts| parts.0)])
        .chain(counts.map(u64::from))
        .chain([row.drafted, row.right].map(u64::from));
    for (at, field) in fields.enumerate() {
        write!(to, "{}{field}", if at > 0 { "," } else { "" })?;
    }
    writeln!(to)
}

/// Memory takes everything: the writer cannot fail, and what it has is returned in any case.
fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = write(&mut out);
    out
}
