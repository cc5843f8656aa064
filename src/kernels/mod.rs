//! What kernels exist: the variant table, the WGSL texts and their assembly.

pub mod assemble;
mod expression;
pub mod sources;
pub mod variants;
