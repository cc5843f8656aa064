//! Results on their way back: staging buffers in a ring, and the future that reads one.

#[cfg(not(target_arch = "wasm32"))]
#[path = "native.rs"]
mod wait;
#[cfg(target_arch = "wasm32")]
#[path = "web.rs"]
mod wait;

pub use wait::reach;

use super::buffers::allocate;
use super::health::{Health, Open};
use super::timers::PAIR_BYTES;
use crate::record::{DeviceError, Finished, Timing, VariantId};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Idle staging buffers kept.
const IDLE_MAX: usize = 4;

type Answer = oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>;
type Idle = Arc<Mutex<Vec<wgpu::Buffer>>>;

/// Staging buffers that are not in use.
#[derive(Default)]
pub struct Ring(Idle);

impl Ring {
    /// A staging buffer of at least `bytes`; any number may be out at once.
    pub fn take(
        &self,
        device: &wgpu::Device,
        health: &Health,
        open: &mut Vec<Open>,
        bytes: u64,
    ) -> Result<Lease, DeviceError> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = (0..idle.len()).filter(|i| idle[*i].size() >= bytes);
        let buffer = match fits.min_by_key(|i| idle[*i].size()) {
            Some(at) => idle.swap_remove(at),
            None => {
                let bytes = bytes.max(4096).checked_next_power_of_two().unwrap_or(bytes);
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                allocate(device, health, open, "results of a step", bytes, usage)?
            }
        };
        Ok(Lease { buffer, mapped: false, idle: Some(Arc::clone(&self.0)) })
    }
}

/// A staging buffer in use; it goes back to the ring when dropped, read or not.
pub struct Lease {
    buffer: wgpu::Buffer,
    mapped: bool,
    /// Where it goes back to; nowhere after a failure, for its state is not known then.
    idle: Option<Idle>,
}

impl Lease {
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Asks for the first `bytes` to become readable.
    pub fn map(&mut self, bytes: u64) -> Answer {
        let (send, answer) = oneshot::channel();
        self.mapped = true;
        self.buffer.map_async(wgpu::MapMode::Read, 0..bytes, move |result| {
            // Nobody listens when the step was dropped unread.
            let _ = send.send(result);
        });
        answer
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(idle) = &self.idle else { return };
        if self.mapped {
            self.buffer.unmap();
        }
        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(self.buffer.clone());
        if idle.len() > IDLE_MAX
            && let Some(smallest) = (0..idle.len()).min_by_key(|i| idle[*i].size())
        {
            idle.swap_remove(smallest);
        }
    }
}

/// What a step brings back: downloads, then its stamp, then pairs of timestamps.
pub struct Parcel {
    pub downloads: u64,
    pub stamp: u32,
    /// The timed launches; empty when no times are taken.
    pub variants: Vec<VariantId>,
    pub launches: u32,
    /// Nanoseconds per tick.
    pub period: f32,
}

impl Parcel {
    pub fn times_at(&self) -> u64 {
        (self.downloads + 4).next_multiple_of(8)
    }

    pub fn bytes(&self) -> u64 {
        self.times_at() + self.variants.len() as u64 * PAIR_BYTES
    }

    fn unpack(&self, bytes: &[u8]) -> Result<Finished, DeviceError> {
        let cut = "the results came back cut short";
        let short = || DeviceError::Validation(cut.into());
        let downloads = self.downloads as usize;
        let stamp = bytes.get(downloads..downloads + 4).ok_or_else(short)?;
        if *stamp != self.stamp.to_le_bytes() {
            let message = "the step did not run: its stamp did not come back";
            return Err(DeviceError::Validation(message.into()));
        }
        let times = bytes.get(self.times_at() as usize..).ok_or_else(short)?;
        let tick = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
        let timings = self.variants.iter().zip(times.chunks_exact(PAIR_BYTES as usize));
        let timings = timings.map(|(variant, pair)| {
            let (begin, end) = pair.split_at(pair.len() / 2);
            let ticks = tick(end).saturating_sub(tick(begin));
            Timing { variant: *variant, nanos: (ticks as f64 * f64::from(self.period)) as u64 }
        });
        Ok(Finished { bytes: bytes[..downloads].to_vec(), timings: timings.collect() })
    }
}

/// A submitted step.
pub struct Flight {
    pub device: wgpu::Device,
    pub health: Health,
    pub open: Vec<Open>,
    /// How long to wait at most, and whether the device shares its processor with us.
    pub patience: (Duration, bool),
    pub index: wgpu::SubmissionIndex,
    pub answer: Answer,
    pub lease: Lease,
    pub parcel: Parcel,
}

impl Flight {
    /// Waits for the step and reads its results.
    pub async fn land(self) -> Result<Finished, DeviceError> {
        let Flight { device, health, open, patience, index, answer, mut lease, parcel } = self;
        health.check()?;
        for open in open {
            open.close(&health).await?;
        }
        let mapped = wait::arrive(&device, index, answer, patience, &health).await;
        if mapped.is_err() {
            lease.idle = None;
        }
        health.check()?;
        mapped?;
        let view = lease.buffer.get_mapped_range(0..parcel.bytes());
        let view = view.map_err(|e| DeviceError::Validation(format!("results: {e}")))?;
        parcel.unpack(&view)
    }
}
