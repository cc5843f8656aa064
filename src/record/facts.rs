//! What a device is and may do, as plain data: kernels choose variants from it.

use serde::{Deserialize, Serialize};

/// Kinds of device, best first: the order in which one is preferred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum DeviceKind {
    Discrete,
    Integrated,
    /// Virtual or unknown hardware.
    Other,
    /// A GPU API implemented on the processor (lavapipe, SwiftShader, WARP).
    Software,
    /// The plain-Rust twins, no GPU API at all.
    Cpu,
}

/// Facts of one device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Facts {
    pub name: String,
    /// `vulkan`, `metal`, `dx12`, `webgpu` or `cpu`.
    pub backend: String,
    pub driver: String,
    pub kind: DeviceKind,
    /// Lanes of a subgroup; 1 where unknown, varying or absent.
    pub lanes: u32,
    /// Bytes one storage binding may cover.
    pub binding_bytes_max: u64,
    /// Bytes one buffer may have.
    pub buffer_bytes_max: u64,
    /// Workgroups per dimension of a launch.
    pub workgroups_max: u32,
    /// Invocations per workgroup.
    pub invocations_max: u32,
    /// Bytes of workgroup memory.
    pub shared_bytes_max: u32,
    /// Storage buffers one kernel may bind.
    pub bindings_max: u32,
    /// f16 arithmetic in shaders.
    pub f16: bool,
    /// 64-bit integers in shaders.
    pub int64: bool,
    /// Shaders load from textures many times faster than from storage buffers, and weights are
    /// kept so.
    #[serde(default)]
    pub texels: bool,
    /// 16x16 matrix units, f16 operands and f32 sums.
    pub matrix_units: bool,
    /// Times of single kernels can be measured.
    pub timestamps: bool,
    /// Memory of the device in bytes, where it can be known.
    pub memory_bytes: Option<u64>,
}

impl Facts {
    /// True where shaders run on the processor: small workgroups, register tiles, no barriers.
    pub fn software(&self) -> bool {
        matches!(self.kind, DeviceKind::Software | DeviceKind::Cpu)
    }
}
