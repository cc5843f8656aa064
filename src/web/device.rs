//! The device of the page: WebGPU, or the processor with the reason told.

use super::io;
use super::wire::Wish;
use crate::cpu::CpuDevice;
use crate::gpu::{Gpu, Options};
use crate::record::{BufferId, Device, DeviceError, Facts, Pending, Recording, Texel, VariantId};
use futures_util::future::{Either, select};
use std::pin::pin;

/// An adapter that has not answered by then never will.
const PATIENCE_MILLIS: f64 = 15_000.0;

/// The device, and why it is not the one wished for.
pub async fn open(wish: Wish) -> Result<(Box<dyn Device>, Option<String>), String> {
    let processor = || Box::new(Processor(CpuDevice::default()));
    if wish == Wish::Cpu {
        return Ok((processor(), None));
    }
    match webgpu().await {
        Ok(gpu) => Ok((Box::new(gpu), None)),
        Err(why) if wish == Wish::Auto => Ok((processor(), Some(why))),
        Err(why) => Err(why),
    }
}

async fn webgpu() -> Result<Gpu, String> {
    if let Some(why) = io::why_no_webgpu() {
        return Err(why);
    }
    let options = Options::default();
    let (open, late) = (pin!(Gpu::open(&options)), pin!(io::sleep(PATIENCE_MILLIS)));
    match select(open, late).await {
        Either::Left((Ok(gpu), _)) => Ok(gpu),
        Either::Left((Err(DeviceError::NoAdapter(why)), _)) => Err(format!(
            "the browser offers WebGPU but gave no usable adapter ({why}); its hardware \
             acceleration may be off, or the driver blocked"
        )),
        Either::Left((Err(error), _)) => Err(error.to_string()),
        Either::Right(_) => Err("the browser's adapter never answered".to_string()),
    }
}

/// The processor's device; its steps let the event loop turn, so that messages are heard.
struct Processor(CpuDevice);

impl Device for Processor {
    fn facts(&self) -> &Facts {
        self.0.facts()
    }

    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, DeviceError> {
        self.0.create_buffer(label, bytes)
    }

    fn create_texels(
        &mut self,
        label: &str,
        bytes: u64,
        texel: Texel,
    ) -> Result<BufferId, DeviceError> {
        self.0.create_texels(label, bytes, texel)
    }

    fn write_buffer(&mut self, id: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.0.write_buffer(id, offset, data)
    }

    fn free_buffer(&mut self, id: BufferId) {
        self.0.free_buffer(id);
    }

    fn prepare(&mut self, variants: &[VariantId]) -> Result<(), DeviceError> {
        self.0.prepare(variants)
    }

    fn begin(&mut self, variants: &[VariantId]) {
        self.0.begin(variants);
    }

    fn submit(&mut self, recording: &Recording) -> Result<Pending, DeviceError> {
        let done = self.0.submit(recording)?;
        Ok(Box::pin(async move {
            io::turn().await;
            done.await
        }))
    }
}
