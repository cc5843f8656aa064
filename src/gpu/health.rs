//! What went wrong on the device, kept for ever: once it was lost, or once an error could not be
//! tied to a call, every later call fails. A buffer of zeros is never taken for a result.

use crate::record::DeviceError;
use futures_util::FutureExt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MEMORY_HINT: &str = "take a smaller or more quantised model, a smaller context or KV pool, \
     or free memory on the device";

/// Shared between the device, its callbacks and the steps in flight.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lost: Option<String>,
    fault: Option<String>,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device is gone; the first reason is kept.
    pub fn lose(&self, reason: &str) {
        self.state().lost.get_or_insert_with(|| reason.to_string());
    }

    /// Something failed that no call can report any more; the first message is kept.
    pub fn fault(&self, message: &str) {
        self.state().fault.get_or_insert_with(|| message.to_string());
    }

    pub fn check(&self) -> Result<(), DeviceError> {
        let state = self.state();
        match (&state.lost, &state.fault) {
            (Some(reason), _) => Err(DeviceError::Lost(reason.clone())),
            (None, Some(fault)) => {
                Err(DeviceError::Validation(format!("an earlier call: {fault}")))
            }
            (None, None) => Ok(()),
        }
    }

    /// Registers the callbacks of `device` that would otherwise end the process.
    pub fn watch(&self, device: &wgpu::Device) {
        let lost = self.clone();
        device.set_device_lost_callback(move |reason, message| {
            lost.lose(match message.as_str() {
                "" if reason == wgpu::DeviceLostReason::Destroyed => "it was destroyed",
                "" => "the driver gave no reason",
                message => message,
            });
        });
        let uncaptured = self.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            uncaptured.fault(&error.to_string());
        }));
    }
}

/// What a call was about to do, for the error it may end in.
#[derive(Clone, Debug)]
pub enum Asked {
    Memory { label: String, bytes: u64 },
    Pipeline { variant: String },
    Commands,
}

impl Asked {
    pub fn out_of_memory(&self) -> DeviceError {
        let (label, bytes) = match self {
            Asked::Memory { label, bytes } => (label.clone(), *bytes),
            Asked::Pipeline { variant } => (format!("pipeline {variant}"), 0),
            Asked::Commands => ("commands of a step".into(), 0),
        };
        DeviceError::OutOfMemory { label, bytes, hint: MEMORY_HINT.into() }
    }

    fn error(&self, error: &wgpu::Error) -> DeviceError {
        match (error, self) {
            (wgpu::Error::OutOfMemory { .. }, _) => self.out_of_memory(),
            (other, Asked::Pipeline { variant }) => {
                DeviceError::Shader { variant: variant.clone(), message: other.to_string() }
            }
            (other, Asked::Memory { label, .. }) => {
                DeviceError::Validation(format!("`{label}`: {other}"))
            }
            (other, Asked::Commands) => DeviceError::Validation(other.to_string()),
        }
    }
}

/// The answer of an error scope. Natively it is there at once, in a browser some time later.
trait Verdict: Future<Output = Option<wgpu::Error>> + wgpu::WasmNotSend {}
impl<T: Future<Output = Option<wgpu::Error>> + wgpu::WasmNotSend> Verdict for T {}

/// An answer that a later call has to wait for.
pub struct Open {
    asked: Asked,
    verdict: Pin<Box<dyn Verdict>>,
}

impl Open {
    pub async fn close(self, health: &Health) -> Result<(), DeviceError> {
        match self.verdict.await {
            Some(error) => {
                let error = self.asked.error(&error);
                // The call itself had already returned: what it made must not be used.
                health.fault(&error.to_string());
                Err(error)
            }
            None => Ok(()),
        }
    }
}

/// Error scopes around a few calls. Dropping it closes them unread; fields go innermost first.
pub struct Scope {
    memory: wgpu::ErrorScopeGuard,
    internal: wgpu::ErrorScopeGuard,
    validation: wgpu::ErrorScopeGuard,
}

impl Scope {
    pub fn open(device: &wgpu::Device) -> Scope {
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        Scope { memory, internal, validation }
    }

    /// Ends the scopes: an error if one is known, else perhaps an answer to come in `open`.
    pub fn close(
        self,
        asked: Asked,
        health: &Health,
        open: &mut Vec<Open>,
    ) -> Result<(), DeviceError> {
        let memory = self.memory.pop();
        let internal = self.internal.pop();
        let validation = self.validation.pop();
        let mut verdict: Pin<Box<dyn Verdict>> = Box::pin(async move {
            let (memory, internal) = (memory.await, internal.await);
            let validation = validation.await;
            memory.or(internal).or(validation)
        });
        let now = (&mut verdict).now_or_never();
        health.check()?;
        match now {
            Some(Some(error)) => Err(asked.error(&error)),
            Some(None) => Ok(()),
            None => {
                open.push(Open { asked, verdict });
                Ok(())
            }
        }
    }
}
