//! A step of device work as a value: a list of commands over buffer ids. `model` writes it,
//! a [`Device`] runs it (`cpu` with plain-Rust twins, `gpu` with WGSL on wgpu).

mod device;
mod facts;
mod recording;

pub use device::{Device, DeviceError, Finished, Pending, Texel, Timing};
pub use facts::{DeviceKind, Facts, Tuned, TunedChoice};
pub use recording::{Binding, BufferId, Command, Dispatch, PARAMS_MAX, Recording, VariantId};
