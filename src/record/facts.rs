//! What a device is and may do, as plain data: kernels choose variants from it.

use crate::base::{Activations, Format, Invariance};
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

/// What served the products of one shape best where that was measured (`tilewright tune`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tuned {
    pub format: Format,
    #[serde(default)]
    pub activations: Activations,
    pub rows: u32,
    pub cols: u32,
    /// By number of tokens, upwards.
    pub choices: Vec<TunedChoice>,
}

/// The kernel from so many tokens on, and the tokens of its tiles.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TunedChoice {
    pub from: u32,
    pub kernel: String,
    pub tile: u32,
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
    /// Side of the squares that matrix units take, f16 operands and f32 sums; 0 without units.
    #[serde(default)]
    pub matrix_side: u32,
    /// Whether the size of a step may choose kernels that sum in another order.
    #[serde(default)]
    pub invariance: Invariance,
    /// Times of single kernels can be measured.
    pub timestamps: bool,
    /// Memory of the device in bytes, where it can be known.
    pub memory_bytes: Option<u64>,
    /// Of shapes that are not here, the kernels' own table decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<Tuned>,
}

impl Facts {
    /// The choice for `tokens` rows of a matrix that was measured.
    pub fn tuned(
        &self,
        (format, activations): (Format, Activations),
        [rows, cols]: [u32; 2],
        tokens: u32,
    ) -> Option<&TunedChoice> {
        let wanted = (format, activations, rows, cols);
        let of = |t: &&Tuned| (t.format, t.activations, t.rows, t.cols) == wanted;
        let choices = &self.tuned.iter().find(of)?.choices;
        choices.iter().take_while(|choice| choice.from <= tokens).last()
    }

    /// True where shaders run on the processor: small workgroups, register tiles, no barriers.
    pub fn software(&self) -> bool {
        matches!(self.kind, DeviceKind::Software | DeviceKind::Cpu)
    }
}
