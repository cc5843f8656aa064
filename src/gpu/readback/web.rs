//! Waiting in a browser: the page's event loop makes progress and calls back; nothing may block.

use super::{Answer, Health};
use crate::record::DeviceError;
use std::time::Duration;

/// Nothing to wait for: the browser bounds what its queue holds.
pub fn reach(
    _device: &wgpu::Device,
    _index: wgpu::SubmissionIndex,
    _timeout: Duration,
    health: &Health,
) -> Result<(), DeviceError> {
    health.check()
}

/// Waits until the staging buffer is readable. A lost device answers too, with an error.
pub async fn arrive(
    _device: &wgpu::Device,
    _index: wgpu::SubmissionIndex,
    answer: Answer,
    _patience: (Duration, bool),
    health: &Health,
) -> Result<(), DeviceError> {
    let result = answer.await;
    health.check()?;
    let message = match result {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(e)) => e.to_string(),
        Err(e) => e.to_string(),
    };
    Err(DeviceError::Validation(format!("the results cannot be read: {message}")))
}
