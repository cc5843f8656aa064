//! A device on which single kernels are timed.

use crate::base::Format;
use crate::kernels::mul::{Matrix, MatrixPart};
use crate::kernels::streams::Streams;
use crate::kernels::{layout, texels};
use crate::model::kernel_name;
use crate::record::{Binding, BufferId, Command, Device, DeviceError, Facts, Recording};
use crate::weights::blocks;
use std::time::Instant;

/// Time that the launches of one recording are to take together, and the most there may be.
const RECORDING_NANOS: f64 = 3e7;
const CALLS_MAX: usize = 512;

/// Recordings that are measured; the median counts.
const RUNS: usize = 3;

/// Bytes of matrices that launches take turns with, so that none finds its weights in a cache, as
/// none does in a model.
const TURN_BYTES: u64 = 256 << 20;
const TURN_BYTES_SOFTWARE: u64 = 64 << 20;
const TURNS_MAX: u64 = 32;

/// Bytes of one part of a matrix.
const PART_BYTES: u64 = 1 << 30;

/// Writes call after call, which it gets the number of.
pub type Record<'a> = &'a mut dyn FnMut(usize, &mut Recording);

/// What one call took.
pub struct Timed {
    pub nanos: f64,
    pub by: &'static str,
    /// Names of what was launched.
    pub variants: String,
}

pub struct Lab {
    pub device: Box<dyn Device>,
    pub facts: Facts,
    made: Vec<BufferId>,
}

impl Lab {
    pub fn new(device: Box<dyn Device>) -> Self {
        let facts = device.facts().clone();
        Self { device, facts, made: Vec::new() }
    }

    pub fn zeros(&mut self, bytes: u64) -> Result<Binding, DeviceError> {
        let bytes = bytes.next_multiple_of(16).max(16);
        let buffer = self.device.create_buffer("operand", bytes)?;
        self.made.push(buffer);
        Ok(Binding { buffer, offset: 0, bytes })
    }

    pub fn words(&mut self, words: &[u32]) -> Result<Binding, DeviceError> {
        let binding = self.zeros(words.len() as u64 * 4)?;
        self.device.write_buffer(binding.buffer, 0, bytemuck::cast_slice(words))?;
        Ok(binding)
    }

    /// An activation: rows of whole k-blocks.
    pub fn rows(&mut self, rows: u32, dim: u32) -> Result<Binding, DeviceError> {
        let stride = u64::from(dim.next_multiple_of(layout::K_BLOCK));
        self.zeros(u64::from(rows) * stride * 4)
    }

    pub fn free(&mut self, bindings: &[Binding]) {
        for binding in bindings {
            self.device.free_buffer(binding.buffer);
            self.made.retain(|id| *id != binding.buffer);
        }
    }

    /// Frees everything.
    pub fn clear(&mut self) {
        for buffer in std::mem::take(&mut self.made) {
            self.device.free_buffer(buffer);
        }
    }

    pub fn turn_bytes(&self) -> u64 {
        if self.facts.software() { TURN_BYTES_SOFTWARE } else { TURN_BYTES }
    }

    pub fn stream_bytes(&self, format: Format, [rows, cols]: [u32; 2]) -> u64 {
        layout::stream_bytes(format, rows.into(), cols.into()).map_or(u64::MAX, |b| b.total)
    }

    /// Equal random matrices, as many as [`Lab::turn_bytes`] hold.
    pub fn matrices(
        &mut self,
        format: Format,
        [rows, cols]: [u32; 2],
    ) -> Result<Vec<Matrix>, DeviceError> {
        let count = self.turn_bytes() / self.stream_bytes(format, [rows, cols]).max(1);
        let drawn = blocks::random(format, (1 << 20) / format.block_len() + 1, 1);
        let facts = &self.facts;
        let limit = facts.binding_bytes_max.min(facts.buffer_bytes_max).min(PART_BYTES);
        let fit = layout::rows_within(format, cols.into(), limit).max(1);
        let fit = u32::try_from(fit).unwrap_or(rows).min(rows);
        let mut out = Vec::new();
        for _ in 0..count.clamp(1, TURNS_MAX) {
            let mut parts = Vec::new();
            for first in (0..rows).step_by(fit as usize) {
                parts.push(self.part(format, [fit.min(rows - first), cols], first, &drawn)?);
            }
            out.push(Matrix { format, rows, cols, parts });
        }
        Ok(out)
    }

    fn part(
        &mut self,
        format: Format,
        [rows, cols]: [u32; 2],
        first: u32,
        drawn: &[u8],
    ) -> Result<MatrixPart, DeviceError> {
        let values = u64::from(rows) * u64::from(cols);
        let bytes = format.bytes_of(values).unwrap_or(0) as usize;
        let mut raw = Vec::with_capacity(bytes);
        while raw.len() < bytes {
            raw.extend_from_slice(&drawn[..drawn.len().min(bytes - raw.len())]);
        }
        let (device, held) = (self.device.as_mut(), texels(cols, &self.facts));
        let (shape, made) = ([rows, cols], &mut self.made);
        let mut streams = Streams::create(device, "operand", format, 1, shape, held, made)?;
        streams.write(device, &raw)?;
        Ok(MatrixPart { first, rows, quants: streams.quants, scales: streams.scales })
    }

    /// What one call of `record` takes.
    pub fn time(&mut self, record: Record<'_>) -> Result<Timed, DeviceError> {
        Ok(self.by_turns(RUNS, &mut [record])?.remove(0))
    }

    /// The same of several, which take turns, so that all meet the same machine.
    pub fn by_turns(
        &mut self,
        runs: usize,
        records: &mut [Record<'_>],
    ) -> Result<Vec<Timed>, DeviceError> {
        self.device.time_launches(false);
        let mut written = Vec::new();
        for record in records {
            written.push(self.many(&mut **record)?);
        }
        let copy = |c: &Command| matches!(c, Command::Copy { .. });
        let copies = written.iter().any(|(_, recording)| recording.commands.iter().any(copy));
        let stamps = !copies && self.device.time_launches(true);
        let mut found = vec![Vec::new(); written.len()];
        for _ in 0..runs {
            for ((calls, recording), found) in written.iter().zip(&mut found) {
                let nanos = match stamps {
                    true => {
                        let finished = self.device.run(recording)?;
                        finished.timings.iter().map(|t| t.nanos).sum::<u64>() as f64
                    }
                    false => self.wall(recording)?,
                };
                found.push(nanos / *calls as f64);
            }
        }
        self.device.time_launches(false);
        let by = if stamps { "timestamps" } else { "wall" };
        let timed = written.iter().zip(found).map(|((_, recording), found)| {
            let nanos = crate::bench::step::median(found).max(1.0);
            Timed { nanos, by, variants: names(recording) }
        });
        Ok(timed.collect())
    }

    /// As many calls of `record` as take long enough to be measured, and the recording of them.
    fn many(&mut self, record: Record<'_>) -> Result<(usize, Recording), DeviceError> {
        let mut recording = Recording::default();
        let mut calls = 1;
        let mut write = |calls: usize, recording: &mut Recording| {
            recording.clear();
            (0..calls).for_each(|turn| record(turn, recording));
        };
        // The first run makes what is made lazily.
        write(1, &mut recording);
        self.device.run(&recording)?;
        loop {
            write(calls, &mut recording);
            let nanos = self.wall(&recording)?;
            if nanos >= RECORDING_NANOS || calls >= CALLS_MAX {
                return Ok((calls, recording));
            }
            let more = (RECORDING_NANOS / nanos * 1.2).clamp(2.0, 64.0);
            calls = (calls as f64 * more).ceil().min(CALLS_MAX as f64) as usize;
        }
    }

    fn wall(&mut self, recording: &Recording) -> Result<f64, DeviceError> {
        let start = Instant::now();
        self.device.run(recording)?;
        Ok((start.elapsed().as_nanos() as f64).max(1.0))
    }
}

/// Each variant once, in the order of the launches.
fn names(recording: &Recording) -> String {
    let mut out: Vec<&str> = Vec::new();
    for command in &recording.commands {
        if let Command::Dispatch(dispatch) = command {
            let name = kernel_name(dispatch.variant);
            if !out.contains(&name) {
                out.push(name);
            }
        }
    }
    out.join(" + ")
}
