//! A device that runs a step launch by launch and looks at every float that a launch wrote.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tilewright::kernels::{self, variants};
use tilewright::record::{
    Binding, BufferId, Command, Device, DeviceError, Facts, Finished, Pending, Recording, Texel,
    VariantId,
};

/// Kernels whose written bindings are activations, with how many of those to look at: what
/// `rope_kv` writes into the cache is packed.
const WATCHED: [(&str, usize); 9] = [
    ("embed", 1),
    ("norm_rms", 1),
    ("norm_qk", 1),
    ("mul_mat", 1),
    ("mul_vec", 1),
    ("mul_gemm", 1),
    ("rope_kv", 1),
    ("attn_paged", 1),
    ("act_glu", 1),
];

/// The largest magnitude that each kernel wrote so far; what is no number counts as infinite.
pub type Seen = Arc<Mutex<BTreeMap<&'static str, f32>>>;

pub struct Watched {
    inner: Box<dyn Device>,
    seen: Seen,
}

impl Watched {
    pub fn new(inner: Box<dyn Device>) -> (Self, Seen) {
        let seen = Seen::default();
        (Self { inner, seen: seen.clone() }, seen)
    }

    /// What to look at after `command`: the kernel's name and its written floats.
    fn written(command: &Command) -> Vec<(&'static str, Binding)> {
        let Command::Dispatch(launch) = command else { return Vec::new() };
        let stem = variants::get(launch.variant).map_or("", |variant| variant.shader.as_str());
        let Some((stem, count)) = WATCHED.into_iter().find(|(name, _)| *name == stem) else {
            return Vec::new();
        };
        let kernel = kernels::kernel(stem).expect("a kernel of the table");
        kernel.writes[..count].iter().map(|at| (stem, launch.bindings[*at])).collect()
    }
}

impl Device for Watched {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, DeviceError> {
        self.inner.create_buffer(label, bytes)
    }

    fn create_texels(
        &mut self,
        label: &str,
        bytes: u64,
        texel: Texel,
    ) -> Result<BufferId, DeviceError> {
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
        let mut step =
            Recording { commands: Vec::new(), downloads: Vec::new(), ..recording.clone() };
        let mut bytes = Vec::new();
        let commands = recording.commands.iter().map(Some).chain([None]);
        for command in commands {
            let looked_at = command.map(Self::written).unwrap_or_default();
            step.commands = command.into_iter().cloned().collect();
            step.downloads = match command {
                Some(_) => looked_at.iter().map(|(_, binding)| *binding).collect(),
                None => recording.downloads.clone(),
            };
            bytes = self.inner.run(&step)?.bytes;
            step.uploads.clear();
            step.data.clear();
            let mut rest = &bytes[..];
            for (name, binding) in looked_at {
                let (own, after) = rest.split_at(binding.bytes as usize);
                rest = after;
                let values =
                    own.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4")));
                let top = values.fold(0f32, |top, value| match value.is_finite() {
                    true => top.max(value.abs()),
                    false => f32::INFINITY,
                });
                let mut seen = self.seen.lock().expect("one thread");
                let largest = seen.entry(name).or_insert(0.0);
                *largest = largest.max(top);
            }
        }
        let finished = Finished { bytes, timings: Vec::new() };
        Ok(Box::pin(async move { Ok(finished) }))
    }
}
