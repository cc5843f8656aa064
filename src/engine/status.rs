//! What the engine is doing, as one small value: replaced after every step, read by anyone.

use crate::base::{Limits, Policies};
use std::sync::Arc;

/// Where the engine is in its life.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum EngineState {
    #[default]
    Serving,
    /// Takes no more requests; ends when the open ones have.
    Draining,
    Stopped,
    Failed(Arc<str>),
}

/// A snapshot after a step.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Status {
    pub state: EngineState,
    /// Somebody holds it between two steps.
    pub held: bool,
    /// In force now.
    pub limits: Limits,
    pub policies: Policies,
    /// Requests between arrival at the engine and their last output.
    pub open: u32,
    pub running: u32,
    pub waiting: u32,
    pub blocks_used: u32,
    /// Of those, blocks that several sequences hold.
    pub blocks_shared: u32,
    /// Blocks that nobody holds and whose content the prefix cache offers.
    pub blocks_cached: u32,
    pub blocks_total: u32,
    /// Token slots in blocks of running sequences that hold no computed token.
    pub slots_unused: u64,
    /// When a caller refused now should try again.
    pub retry_seconds: u32,
    /// Steps run since start.
    pub steps: u64,
    /// Positions computed since start, prompts and recomputations included.
    pub tokens_computed: u64,
    /// Tokens handed to callers since start.
    pub tokens_generated: u64,
    pub requests_finished: u64,
    pub requests_cancelled: u64,
    pub requests_failed: u64,
}

/// What [`super::EngineHandle::check`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// The first invariant of scheduler, block pool and prefix index that does not hold.
    pub fault: Option<String>,
    /// The state it was checked in.
    pub status: Status,
}
