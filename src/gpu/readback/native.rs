//! Waiting natively: nothing happens unless the device is polled, so the future polls it itself
//! and blocks its thread, for a bounded time.

use super::{Answer, Health};
use crate::record::DeviceError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use tokio::sync::oneshot::error::TryRecvError;

/// Short steps end while we look; a sleeping wait costs more than they take.
const SPIN: Duration = Duration::from_micros(200);

fn poll(
    device: &wgpu::Device,
    kind: wgpu::PollType,
    timeout: Duration,
    health: &Health,
) -> Result<(), DeviceError> {
    // wgpu panics when it finds the device lost inside a poll.
    match catch_unwind(AssertUnwindSafe(|| device.poll(kind))) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(wgpu::PollError::Timeout)) => Err(DeviceError::Timeout {
            seconds: timeout.as_secs(),
            hint: "a step is too long for this adapter (lower the tokens per step) or it hangs"
                .into(),
        }),
        Ok(Err(other)) => {
            health.check()?;
            Err(DeviceError::Validation(other.to_string()))
        }
        Err(_) => {
            health.lose("the driver failed while a step ran");
            health.check()
        }
    }
}

/// Waits until the submission `index` has run.
pub fn reach(
    device: &wgpu::Device,
    index: wgpu::SubmissionIndex,
    timeout: Duration,
    health: &Health,
) -> Result<(), DeviceError> {
    let kind = wgpu::PollType::Wait { submission_index: Some(index), timeout: Some(timeout) };
    poll(device, kind, timeout, health)?;
    health.check()
}

/// Waits until the submission `index` has run and its staging buffer is readable.
pub async fn arrive(
    device: &wgpu::Device,
    index: wgpu::SubmissionIndex,
    mut answer: Answer,
    (timeout, software): (Duration, bool),
    health: &Health,
) -> Result<(), DeviceError> {
    let start = Instant::now();
    while !software && start.elapsed() < SPIN {
        poll(device, wgpu::PollType::Poll, timeout, health)?;
        match answer.try_recv() {
            Ok(result) => return mapped(result),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Closed) => break,
        }
    }
    reach(device, index, timeout, health)?;
    match answer.try_recv() {
        Ok(result) => mapped(result),
        Err(e) => Err(DeviceError::Validation(format!("the results never became readable: {e}"))),
    }
}

fn mapped(result: Result<(), wgpu::BufferAsyncError>) -> Result<(), DeviceError> {
    result.map_err(|e| DeviceError::Validation(format!("the results cannot be read: {e}")))
}
