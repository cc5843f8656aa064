//! The trait [`Device`] and what can go wrong on one.

use super::{BufferId, Facts, Recording, VariantId};
use std::future::Future;
use std::pin::Pin;

/// Why a device refused or failed. Every variant names the cause; `Lost` ends the engine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DeviceError {
    #[error("no usable adapter: {0}")]
    NoAdapter(String),
    #[error("out of memory for `{label}`: {bytes} bytes asked for ({hint})")]
    OutOfMemory { label: String, bytes: u64, hint: String },
    #[error("`{label}` needs {bytes} bytes, the device allows {limit} bytes per buffer")]
    TooLarge { label: String, bytes: u64, limit: u64 },
    #[error("shader variant `{variant}` was refused: {message}")]
    Shader { variant: String, message: String },
    #[error("the device refused the commands: {0}")]
    Validation(String),
    #[error("the device was lost: {0}")]
    Lost(String),
    #[error("the device did not answer within {seconds} s: {hint}")]
    Timeout { seconds: u64, hint: String },
}

/// Time spent on one kernel launch, where the device can tell.
#[derive(Clone, PartialEq, Debug)]
pub struct Timing {
    pub variant: VariantId,
    pub nanos: u64,
}

/// The result of a finished step.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Finished {
    /// The recording's downloads, one after the other.
    pub bytes: Vec<u8>,
    pub timings: Vec<Timing>,
}

/// A submitted step whose result is not here yet.
pub type Pending = Pin<Box<dyn Future<Output = Result<Finished, DeviceError>>>>;

/// What shaders load at once from a buffer of [`Device::create_texels`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Texel {
    /// 4 bytes.
    Word,
    /// 16 bytes.
    Quad,
}

impl Texel {
    pub fn bytes(self) -> u64 {
        match self {
            Texel::Word => 4,
            Texel::Quad => 16,
        }
    }
}

/// Something that holds buffers and runs recordings.
pub trait Device {
    fn facts(&self) -> &Facts;

    /// Makes a buffer of `bytes` (rounded up to 4), all zeros. `label` names it in errors.
    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId, DeviceError>;

    /// Makes a buffer that a recording only reads, in shaders that declare it as a texture, and
    /// that is written in whole texels. Worth it where [`Facts::texels`] says so.
    fn create_texels(
        &mut self,
        label: &str,
        bytes: u64,
        texel: Texel,
    ) -> Result<BufferId, DeviceError>;

    /// Writes `data` (a multiple of 4 long) at load time.
    fn write_buffer(&mut self, id: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError>;

    fn free_buffer(&mut self, id: BufferId);

    /// Builds the pipelines of `variants` now, so that the first step does not wait for them.
    fn prepare(&mut self, variants: &[VariantId]) -> Result<(), DeviceError>;

    /// Starts to build the pipelines of `variants` beside what follows, where the device can. One
    /// that cannot be built is an error of the step that needs it.
    fn begin(&mut self, variants: &[VariantId]) {
        let _ = variants;
    }

    /// Measures every launch from the next step on, or no longer; false where that cannot be. A
    /// timed launch may take longer: on a GPU each gets a pass of its own.
    fn time_launches(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// Starts a step; steps run in the order they were submitted.
    fn submit(&mut self, recording: &Recording) -> Result<Pending, DeviceError>;

    /// Submits and waits. Never called in a browser, where blocking is not possible.
    fn run(&mut self, recording: &Recording) -> Result<Finished, DeviceError> {
        pollster::block_on(self.submit(recording)?)
    }
}
