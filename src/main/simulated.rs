//! Simulations that the window asks for, run on threads of their own.

use anyhow::Result;
use std::sync::{Arc, Mutex, PoisonError};
use tilewright::base::{Limits, Policies};
use tilewright::sim::{
    Cost, Lengths, Recorded, Roofline, Run, Setup, Terms, Workload, simulate, what_if,
};
use tilewright::trace::{Slo, Stamped};
use tilewright::viewer::{Comparison, Rerun};

/// The recorded arrivals under other policies and limits.
pub fn compare(
    events: &[Stamped],
    policies: Policies,
    limits: Limits,
    block_picos: u64,
) -> Result<Comparison> {
    let recorded = Recorded::read(events, block_picos)?;
    let other = Terms { limits, policies, weights: recorded.terms.weights.clone() };
    let found = what_if(events, &recorded, other, Slo::default())?;
    let rerun = |run: Run| Rerun::new(run.policies, run.summary, run.events);
    let (recorded, same, other) = (found.recorded, rerun(found.same), rerun(found.other));
    Ok(Comparison { recorded, same, other })
}

/// Bursty traffic of two tenants that is a little too much for an 8B model on an H100 whose KV
/// memory is small.
pub fn scene() -> Result<Vec<Stamped>> {
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
