//! Which tokens are computed next, and where their keys and values lie.
//!
//! [`Scheduler::plan`] composes a step, [`Scheduler::commit`] takes its results. There are no
//! phases: in each step a sequence's computed tokens catch up with its known tokens, so decoding, a
//! chunk of a prompt and the return after a preemption are the same row. Pure: no clock, no
//! floats, no hashing order, no locks; the same calls give the same plans and the same events.

mod admit;
mod ahead;
mod batch;
mod commit;
mod draft;
mod foresee;
mod index;
mod lengths;
mod plan;
mod pool;
mod prefix;
mod queue;
mod scheduler;
mod sequence;
mod share;
mod slots;
mod snapshot;
mod submit;
mod swap;
mod tenants;

pub use plan::{BlockCopy, Outcome, Plan, PlanRow};
pub use pool::{BlockPool, Taken};
pub use prefix::Tag;
pub use scheduler::{LimitsFixed, Scheduler};
pub use sequence::NewSequence;
pub use snapshot::{CachedBlock, SequenceState, Snapshot};
pub use swap::{BlockSwap, WorkCosts};
