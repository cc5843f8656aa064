//! The [`Device`] on wgpu: Vulkan, Metal, DX12 and WebGPU. A step is one encoder, one compute pass
//! per run of launches and one submission; its downloads and a stamp come back in one buffer.
//!
//! Nothing here panics or waits for ever: every call into wgpu that can fail is inside an error
//! scope, a lost device fails all later calls, and a step whose stamp did not come back is an
//! error, never a result.

mod adapters;
#[cfg(not(target_arch = "wasm32"))]
mod ahead;
mod buffers;
mod cache;
mod encode;
mod health;
mod memory;
mod pipelines;
mod readback;
mod reflect;
mod texels;
mod timers;
mod units;

pub use adapters::{Choice, list, pick};
pub use cache::CacheFile;
pub use reflect::{Bound, Kind, Reflection, reflect};

use crate::base::Invariance;
use crate::record::{
    BufferId, Device, DeviceError, Facts, Pending, Recording, Texel, Tuned, VariantId,
};
use buffers::Buffers;
use cache::Cache;
use encode::Params;
use health::{Asked, Health, Open, Scope};
use pipelines::{Builder, Pipelines};
use readback::Ring;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use timers::Timers;

/// Bytes handed to the queue in one write, and bytes after which the queue is made to take them:
/// the API keeps a copy of everything written until then.
const WRITE_BYTES: usize = 16 << 20;
const UNFLUSHED_BYTES: u64 = 64 << 20;

/// How a [`Gpu`] is opened.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub adapter: Choice,
    /// Compile shaders with bounds checks, loop bounds and zeroed workgroup memory.
    pub checked: bool,
    /// Multiply on matrix units, where the adapter has them and they pass a test.
    pub matrix_units: bool,
    /// Measure every launch, where the adapter can; each then gets a pass of its own.
    pub timings: bool,
    /// A step that takes longer is given up.
    pub timeout: Duration,
    /// Where compiled pipelines are kept from one start to the next.
    pub cache: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let timeout = Duration::from_secs(60);
        Options {
            adapter: Choice::Best,
            checked: false,
            matrix_units: false,
            timings: false,
            timeout,
            cache: None,
        }
    }
}

fn experimental(units: bool) -> wgpu::ExperimentalFeatures {
    if !units {
        return wgpu::ExperimentalFeatures::disabled();
    }
    // SAFETY: what is said not to be safe yet is matrix units, whose shaders are this program's
    // own and whose products are checked before they are used.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

/// A device on wgpu.
pub struct Gpu {
    options: Options,
    facts: Facts,
    device: wgpu::Device,
    queue: wgpu::Queue,
    health: Health,
    /// Error scopes whose answer is still to come (in browsers).
    open: Vec<Open>,
    buffers: Buffers,
    pipelines: Pipelines,
    builder: Builder,
    cache: Option<Arc<Cache>>,
    found: CacheFile,
    params: Params,
    ring: Ring,
    timers: Timers,
    fail_next_submission: bool,
    unflushed: u64,
    flushed: Option<wgpu::SubmissionIndex>,
}

impl Gpu {
    /// Opens the chosen adapter. Natively `pollster::block_on` waits for it.
    pub async fn open(options: &Options) -> Result<Gpu, DeviceError> {
        let adapter = adapters::choose(&options.adapter).await?;
        let mut facts = adapters::facts(&adapter);
        let units = options.matrix_units && facts.matrix_side > 0;
        if units {
            // Their kernels read weights from buffers.
            facts.texels = false;
        } else {
            facts.matrix_side = 0;
        }
        let features = adapters::features(&adapter);
        let asked = wgpu::DeviceDescriptor {
            label: Some("tilewright"),
            required_features: if units { features | adapters::UNITS } else { features },
            required_limits: adapter.limits(),
            experimental_features: experimental(units),
            // Few buffers that live long: no large blocks to cut small ones from.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        };
        let refused = |e| DeviceError::NoAdapter(format!("{} refused to open: {e}", facts.name));
        let (device, queue) = adapter.request_device(&asked).await.map_err(refused)?;
        let tail = adapters::tail(facts.texels);
        let health = Health::default();
        health.watch(&device);
        let folder = options.cache.as_deref();
        let (cache, found) = Cache::open(folder, &device, &adapter.get_info(), &health);
        let how = [facts.backend == "webgpu", options.checked];
        let handle = cache.as_ref().map(|cache| cache.handle.clone());
        let mut gpu = Gpu {
            builder: Builder::new(&device, &health, how, handle),
            cache: cache.map(Arc::new),
            found,
            params: Params::new(&device),
            timers: Timers::new(options.timings && facts.timestamps, queue.get_timestamp_period()),
            ring: Ring::default(),
            options: options.clone(),
            facts,
            device,
            queue,
            health,
            open: Vec::new(),
            buffers: Buffers::new(tail),
            pipelines: Pipelines::default(),
            fail_next_submission: false,
            unflushed: 0,
            flushed: None,
        };
        if units && !units::work(&mut gpu).await? {
            gpu.facts.matrix_side = 0;
        }
        Ok(gpu)
    }

    /// Waits for the answers of all calls so far. Natively there is nothing to wait for; in a
    /// browser an allocation is only known to have worked after this, or after the next step.
    pub async fn settle(&mut self) -> Result<(), DeviceError> {
        for open in std::mem::take(&mut self.open) {
            open.close(&self.health).await?;
        }
        self.health.check()
    }

    /// Adds a shader from outside the variant table: an experiment, or one under test.
    pub fn add_shader(&mut self, name: &str, text: &str) -> Result<VariantId, DeviceError> {
        self.health.check()?;
        self.pipelines.add((name, text), &self.builder, &mut self.open)
    }

    /// What was found of compiled pipelines when the device was opened.
    pub fn found(&self) -> &CacheFile {
        &self.found
    }

    /// Pipelines that a step had to wait for, because nobody had asked for them before.
    pub fn late_pipelines(&self) -> usize {
        self.pipelines.late()
    }

    /// From now on [`Device::facts`] say so.
    pub fn set_invariance(&mut self, invariance: Invariance) {
        self.facts.invariance = invariance;
    }

    /// From now on [`Device::facts`] say what was measured on this device.
    pub fn set_tuned(&mut self, tuned: Vec<Tuned>) {
        self.facts.tuned = tuned;
    }

    /// Fault hook: the next `create_buffer` fails as if memory had run out.
    pub fn fail_next_allocation(&mut self) {
        self.buffers.fail_next();
    }

    /// Fault hook: the next step's commands are dropped without an error, as some drivers do.
    pub fn fail_next_submission(&mut self) {
        self.fail_next_submission = true;
    }

    /// Fault hook: loses the device, with steps in flight or not.
    pub fn destroy(&mut self) {
        self.device.destroy();
        self.health.lose("it was destroyed");
    }

    /// Makes the queue take what was written, two portions behind.
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.unflushed = 0;
        let index = self.queue.submit([]);
        match self.flushed.replace(index) {
            Some(previous) => {
                readback::reach(&self.device, previous, self.options.timeout, &self.health)
            }
            None => Ok(()),
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Some(cache) = &self.cache {
            cache.save();
        }
    }
}

impl Device for Gpu {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, DeviceError> {
        self.health.check()?;
        self.buffers.create(&self.device, &self.health, &mut self.open, label, bytes)
    }

    fn create_texels(
        &mut self,
        label: &str,
        bytes: u64,
        texel: Texel,
    ) -> Result<BufferId, DeviceError> {
        self.health.check()?;
        let (health, open) = (&self.health, &mut self.open);
        self.buffers.create_texels(&self.device, (health, open), label, bytes, texel)
    }

    fn write_buffer(&mut self, id: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.health.check()?;
        let mut at = offset;
        for part in data.chunks(WRITE_BYTES) {
            let scope = Scope::open(&self.device);
            self.buffers.write(&self.queue, id, at, part)?;
            let bytes = part.len() as u64;
            let asked = Asked::Memory { label: "upload".into(), bytes };
            scope.close(asked, &self.health, &mut self.open)?;
            at += bytes;
            self.unflushed += bytes;
            if self.unflushed >= UNFLUSHED_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn free_buffer(&mut self, id: BufferId) {
        self.pipelines.forget(|binding| binding.buffer == id);
        self.buffers.free(id);
    }

    fn prepare(&mut self, variants: &[VariantId]) -> Result<(), DeviceError> {
        self.health.check()?;
        self.begin(variants);
        variants.iter().try_for_each(|id| self.pipelines.ensure(*id, &self.builder, &mut self.open))
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn begin(&mut self, variants: &[VariantId]) {
        self.pipelines.begin(variants, &self.builder, self.cache.as_ref());
    }

    fn time_launches(&mut self, on: bool) -> bool {
        self.timers.on = on && self.facts.timestamps;
        self.facts.timestamps
    }

    fn submit(&mut self, recording: &Recording) -> Result<Pending, DeviceError> {
        self.health.check()?;
        let flight = self.launch(recording)?;
        self.unflushed = 0;
        Ok(Box::pin(flight.land()))
    }
}
