//! Plain data and pure arithmetic that several floors name. Imports nothing of this crate.

mod clock;
mod format;
mod ids;
mod kv;
mod limits;
mod policy;
mod rng;

pub use clock::{Clock, ManualClock, MonotonicClock};
pub use format::Format;
pub use ids::{BlockId, RequestId, SequenceId, TokenId};
pub use kv::KvType;
pub use limits::Limits;
pub use policy::{
    Admission, Batching, CLASS_DEFAULT, CLASS_MAX, FairUnit, Order, Policies, PolicyError,
    Preemption, Prefill, PrefixCache, Victim,
};
pub use rng::{threefry2x32, unit_from_seed};
