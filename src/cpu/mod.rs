//! A [`Device`] without any GPU: every kernel has a twin here in plain Rust, with the same name,
//! bindings and parameters. It is the oracle of the tests and a usable fallback.

mod attn;
mod block;
mod dots;
mod experts;
mod kv;
mod mul;
mod quant;
mod sample;

use crate::base::{Invariance, counted};
use crate::kernels::variants::{self, Variant};
use crate::kernels::{self};
use crate::record::{
    BufferId, Command, Device, DeviceError, DeviceKind, Dispatch, Facts, Finished, Pending,
    Recording, Texel, Timing, VariantId,
};
use std::time::Instant;

/// The plain-Rust device.
pub struct CpuDevice {
    facts: Facts,
    buffers: Vec<Option<Vec<u32>>>,
    timed: bool,
}

impl Default for CpuDevice {
    fn default() -> Self {
        Self { facts: facts(), buffers: Vec::new(), timed: false }
    }
}

fn facts() -> Facts {
    Facts {
        name: format!("cpu, {}", counted(rayon::current_num_threads() as u64, "thread")),
        backend: "cpu".into(),
        driver: String::new(),
        kind: DeviceKind::Cpu,
        lanes: 1,
        binding_bytes_max: u64::MAX,
        buffer_bytes_max: u64::from(u32::MAX) * 4,
        workgroups_max: u32::MAX,
        invocations_max: 1024,
        shared_bytes_max: u32::MAX,
        bindings_max: 64,
        f16: false,
        int64: false,
        texels: false,
        matrix_side: 0,
        invariance: Invariance::On,
        timestamps: false,
        memory_bytes: None,
        tuned: Vec::new(),
    }
}

/// What a twin gets: the parameter words, the bindings in order (those it writes are empty in
/// `read`), the written ones by themselves, and the variant's constants.
struct Launch<'a> {
    params: &'a [u32],
    read: Vec<&'a [u32]>,
    write: Vec<&'a mut [u32]>,
    variant: &'static Variant,
}

impl Launch<'_> {
    /// The parameter block as the kernel's struct.
    fn params<P: bytemuck::Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(bytemuck::cast_slice(self.params))
    }

    fn floats(&self, binding: usize) -> &[f32] {
        bytemuck::cast_slice(self.read[binding])
    }
}

impl CpuDevice {
    /// From now on [`Device::facts`] say so.
    pub fn set_invariance(&mut self, invariance: Invariance) {
        self.facts.invariance = invariance;
    }

    fn buffer(&self, id: BufferId) -> Result<&Vec<u32>, DeviceError> {
        let found = self.buffers.get(id.0 as usize).and_then(Option::as_ref);
        found.ok_or_else(|| DeviceError::Validation(format!("buffer {} does not exist", id.0)))
    }

    fn buffer_mut(&mut self, id: BufferId) -> Result<&mut Vec<u32>, DeviceError> {
        let found = self.buffers.get_mut(id.0 as usize).and_then(Option::as_mut);
        found.ok_or_else(|| DeviceError::Validation(format!("buffer {} does not exist", id.0)))
    }

    fn dispatch(&mut self, recording: &Recording, d: &Dispatch) -> Result<(), DeviceError> {
        let refuse = |message: String| DeviceError::Validation(message);
        let variant = variants::get(d.variant)
            .ok_or_else(|| refuse(format!("variant {} does not exist", d.variant.0)))?;
        let kernel = kernels::kernel(&variant.shader)
            .ok_or_else(|| refuse(format!("`{}` has no twin", variant.shader)))?;
        if d.bindings.len() != kernel.bindings {
            let (name, want, got) = (&variant.name, kernel.bindings, d.bindings.len());
            return Err(refuse(format!("`{name}` binds {want} buffers, {got} given")));
        }
        let mut taken = Vec::new();
        for &w in kernel.writes {
            let id = d.bindings[w].buffer;
            taken.push((id, std::mem::take(self.buffer_mut(id)?)));
        }
        let mut read: Vec<&[u32]> = Vec::new();
        for (at, binding) in d.bindings.iter().enumerate() {
            if kernel.writes.contains(&at) {
                read.push(&[]);
                continue;
            }
            read.push(range(self.buffer(binding.buffer)?, binding.offset, binding.bytes)?);
        }
        let mut write: Vec<&mut [u32]> = Vec::new();
        for (&w, (_, words)) in kernel.writes.iter().zip(&mut taken) {
            let binding = d.bindings[w];
            range(words, binding.offset, binding.bytes)?;
            let (from, len) = (binding.offset as usize / 4, binding.bytes as usize / 4);
            write.push(&mut words[from..from + len]);
        }
        let params = &recording.params[d.params.clone()];
        run_twin(Launch { params, read, write, variant });
        for (id, words) in taken {
            *self.buffer_mut(id)? = words;
        }
        Ok(())
    }

    fn execute(&mut self, recording: &Recording) -> Result<Finished, DeviceError> {
        for (id, offset, data) in &recording.uploads {
            self.write_buffer(*id, *offset, &recording.data[data.clone()])?;
        }
        let mut timings = Vec::new();
        for command in &recording.commands {
            match command {
                Command::Dispatch(d) => {
                    let start = self.timed.then(Instant::now);
                    self.dispatch(recording, d)?;
                    let nanos = start.map(|start| start.elapsed().as_nanos() as u64);
                    timings.extend(nanos.map(|nanos| Timing { variant: d.variant, nanos }));
                }
                Command::Copy { from, from_offset, to, to_offset, bytes } => {
                    let words = range(self.buffer(*from)?, *from_offset, *bytes)?.to_vec();
                    self.write_buffer(*to, *to_offset, bytemuck::cast_slice(&words))?;
                }
            }
        }
        let mut bytes = Vec::new();
        for d in &recording.downloads {
            let words = range(self.buffer(d.buffer)?, d.offset, d.bytes)?;
            bytes.extend_from_slice(bytemuck::cast_slice(words));
        }
        Ok(Finished { bytes, timings })
    }
}

fn range(words: &[u32], offset: u64, bytes: u64) -> Result<&[u32], DeviceError> {
    let end =
        offset.checked_add(bytes).filter(|_| offset.is_multiple_of(4) && bytes.is_multiple_of(4));
    end.and_then(|end| words.get(offset as usize / 4..end as usize / 4)).ok_or_else(|| {
        let have = words.len() * 4;
        DeviceError::Validation(format!("bytes {offset}..+{bytes} of a buffer of {have} bytes"))
    })
}

fn run_twin(mut launch: Launch<'_>) {
    match launch.variant.shader.as_str() {
        "embed" => mul::embed(&mut launch),
        "mul_mat" | "mul_vec" | "mul_gemm" => mul::mul_mat(&mut launch),
        "mul_pack" => dots::mul_pack(&mut launch),
        "mul_unit" => mul::mul_unit(&mut launch),
        "to_halves" => mul::to_halves(&mut launch),
        "mul_expert" | "mul_expert_vec" => experts::mul_expert(&mut launch),
        "mul_heads" => experts::mul_heads(&mut launch),
        "moe_route" => experts::moe_route(&mut launch),
        "moe_group" => experts::moe_group(&mut launch),
        "moe_combine" => experts::moe_combine(&mut launch),
        "norm_rms" => block::norm_rms(&mut launch),
        "norm_qk" => block::norm_qk(&mut launch),
        "rope_kv" => block::rope_kv(&mut launch),
        "act_glu" => block::act_glu(&mut launch),
        "soft_cap" => block::soft_cap(&mut launch),
        "attn_paged" => attn::attn_paged(&mut launch),
        "attn_merge" => attn::attn_merge(&mut launch),
        "sample_edit" => sample::sample_edit(&mut launch),
        "sample_mask" => sample::sample_mask(&mut launch),
        "sample_stats" => sample::sample_stats(&mut launch),
        "sample" => sample::sample(&mut launch),
        other => unreachable!("`{other}` is in the kernel table without a twin"),
    }
}

impl Device for CpuDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, DeviceError> {
        let limit = self.facts.buffer_bytes_max;
        if bytes > limit {
            return Err(DeviceError::TooLarge { label: label.into(), bytes, limit });
        }
        let words = usize::try_from(bytes.div_ceil(4)).unwrap_or(usize::MAX);
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(words).map_err(|_| DeviceError::OutOfMemory {
            label: label.into(),
            bytes,
            hint: "choose a smaller model, --kv-memory or --ctx-size".into(),
        })?;
        buffer.resize(words, 0);
        self.buffers.push(Some(buffer));
        Ok(BufferId(self.buffers.len() as u32 - 1))
    }

    fn create_texels(
        &mut self,
        label: &str,
        bytes: u64,
        texel: Texel,
    ) -> Result<BufferId, DeviceError> {
        // Twins read the same words either way.
        self.create_buffer(label, bytes.next_multiple_of(texel.bytes()))
    }

    fn write_buffer(&mut self, id: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let buffer = self.buffer_mut(id)?;
        range(buffer, offset, data.len() as u64)?;
        let from = offset as usize;
        bytemuck::cast_slice_mut::<u32, u8>(buffer)[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn free_buffer(&mut self, id: BufferId) {
        if let Some(slot) = self.buffers.get_mut(id.0 as usize) {
            *slot = None;
        }
    }

    fn prepare(&mut self, _variants: &[VariantId]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn time_launches(&mut self, on: bool) -> bool {
        self.timed = on;
        true
    }

    fn submit(&mut self, recording: &Recording) -> Result<Pending, DeviceError> {
        let finished = self.execute(recording)?;
        Ok(Box::pin(std::future::ready(Ok(finished))))
    }
}
