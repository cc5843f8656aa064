//! From a recording to one submission. Parameter blocks of all launches lie in one uniform buffer
//! and are chosen by a dynamic offset; its first block holds the step's stamp, which comes back
//! with the downloads and proves that the device ran this very step.

use super::Gpu;
use super::buffers::allocate;
use super::health::{Asked, Health, Open, Scope};
use super::readback::{Flight, Parcel};
use crate::record::{BufferId, Command, DeviceError, Dispatch, PARAMS_MAX, Recording, VariantId};
use std::ops::Range;

/// Bytes of one parameter block.
pub const SLOT: u64 = PARAMS_MAX as u64 * 4;
/// More uploads than this go through one packed write and copies on the device.
const WRITES_MAX: usize = 2;

/// The parameter blocks, and the packed uploads, of the step being written.
pub struct Params {
    stride: u64,
    bytes: Vec<u8>,
    buffer: Option<wgpu::Buffer>,
    packed: Option<wgpu::Buffer>,
    step: u32,
}

impl Params {
    pub fn new(device: &wgpu::Device) -> Params {
        let align = u64::from(device.limits().min_uniform_buffer_offset_alignment.max(1));
        let stride = SLOT.next_multiple_of(align);
        Params { stride, bytes: Vec::new(), buffer: None, packed: None, step: 0 }
    }
}

/// A buffer of at least `bytes` in `place`; true if it is a new one.
fn grow(
    place: &mut Option<wgpu::Buffer>,
    device: &wgpu::Device,
    (health, open): (&Health, &mut Vec<Open>),
    (label, bytes, usage): (&str, u64, wgpu::BufferUsages),
) -> Result<bool, DeviceError> {
    if place.as_ref().is_some_and(|b| b.size() >= bytes) {
        return Ok(false);
    }
    let bytes = bytes.max(1 << 16).checked_next_power_of_two().unwrap_or(bytes);
    *place = Some(allocate(device, health, open, label, bytes, usage)?);
    Ok(true)
}

/// One launch, checked and ready to encode.
struct Launch {
    id: VariantId,
    group: wgpu::BindGroup,
    offset: u32,
}

fn invalid(message: String) -> DeviceError {
    DeviceError::Validation(message)
}

fn dispatches(recording: &Recording) -> impl Iterator<Item = &Dispatch> {
    recording.commands.iter().filter_map(|command| match command {
        Command::Dispatch(dispatch) => Some(dispatch),
        Command::Copy { .. } => None,
    })
}

type Upload = (BufferId, u64, Range<usize>);

/// Uploads that go to one place, one after the other, made one.
fn merged(recording: &Recording) -> Vec<Upload> {
    let mut out: Vec<Upload> = Vec::new();
    for (id, offset, range) in &recording.uploads {
        match out.last_mut() {
            Some((last, at, whole))
                if last == id
                    && *at + whole.len() as u64 == *offset
                    && whole.end == range.start =>
            {
                whole.end = range.end;
            }
            _ => out.push((*id, *offset, range.clone())),
        }
    }
    out
}

impl Gpu {
    /// Submits `recording`.
    pub(super) fn launch(&mut self, recording: &Recording) -> Result<Flight, DeviceError> {
        for dispatch in dispatches(recording) {
            self.pipelines.ensure(dispatch.variant, &self.builder, &mut self.open)?;
        }
        let parcel = self.parcel(recording)?;
        let uploads = merged(recording);
        self.reserve(recording, &uploads, parcel.launches)?;
        let mut lease =
            self.ring.take(&self.device, &self.health, &mut self.open, parcel.bytes())?;
        let scope = Scope::open(&self.device);
        let sent = self.encode(recording, &uploads, &parcel, lease.buffer());
        let sent = sent.map(|index| (index, lease.map(parcel.bytes())));
        // An error of our own says more than the scope's, which it may have caused.
        let closed = scope.close(Asked::Commands, &self.health, &mut self.open);
        let (index, answer) = sent?;
        closed?;
        Ok(Flight {
            device: self.device.clone(),
            health: self.health.clone(),
            open: std::mem::take(&mut self.open),
            patience: (self.options.timeout, self.facts.software()),
            index,
            answer,
            lease,
            parcel,
        })
    }

    /// What is to come back.
    fn parcel(&mut self, recording: &Recording) -> Result<Parcel, DeviceError> {
        let mut bytes = 0_u64;
        for binding in &recording.downloads {
            self.buffers.range(binding.buffer, binding.offset, binding.bytes)?;
            bytes = bytes.saturating_add(binding.bytes);
        }
        let variants: Vec<_> = match self.timers.on {
            true => dispatches(recording).map(|d| d.variant).collect(),
            false => Vec::new(),
        };
        let launches = u32::try_from(dispatches(recording).count())
            .map_err(|_| invalid("too many launches in one step".into()))?;
        // Zero is what an untouched buffer holds.
        self.params.step = self.params.step.wrapping_add(1).max(1);
        let stamp = self.params.step;
        Ok(Parcel { downloads: bytes, stamp, variants, launches, period: self.timers.period })
    }

    fn reserve(
        &mut self,
        recording: &Recording,
        uploads: &[Upload],
        launches: u32,
    ) -> Result<(), DeviceError> {
        let bytes = (u64::from(launches) + 1) * self.params.stride;
        self.params.bytes.resize(bytes as usize, 0);
        let usage = wgpu::BufferUsages::UNIFORM
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        let buffer = &mut self.params.buffer;
        let watch = (&self.health, &mut self.open);
        if grow(buffer, &self.device, watch, ("parameters", bytes, usage))? {
            // Every bind group names the old buffer.
            self.pipelines.forget_all();
        }
        if uploads.len() > WRITES_MAX {
            let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            let bytes = recording.data.len() as u64;
            let watch = (&self.health, &mut self.open);
            grow(&mut self.params.packed, &self.device, watch, ("step uploads", bytes, usage))?;
        }
        self.timers.reserve(&self.device, &self.health, &mut self.open, launches)
    }

    fn encode(
        &mut self,
        recording: &Recording,
        uploads: &[Upload],
        parcel: &Parcel,
        staging: &wgpu::Buffer,
    ) -> Result<wgpu::SubmissionIndex, DeviceError> {
        let launches = self.launches(recording)?;
        let params = self.params_buffer()?.clone();
        self.params.bytes[..4].copy_from_slice(&parcel.stamp.to_le_bytes());
        self.queue.write_buffer(&params, 0, &self.params.bytes);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        self.upload(&recording.data, uploads, &mut encoder)?;
        let (mut at, mut done) = (0, 0);
        while let Some(command) = recording.commands.get(at) {
            if let Command::Copy { from, from_offset, to, to_offset, bytes } = command {
                let source = self.buffers.range(*from, *from_offset, *bytes)?;
                let target = self.buffers.range(*to, *to_offset, *bytes)?;
                if *bytes > 0 {
                    encoder.copy_buffer_to_buffer(source, *from_offset, target, *to_offset, *bytes);
                }
                at += 1;
                continue;
            }
            let rest = recording.commands[at..].iter().map_while(|command| match command {
                Command::Dispatch(dispatch) => Some(dispatch),
                Command::Copy { .. } => None,
            });
            let run = self.pass(rest, &launches[done..], done, &mut encoder);
            at += run;
            done += run;
        }
        let mut offset = 0;
        for binding in &recording.downloads {
            let source = self.buffers.range(binding.buffer, binding.offset, binding.bytes)?;
            if binding.bytes > 0 {
                let (from, bytes) = (binding.offset, binding.bytes);
                encoder.copy_buffer_to_buffer(source, from, staging, offset, bytes);
                offset += bytes;
            }
        }
        encoder.copy_buffer_to_buffer(&params, 0, staging, parcel.downloads, 4);
        if !parcel.variants.is_empty() {
            self.timers.resolve(&mut encoder, parcel.launches, staging, parcel.times_at());
        }
        let commands = Some(encoder.finish()).filter(|_| !self.fail_next_submission);
        self.fail_next_submission = false;
        Ok(self.queue.submit(commands))
    }

    fn params_buffer(&self) -> Result<&wgpu::Buffer, DeviceError> {
        self.params.buffer.as_ref().ok_or_else(|| invalid("no parameter buffer".into()))
    }

    /// Checks every launch, writes its parameters and finds its bind group.
    fn launches(&mut self, recording: &Recording) -> Result<Vec<Launch>, DeviceError> {
        let buffer = self.params_buffer()?.clone();
        let mut out = Vec::with_capacity(recording.commands.len());
        let mut offset = self.params.stride;
        for dispatch in dispatches(recording) {
            let id = dispatch.variant;
            let words = recording.params.get(dispatch.params.clone()).unwrap_or_default();
            self.check(dispatch, words.len() as u64 * 4)?;
            let block = &mut self.params.bytes[offset as usize..][..words.len() * 4];
            block.copy_from_slice(bytemuck::cast_slice(words));
            let (builder, buffers) = (&self.builder, &self.buffers);
            let group = self.pipelines.group(id, builder, &buffer, buffers, &dispatch.bindings)?;
            let place = u32::try_from(offset)
                .map_err(|_| invalid("too many launches in one step".into()))?;
            out.push(Launch { id, group, offset: place });
            offset += self.params.stride;
        }
        Ok(out)
    }

    fn check(&self, dispatch: &Dispatch, params: u64) -> Result<(), DeviceError> {
        let pipeline = self.pipelines.get(dispatch.variant)?;
        let (name, most) = (&pipeline.name, self.facts.workgroups_max);
        if dispatch.grid.iter().any(|n| *n > most || *n == 0) {
            let grid = dispatch.grid;
            let message = format!("`{name}`: grid {grid:?} is not within 1..={most}: fold it");
            return Err(invalid(message));
        }
        let wanted = pipeline.reflection.params;
        if params != wanted || params > SLOT {
            let message = format!("`{name}`: {params} bytes of parameters, it reads {wanted}");
            return Err(invalid(message));
        }
        Ok(())
    }

    /// Encodes `rest` into a pass, or only its first launch when times are taken.
    fn pass<'a>(
        &self,
        rest: impl Iterator<Item = &'a Dispatch>,
        launches: &[Launch],
        done: usize,
        encoder: &mut wgpu::CommandEncoder,
    ) -> usize {
        let timestamp_writes = match self.timers.on {
            true => self.timers.writes(done as u32),
            false => None,
        };
        let single = timestamp_writes.is_some();
        let asked = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        let mut pass = encoder.begin_compute_pass(&asked);
        let (mut run, mut current) = (0, None);
        for (dispatch, launch) in rest.zip(launches).take(if single { 1 } else { usize::MAX }) {
            if current != Some(launch.id)
                && let Ok(pipeline) = self.pipelines.get(launch.id)
            {
                pass.set_pipeline(&pipeline.pipeline);
                current = Some(launch.id);
            }
            pass.set_bind_group(0, &launch.group, &[launch.offset]);
            let [x, y, z] = dispatch.grid;
            pass.dispatch_workgroups(x, y, z);
            run += 1;
        }
        run
    }

    /// Writes the uploads: directly if they are few, else packed and copied on the device.
    fn upload(
        &self,
        data: &[u8],
        uploads: &[Upload],
        encoder: &mut wgpu::CommandEncoder,
    ) -> Result<(), DeviceError> {
        let words = data.len().is_multiple_of(4) && uploads.iter().all(|u| u.2.start % 4 == 0);
        let many = uploads.len() > WRITES_MAX && words;
        let packed = self.params.packed.as_ref().filter(|_| many);
        if let Some(packed) = packed {
            self.queue.write_buffer(packed, 0, data);
        }
        for (id, offset, range) in uploads {
            let outside = || invalid("an upload names bytes outside the recording".into());
            let part = data.get(range.clone()).ok_or_else(outside)?;
            let (from, bytes) = (range.start as u64, part.len() as u64);
            let target = self.buffers.range(*id, *offset, bytes)?;
            match packed {
                _ if part.is_empty() => {}
                Some(packed) => {
                    encoder.copy_buffer_to_buffer(packed, from, target, *offset, bytes);
                }
                None => self.queue.write_buffer(target, *offset, part),
            }
        }
        Ok(())
    }
}
