//! A device around another one: smaller limits, and faults at chosen steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tilewright::record::{
    BufferId, Command, Device, DeviceError, Facts, Pending, Recording, Texel, VariantId,
};

/// Called with the device and the number of the step that is about to be submitted.
pub type Before<D> = Box<dyn FnMut(&mut D, u64) -> Result<(), DeviceError>>;

/// Called with the device, a label and a size.
pub type Allocate<D> = Box<dyn FnMut(&mut D, &str, u64) -> Result<(), DeviceError>>;

/// A device whose facts and steps a row may change.
pub struct Wrapped<D> {
    pub inner: D,
    pub facts: Facts,
    pub before: Before<D>,
    /// Changes what a step brings back.
    pub after: fn(&mut Vec<u8>),
    /// Called before a buffer of this label and size is made.
    pub allocate: Allocate<D>,
    /// Buffers made so far.
    pub created: Arc<AtomicU64>,
    steps: u64,
}

impl<D: Device> Wrapped<D> {
    pub fn new(inner: D) -> Self {
        Self {
            facts: inner.facts().clone(),
            inner,
            before: Box::new(|_, _| Ok(())),
            after: |_| {},
            allocate: Box::new(|_, _, _| Ok(())),
            created: Arc::default(),
            steps: 0,
        }
    }
}

impl<D: Device> Wrapped<D> {
    fn may_create(&mut self, label: &str, bytes: u64) -> Result<(), DeviceError> {
        self.created.fetch_add(1, Ordering::Relaxed);
        let limit = self.facts.buffer_bytes_max;
        if bytes > limit {
            return Err(DeviceError::TooLarge { label: label.into(), bytes, limit });
        }
        (self.allocate)(&mut self.inner, label, bytes)
    }
}

impl<D: Device> Device for Wrapped<D> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, DeviceError> {
        self.may_create(label, bytes)?;
        self.inner.create_buffer(label, bytes)
    }

    fn create_texels(
        &mut self,
        label: &str,
        bytes: u64,
        texel: Texel,
    ) -> Result<BufferId, DeviceError> {
        self.may_create(label, bytes)?;
        self.inner.create_texels(label, bytes, texel)
    }

    fn write_buffer(&mut self, id: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_buffer(id, offset, data)
    }

    fn free_buffer(&mut self, id: BufferId) {
        self.inner.free_buffer(id);
    }

    fn prepare(&mut self, variants: &[VariantId]) -> Result<(), DeviceError> {
        self.inner.prepare(variants)
    }

    fn begin(&mut self, variants: &[VariantId]) {
        self.inner.begin(variants);
    }

    fn submit(&mut self, recording: &Recording) -> Result<Pending, DeviceError> {
        for command in &recording.commands {
            let Command::Dispatch(launch) = command else { continue };
            for binding in &launch.bindings {
                assert!(binding.bytes <= self.facts.binding_bytes_max, "{binding:?}");
                assert_eq!(binding.offset % 256, 0, "{binding:?}");
            }
        }
        self.steps += 1;
        (self.before)(&mut self.inner, self.steps)?;
        let (pending, after) = (self.inner.submit(recording)?, self.after);
        Ok(Box::pin(async move {
            let mut finished = pending.await?;
            after(&mut finished.bytes);
            Ok(finished)
        }))
    }
}
