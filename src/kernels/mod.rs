//! What can run on a device: per kernel its parameters, bindings, grid rule and launch, the table
//! of variants with their WGSL, and the layout of weights as kernels read them.
//!
//! Which variant serves which shape on which [`Facts`] is decided here and nowhere else. The rule
//! all keep: an output element is a function of its own row, in an order fixed by shape, format
//! and device; the number of rows changes only how many independent outputs a thread carries.

pub mod assemble;
pub mod attn;
pub mod block;
pub mod experts;
mod expression;
pub mod layout;
pub mod mul;
pub mod sample;
pub mod sources;
pub mod streams;
pub mod tuned;
pub mod variants;

use crate::record::{Facts, VariantId};
use variants::{Need, Variant};

/// A shader file as the host sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// Stem of the WGSL file, and name of the CPU twin.
    pub stem: &'static str,
    /// Storage bindings, without the parameter block.
    pub bindings: usize,
    /// Bindings it writes (0-based, in the order of a dispatch).
    pub writes: &'static [usize],
}

/// Every kernel.
pub const KERNELS: [Kernel; 24] = [
    mul::EMBED,
    mul::MUL_MAT,
    mul::MUL_VEC,
    mul::MUL_GEMM,
    mul::MUL_PACK,
    mul::MUL_UNIT,
    mul::TO_HALVES,
    experts::MUL_EXPERT,
    experts::MUL_EXPERT_VEC,
    experts::MUL_HEADS,
    experts::MOE_ROUTE,
    experts::MOE_GROUP,
    experts::MOE_COMBINE,
    block::NORM_RMS,
    block::NORM_QK,
    block::ROPE_KV,
    block::ACT_GLU,
    block::SOFT_CAP,
    attn::ATTN_PAGED,
    attn::ATTN_MERGE,
    sample::SAMPLE_EDIT,
    sample::SAMPLE_MASK,
    sample::SAMPLE_STATS,
    sample::SAMPLE,
];

/// The kernel whose WGSL file is `stem`.
pub fn kernel(stem: &str) -> Option<Kernel> {
    KERNELS.into_iter().find(|k| k.stem == stem)
}

/// The row of the table that this module itself names.
///
/// # Panics
/// If the table lacks it: `kernels::every_choice_has_a_variant` walks all choices in a test.
fn named(name: &str) -> VariantId {
    variants::variant(name).unwrap_or_else(|| panic!("shaders/variants.txt lacks `{name}`"))
}

fn get(id: VariantId) -> &'static Variant {
    variants::get(id).expect("an id of this table")
}

/// Ending of the variants for software devices with subgroups and 64-bit integers (see
/// variants.txt), or nothing.
fn width_suffix(facts: &Facts) -> &'static str {
    if facts.software() && [Need::Subgroups, Need::Int64].iter().all(|n| n.met(facts)) {
        ".sub"
    } else {
        ""
    }
}

/// Whether a device with `facts` keeps matrices of `cols` columns as texels, which the `texel`
/// variants read: rows of x must fit the window those have.
pub fn texels(cols: u32, facts: &Facts) -> bool {
    let row = u64::from(cols.next_multiple_of(layout::K_BLOCK)) * 4;
    let fits = 2 * row <= mul::WINDOW || row <= mul::WINDOW && row % layout::BINDING_ALIGN == 0;
    facts.texels && width_suffix(facts) == ".sub" && fits
}

fn texel_suffix(cols: u32, facts: &Facts) -> &'static str {
    if texels(cols, facts) { ".texel" } else { "" }
}

/// `workgroups` as a 2-D grid within the device's bound per dimension; kernels recompute the
/// index as `y * grid_x + x`.
fn fold_grid(workgroups: u32, facts: &Facts) -> [u32; 3] {
    let width = facts.workgroups_max.max(1);
    if workgroups <= width {
        return [workgroups, 1, 1];
    }
    [width, workgroups.div_ceil(width), 1]
}
