//! The buffers of a device by id. An id is never given twice, so a stale one is an error.

use super::health::{Asked, Health, Open, Scope};
use crate::record::{Binding, BufferId, DeviceError};

struct Entry {
    label: String,
    buffer: wgpu::Buffer,
}

#[derive(Default)]
pub struct Buffers {
    entries: Vec<Option<Entry>>,
    fail_next: bool,
}

pub const ORDINARY: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

/// Makes a buffer of at least `bytes`, or says why not.
pub fn allocate(
    device: &wgpu::Device,
    health: &Health,
    open: &mut Vec<Open>,
    label: &str,
    bytes: u64,
    usage: wgpu::BufferUsages,
) -> Result<wgpu::Buffer, DeviceError> {
    let limit = device.limits().max_buffer_size;
    let size = bytes.max(4).checked_next_multiple_of(4).unwrap_or(u64::MAX);
    if size > limit {
        return Err(DeviceError::TooLarge { label: label.into(), bytes, limit });
    }
    let scope = Scope::open(device);
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage,
        mapped_at_creation: false,
    });
    scope.close(Asked::Memory { label: label.into(), bytes: size }, health, open)?;
    Ok(buffer)
}

impl Buffers {
    pub fn create(
        &mut self,
        device: &wgpu::Device,
        health: &Health,
        open: &mut Vec<Open>,
        label: &str,
        bytes: u64,
    ) -> Result<BufferId, DeviceError> {
        if std::mem::take(&mut self.fail_next) {
            return Err(Asked::Memory { label: label.into(), bytes }.out_of_memory());
        }
        let id = u32::try_from(self.entries.len())
            .map_err(|_| DeviceError::Validation("all buffer ids are used up".into()))?;
        let buffer = allocate(device, health, open, label, bytes, ORDINARY)?;
        self.entries.push(Some(Entry { label: label.into(), buffer }));
        Ok(BufferId(id))
    }

    /// Fault hook: the next buffer fails as if memory had run out.
    pub fn fail_next(&mut self) {
        self.fail_next = true;
    }

    pub fn free(&mut self, id: BufferId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            *entry = None;
        }
    }

    fn entry(&self, id: BufferId) -> Result<&Entry, DeviceError> {
        let entry = self.entries.get(id.0 as usize).and_then(Option::as_ref);
        let what = || format!("buffer {} does not exist (freed, or of another device)", id.0);
        entry.ok_or_else(|| DeviceError::Validation(what()))
    }

    /// The buffer `id`, if `offset..offset + bytes` is a range of whole words in it.
    pub fn range(
        &self,
        id: BufferId,
        offset: u64,
        bytes: u64,
    ) -> Result<&wgpu::Buffer, DeviceError> {
        let entry = self.entry(id)?;
        let size = entry.buffer.size();
        let end = offset.checked_add(bytes);
        if !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) || end.is_none_or(|e| e > size) {
            let label = &entry.label;
            return Err(DeviceError::Validation(format!(
                "`{label}` has {size} bytes; {bytes} bytes at {offset} are outside or not words"
            )));
        }
        Ok(&entry.buffer)
    }

    /// As [`Self::range`], for a range that a shader binds.
    pub fn bindable(
        &self,
        binding: &Binding,
        limits: &wgpu::Limits,
    ) -> Result<&wgpu::Buffer, DeviceError> {
        let Binding { buffer: id, offset, bytes } = *binding;
        let buffer = self.range(id, offset, bytes)?;
        let label = || self.entry(id).map(|e| e.label.clone());
        if bytes > limits.max_storage_buffer_binding_size {
            let limit = limits.max_storage_buffer_binding_size;
            return Err(DeviceError::TooLarge { label: label()?, bytes, limit });
        }
        let step = u64::from(limits.min_storage_buffer_offset_alignment);
        if bytes == 0 || !offset.is_multiple_of(step) {
            let label = label()?;
            return Err(DeviceError::Validation(format!(
                "`{label}`: cannot bind {bytes} bytes at {offset}; offsets are multiples of {step}"
            )));
        }
        Ok(buffer)
    }
}
