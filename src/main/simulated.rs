//! A simulation that the window asks for, run on a thread of its own.

use anyhow::Result;
use tilewright::base::{Limits, Policies};
use tilewright::sim::{self, Run};
use tilewright::trace::Stamped;
use tilewright::viewer::{Comparison, Rerun};

/// The recorded arrivals under other policies and limits.
pub fn compare(
    events: &[Stamped],
    policies: Policies,
    limits: Limits,
    block_picos: u64,
) -> Result<Comparison> {
    let found = sim::compare(events, policies, limits, block_picos)?;
    let rerun = |run: Run| Rerun::new(run.policies, run.summary, run.events);
    let (recorded, same, other) = (found.recorded, rerun(found.same), rerun(found.other));
    Ok(Comparison { recorded, same, other })
}
