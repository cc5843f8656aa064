//! Where the values of a token lie in the rows of a step's scratch buffers.

use super::Spec;
use crate::kernels::layout;

/// What lies side by side in a row begins at a multiple of so many values, where it can be bound.
const COLUMN_ALIGN: u32 = (layout::BINDING_ALIGN / 4) as u32;

/// Values between rows of an activation: whole k-blocks, the tail stays zero.
pub(super) fn stride(dim: u32) -> u32 {
    dim.next_multiple_of(layout::K_BLOCK)
}

/// Where parts of such widths begin when they lie side by side, and the values between rows.
pub(super) fn columns(widths: impl IntoIterator<Item = u32>) -> (Vec<u32>, u32) {
    let (mut firsts, mut end) = (Vec::new(), 0u32);
    for width in widths {
        firsts.push(end);
        // What saturates is refused as too large when its buffer is made.
        let whole = end.saturating_add(width).checked_next_multiple_of(COLUMN_ALIGN);
        end = whole.unwrap_or(u32::MAX);
    }
    (firsts, end)
}

/// First values of q, k and v in a token's row, and the values between rows. Of a latent, k and v
/// are the latent row, q is what was folded, and before them lies the narrow row that q is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QkvRow {
    pub q: u32,
    pub k: u32,
    pub v: u32,
    pub stride: u32,
}

impl QkvRow {
    pub fn of(spec: &Spec) -> Self {
        let (q, kv) = (spec.q_dim(), spec.kv_dim());
        match spec.latent {
            None => {
                let (at, stride) = columns([q, kv, kv]);
                Self { q: at[0], k: at[1], v: at[2], stride }
            }
            Some(latent) => {
                let (at, stride) = columns([latent.q_rank.unwrap_or(0), spec.head_dim, q]);
                Self { q: at[2], k: at[1], v: at[1], stride }
            }
        }
    }
}

/// First value of `up` behind `gate`, each `dim` long, and the values between rows.
pub(super) fn gate_up(dim: u32) -> (u32, u32) {
    let (at, stride) = columns([dim, dim]);
    (at[1], stride)
}
