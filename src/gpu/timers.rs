//! Times of single launches: two timestamps around a pass of its own for each.

use super::buffers::allocate;
use super::health::{Health, Open};
use crate::record::DeviceError;

/// Launches that one query set times.
const PAIRS: u32 = wgpu::QUERY_SET_MAX_QUERIES / 2;
/// Bytes of one launch's two timestamps.
pub const PAIR_BYTES: u64 = 2 * wgpu::QUERY_SIZE as u64;

pub struct Timers {
    pub on: bool,
    /// Nanoseconds of one tick.
    pub period: f32,
    sets: Vec<wgpu::QuerySet>,
    resolved: Option<wgpu::Buffer>,
}

impl Timers {
    pub fn new(on: bool, period: f32) -> Timers {
        Timers { on, period, sets: Vec::new(), resolved: None }
    }

    /// Makes room for `launches`; a buffer for the times is there afterwards.
    pub fn reserve(
        &mut self,
        device: &wgpu::Device,
        health: &Health,
        open: &mut Vec<Open>,
        launches: u32,
    ) -> Result<(), DeviceError> {
        let sets = launches.div_ceil(PAIRS) as usize;
        if !self.on || sets <= self.sets.len() {
            return Ok(());
        }
        let bytes = sets as u64 * u64::from(PAIRS) * PAIR_BYTES;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        self.resolved = Some(allocate(device, health, open, "timestamps", bytes, usage)?);
        let make = || {
            device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2 * PAIRS,
            })
        };
        self.sets.resize_with(sets, make);
        Ok(())
    }

    /// The stamps around launch `index`.
    pub fn writes(&self, index: u32) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let set = self.sets.get((index / PAIRS) as usize)?;
        let first = index % PAIRS * 2;
        Some(wgpu::ComputePassTimestampWrites {
            query_set: set,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    /// Copies the stamps of the first `launches` to `into` at `offset`.
    pub fn resolve(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        launches: u32,
        into: &wgpu::Buffer,
        offset: u64,
    ) {
        let Some(resolved) = &self.resolved else { return };
        for (set, first) in self.sets.iter().zip((0..launches).step_by(PAIRS as usize)) {
            let queries = 2 * (launches - first).min(PAIRS);
            let at = u64::from(first) * PAIR_BYTES;
            encoder.resolve_query_set(set, 0..queries, resolved, at);
        }
        let bytes = u64::from(launches) * PAIR_BYTES;
        encoder.copy_buffer_to_buffer(resolved, 0, into, offset, bytes);
    }
}
