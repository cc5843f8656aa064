//! How products take the rows they read.

use super::named::named;
use serde::{Deserialize, Serialize};

/// What the activations of a linear product are.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Activations {
    #[default]
    F32,
    /// Signed bytes with an f32 scale per 32 values: max |x| / 127. Products of formats that
    /// have no such path take f32 all the same.
    Int8,
}

named!(Activations, "a type of activations", F32 => "f32", Int8 => "int8");
