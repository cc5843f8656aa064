//! Decoder-only transformers: a [`Spec`] says what differs between families, as data, and one
//! [`Model`] turns a [`Batch`] of rows into the recording of a step, sampled ids included.

mod batch;
mod error;
mod family;
mod forward;
mod gguf;
mod hf;
mod latent;
mod layer;
mod load;
mod loader;
mod names;
mod rename;
mod rope;
mod rows;
mod self_check;
mod spec;
mod variants;

pub use batch::{Batch, BatchRow, Edit, SampleResult, SampleRow};
pub use error::ModelError;
pub use family::{FAMILIES, Family};
pub use latent::Latent;
pub use load::{Budget, Model, Options, Progress};
pub use names::Dialect;
pub use rename::{Place, Renamed, renamed};
pub use rope::{Scaling, yarn_attention};
pub use self_check::self_check;
pub use spec::{Moe, Pairs, Rope, Rotation, Spec};

use crate::record::VariantId;

/// The name of what a launch ran, for people.
pub fn kernel_name(variant: VariantId) -> &'static str {
    crate::kernels::variants::get(variant).map_or("unknown", |v| v.name.as_str())
}
