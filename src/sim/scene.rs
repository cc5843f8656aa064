//! A simulated run worth watching, for those who have no model at hand.

use super::cost::{Cost, Roofline};
use super::generate::{Lengths, Workload};
use super::run::{Setup, SimError, simulate};
use crate::base::{Limits, Policies};
use crate::trace::Stamped;
use std::sync::{Arc, Mutex, PoisonError};

/// Bursty traffic of two tenants that is a little too much for an 8B model on an H100 whose KV
/// memory is small.
pub fn scene() -> Result<Vec<Stamped>, SimError> {
    let workload = Workload {
        requests: 120,
        rate: 12.0,
        burstiness: 2.0,
        prompt: Lengths { mean: 700.0, cv: 1.0, max: 4096 },
        output: Lengths { mean: 160.0, cv: 0.8, max: 512 },
        prefixes: 3,
        prefix_tokens: 256,
        tenants: 2,
        seed: 1,
    };
    let limits = Limits {
        step_tokens_max: 1024,
        sequences_max: 24,
        blocks: 640,
        context_max: 8192,
        ..Limits::default()
    };
    let events: Arc<Mutex<Vec<Stamped>>> = Arc::default();
    let setup = Setup {
        limits,
        policies: Policies::default(),
        weights: Vec::new(),
        cost: Cost::Roofline(Roofline::H100_8B),
        block_picos: Roofline::H100_8B.block_picos(limits.block_size),
        concurrency: None,
        sinks: vec![Box::new(events.clone())],
    };
    simulate(workload.generator()?, setup)?;
    let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(events)
}
