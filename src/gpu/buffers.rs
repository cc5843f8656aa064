//! The buffers of a device by id. An id is never given twice, so a stale one is an error.

use super::health::{Asked, Health, Open, Scope};
use super::reflect::Kind;
use super::texels::Texels;
use crate::record::{Binding, BufferId, DeviceError, Texel};

struct Entry {
    label: String,
    held: Held,
}

enum Held {
    Buffer(wgpu::Buffer),
    Texels(Texels),
}

#[derive(Default)]
pub struct Buffers {
    entries: Vec<Option<Entry>>,
    /// Bytes behind the end of each buffer that a uniform may reach; 0 where kernels bind none.
    tail: u64,
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
    pub fn new(tail: u64) -> Self {
        Self { tail, ..Self::default() }
    }

    pub fn create(
        &mut self,
        device: &wgpu::Device,
        health: &Health,
        open: &mut Vec<Open>,
        label: &str,
        bytes: u64,
    ) -> Result<BufferId, DeviceError> {
        self.may_fail(label, bytes)?;
        let usage = match self.tail {
            0 => ORDINARY,
            _ => ORDINARY | wgpu::BufferUsages::UNIFORM,
        };
        let limit = device.limits().max_buffer_size - self.tail;
        if bytes > limit {
            return Err(DeviceError::TooLarge { label: label.into(), bytes, limit });
        }
        let buffer = allocate(device, health, open, label, bytes + self.tail, usage)?;
        self.push(label, Held::Buffer(buffer))
    }

    pub fn create_texels(
        &mut self,
        device: &wgpu::Device,
        (health, open): (&Health, &mut Vec<Open>),
        label: &str,
        bytes: u64,
        texel: Texel,
    ) -> Result<BufferId, DeviceError> {
        self.may_fail(label, bytes)?;
        let scope = Scope::open(device);
        let made = Texels::create(device, label, bytes, texel);
        scope.close(Asked::Memory { label: label.into(), bytes }, health, open)?;
        self.push(label, Held::Texels(made?))
    }

    fn may_fail(&mut self, label: &str, bytes: u64) -> Result<(), DeviceError> {
        match std::mem::take(&mut self.fail_next) {
            true => Err(Asked::Memory { label: label.into(), bytes }.out_of_memory()),
            false => Ok(()),
        }
    }

    fn push(&mut self, label: &str, held: Held) -> Result<BufferId, DeviceError> {
        let id = u32::try_from(self.entries.len())
            .map_err(|_| DeviceError::Validation("all buffer ids are used up".into()))?;
        self.entries.push(Some(Entry { label: label.into(), held }));
        Ok(BufferId(id))
    }

    /// Writes `data` at byte `offset` of `id`; the caller holds an error scope.
    pub fn write(
        &self,
        queue: &wgpu::Queue,
        id: BufferId,
        offset: u64,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let Held::Texels(texels) = &self.entry(id)?.held else {
            let buffer = self.range(id, offset, data.len() as u64)?;
            queue.write_buffer(buffer, offset, data);
            return Ok(());
        };
        let (label, size, bytes) = (&self.entry(id)?.label, texels.bytes, data.len());
        texels.write(queue, offset, data).ok_or_else(|| {
            DeviceError::Validation(format!(
                "`{label}` has {size} bytes; {bytes} bytes at {offset} are outside or not texels"
            ))
        })
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
        self.within(id, offset, bytes, self.tail)
    }

    /// As [`Self::range`], with `tail` bytes of the buffer left out.
    fn within(
        &self,
        id: BufferId,
        offset: u64,
        bytes: u64,
        tail: u64,
    ) -> Result<&wgpu::Buffer, DeviceError> {
        let entry = self.entry(id)?;
        let label = &entry.label;
        let Held::Buffer(buffer) = &entry.held else {
            return Err(DeviceError::Validation(format!("`{label}` is read as texels only")));
        };
        let size = buffer.size() - tail;
        let end = offset.checked_add(bytes);
        if !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) || end.is_none_or(|e| e > size) {
            return Err(DeviceError::Validation(format!(
                "`{label}` has {size} bytes; {bytes} bytes at {offset} are outside or not words"
            )));
        }
        Ok(buffer)
    }

    /// What a shader binds for `binding`, which it takes for `kind`.
    pub fn resource(
        &self,
        binding: &Binding,
        kind: Kind,
        limits: &wgpu::Limits,
    ) -> Result<wgpu::BindingResource<'_>, DeviceError> {
        if let (Kind::Texels(_), Entry { label, held }) = (kind, self.entry(binding.buffer)?) {
            return match held {
                Held::Texels(texels) => Ok(wgpu::BindingResource::TextureView(&texels.view)),
                Held::Buffer(_) => {
                    Err(DeviceError::Validation(format!("`{label}` is no texels, but bound so")))
                }
            };
        }
        let (most, step, tail) = match kind {
            Kind::Uniform => {
                let most = limits.max_uniform_buffer_binding_size;
                (most, limits.min_uniform_buffer_offset_alignment, 0)
            }
            _ => {
                let most = limits.max_storage_buffer_binding_size;
                (most, limits.min_storage_buffer_offset_alignment, self.tail)
            }
        };
        let Binding { buffer: id, offset, bytes } = *binding;
        let buffer = self.within(id, offset, bytes, tail)?;
        let label = || self.entry(id).map(|e| e.label.clone());
        if bytes > most {
            return Err(DeviceError::TooLarge { label: label()?, bytes, limit: most });
        }
        let step = u64::from(step);
        if bytes == 0 || !offset.is_multiple_of(step) {
            let label = label()?;
            return Err(DeviceError::Validation(format!(
                "`{label}`: cannot bind {bytes} bytes at {offset}; offsets are multiples of {step}"
            )));
        }
        Ok(wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: wgpu::BufferSize::new(bytes),
        }))
    }
}
