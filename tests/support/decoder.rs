//! A model on a device, driven by hand: no scheduler, one sequence at a time or a chosen batch.

use super::Wrapped;
use std::path::Path;
use tilewright::base::{Activations, KvType};
use tilewright::model::{Batch, Model, ModelError, Options};
use tilewright::record::{Device, Facts, Recording};
use tilewright::weights::Weights;

/// The devices a row runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    Cpu,
    Gpu,
}

impl On {
    /// Both, the GPU with its skip reason.
    pub fn all() -> [(On, Result<(), String>); 2] {
        [(On::Cpu, Ok(())), (On::Gpu, gpu_present())]
    }

    pub fn name(self) -> &'static str {
        match self {
            On::Cpu => "cpu",
            On::Gpu => "gpu",
        }
    }

    /// A fresh device of this kind.
    pub fn device(self) -> Box<dyn Device> {
        match self {
            On::Cpu => Box::new(tilewright::cpu::CpuDevice::default()),
            #[cfg(feature = "gpu")]
            On::Gpu => Box::new(super::open_gpu()),
            #[cfg(not(feature = "gpu"))]
            On::Gpu => unreachable!("built without gpu"),
        }
    }

    /// The same with facts that `change` changed.
    pub fn with(self, change: impl FnOnce(&mut Facts)) -> Box<dyn Device> {
        fn of<D: Device + 'static>(device: D, change: impl FnOnce(&mut Facts)) -> Box<dyn Device> {
            let mut device = Wrapped::new(device);
            change(&mut device.facts);
            Box::new(device)
        }
        match self {
            On::Cpu => of(tilewright::cpu::CpuDevice::default(), change),
            #[cfg(feature = "gpu")]
            On::Gpu => of(super::open_gpu(), change),
            #[cfg(not(feature = "gpu"))]
            On::Gpu => unreachable!("built without gpu"),
        }
    }
}

#[cfg(feature = "gpu")]
fn gpu_present() -> Result<(), String> {
    super::gpu().map(|_| ())
}

#[cfg(not(feature = "gpu"))]
fn gpu_present() -> Result<(), String> {
    Err("built without the feature `gpu`".into())
}

/// A loaded model with its device.
pub struct Decoder {
    pub model: Model,
    pub device: Box<dyn Device>,
    recording: Recording,
    pub batch: Batch,
}

impl Decoder {
    pub fn open(path: &Path, on: On, context: u32) -> Self {
        let weights = Weights::open(path).unwrap_or_else(|e| panic!("{e}"));
        Self::of(&weights, on, context)
    }

    pub fn of(weights: &Weights, on: On, context: u32) -> Self {
        Self::on(weights, on.device(), context).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The sizes a decoder of this context is loaded with.
    pub fn options(context: u32) -> Options {
        Options {
            kv: KvType::F32,
            activations: Activations::F32,
            block_size: 16,
            blocks: 4 * context.div_ceil(16) + 16,
            step_tokens_max: context.max(128),
            sequences_max: 128,
            context_max: context,
            memory_bytes: None,
        }
    }

    pub fn on(
        weights: &Weights,
        device: Box<dyn Device>,
        context: u32,
    ) -> Result<Self, ModelError> {
        Self::sized(weights, device, Self::options(context))
    }

    pub fn sized(
        weights: &Weights,
        mut device: Box<dyn Device>,
        options: Options,
    ) -> Result<Self, ModelError> {
        let model = Model::load(weights, device.as_mut(), options, &mut |_, _| {})?;
        Ok(Self { model, device, recording: Recording::default(), batch: Batch::default() })
    }

    /// Runs `self.batch` and returns the bytes that came back.
    pub fn run(&mut self) -> Vec<u8> {
        self.model.record(&self.batch, &mut self.recording);
        self.device.run(&self.recording).unwrap_or_else(|e| panic!("{e}")).bytes
    }

    /// Logits of every position of `tokens` (at most 128), computed in chunks, blocks in
    /// `table` order.
    pub fn logits(&mut self, tokens: &[u32], chunk: usize, table: &[u32]) -> Vec<Vec<f32>> {
        let mut out = Vec::new();
        for (n, part) in tokens.chunks(chunk).enumerate() {
            self.batch.clear();
            let first = self.batch.push_row(part, (n * chunk) as u32, table);
            for i in 0..part.len() as u32 {
                self.batch.samples.push((first + i, Default::default()));
            }
            self.batch.logits = true;
            let bytes = self.run();
            out.extend(self.model.logits(&self.batch, &bytes));
        }
        out
    }

    /// Greedy continuation of `prompt`: `count` ids, the prompt in chunks.
    pub fn greedy(
        &mut self,
        prompt: &[u32],
        count: usize,
        chunk: usize,
        table: &[u32],
    ) -> Vec<u32> {
        self.extend(prompt.to_vec(), 0, count, chunk, table)
    }

    /// Computes `prompt` in chunks; the logits of its last position.
    pub fn prefill(&mut self, prompt: &[u32], chunk: usize, table: &[u32]) -> Vec<f32> {
        let mut last = Vec::new();
        for (n, part) in prompt.chunks(chunk).enumerate() {
            self.batch.clear();
            let first = self.batch.push_row(part, (n * chunk) as u32, table);
            self.batch.samples.push((first + part.len() as u32 - 1, Default::default()));
            self.batch.logits = true;
            let bytes = self.run();
            last = self.model.logits(&self.batch, &bytes).remove(0);
        }
        last
    }

    /// Greedy continuation of `known`, of which `computed` ids are in the cache already.
    pub fn extend(
        &mut self,
        mut known: Vec<u32>,
        mut computed: usize,
        count: usize,
        chunk: usize,
        table: &[u32],
    ) -> Vec<u32> {
        let start = known.len();
        while known.len() < start + count {
            let end = known.len().min(computed + chunk);
            self.batch.clear();
            let first = self.batch.push_row(&known[computed..end], computed as u32, table);
            if end == known.len() {
                let last = first + (end - computed) as u32 - 1;
                self.batch.samples.push((last, Default::default()));
            }
            let bytes = self.run();
            for result in self.model.results(&self.batch, &bytes) {
                assert!(result.finite, "non-finite logits");
                known.push(result.token);
            }
            computed = end;
        }
        known.split_off(start)
    }
}
