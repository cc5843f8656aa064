//! Whether the bits of a request may depend on its company.

use super::named::named;
use serde::{Deserialize, Serialize};

/// What the size of a step may change.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Invariance {
    /// Never the order of a sum: a request has the same bits alone and among others.
    #[default]
    On,
    /// Which kernels run, and how they cut their sums, too. Equal steps still give equal bits.
    Off,
}

named!(Invariance, "a state of invariance", On => "on", Off => "off");
