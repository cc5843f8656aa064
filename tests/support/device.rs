//! One device for the whole test binary: opening one costs more than most rows.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tilewright::gpu::{Gpu, Options};

static SHARED: LazyLock<Result<Mutex<Gpu>, String>> = LazyLock::new(|| {
    pollster::block_on(Gpu::open(&options())).map(Mutex::new).map_err(|e| e.to_string())
});

/// How tests open devices. `TILEWRIGHT_CHECKED` runs the suite with checked shaders,
/// `TILEWRIGHT_MATRIX_UNITS` with products on matrix units.
pub fn options() -> Options {
    let checked = std::env::var_os("TILEWRIGHT_CHECKED").is_some();
    let matrix_units = std::env::var_os("TILEWRIGHT_MATRIX_UNITS").is_some();
    // Software with matrix units compiles their kernels for minutes, in the first such step.
    let timeout = Duration::from_secs(if matrix_units { 900 } else { 60 });
    Options { checked, matrix_units, timeout, ..Options::default() }
}

/// A device of a row's own, to break or to limit.
pub fn open_gpu() -> Gpu {
    pollster::block_on(Gpu::open(&options())).expect("the adapter that was there before")
}

/// The shared device; rows lock it one after the other.
#[derive(Clone, Copy)]
pub struct SharedGpu(&'static Mutex<Gpu>);

impl SharedGpu {
    pub fn lock(self) -> MutexGuard<'static, Gpu> {
        // A row that failed while it held the device left it usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shared device, or why there is none.
pub fn gpu() -> Result<SharedGpu, String> {
    SHARED.as_ref().map(SharedGpu).map_err(Clone::clone)
}
