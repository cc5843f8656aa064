//! Plain data and pure arithmetic that several floors name, a clock, how a file is replaced, and
//! how a panic becomes an error.
//! Imports nothing of this crate.

mod activations;
mod clock;
mod files;
mod format;
mod ids;
mod invariance;
mod kv;
mod limits;
mod named;
mod panics;
mod policy;
mod rng;
mod words;

pub use activations::Activations;
pub use clock::{Clock, ManualClock, MonotonicClock};
pub use files::{checksum, replace_file};
pub use format::Format;
pub use ids::{BlockHash, BlockId, RequestId, SequenceId, TokenId};
pub use invariance::Invariance;
pub use kv::KvType;
pub use limits::{Limits, LimitsError};
pub use panics::{caught, caught_quietly};
pub use policy::{
    Admission, Batching, CLASS_DEFAULT, CLASS_MAX, FairUnit, Order, Policies, PolicyError,
    Preemption, Prefill, PrefixCache, Speculate, Victim,
};
pub use rng::{threefry2x32, unit_from_seed};
pub use words::{counted, duration, form};
