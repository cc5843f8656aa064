//! What a recorded run tells a simulation: the requests as they came, what they said, the sizes and
//! policies of the engine, and how long its steps took. And the run as it would have been under
//! other policies.

use super::arrivals::{Arrival, Prompt};
use super::cost::Cost;
use super::run::{Setup, SimError, simulable, simulate};
use crate::base::{Limits, LimitsError, Policies, RequestId, SequenceId, TokenId};
use crate::trace::{
    Event, Histogram, Measures, Sink, Slo, Stamped, StepCost, StepTime, Summary, Work,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a recording tells too little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordedError {
    #[error("the recording does not tell the engine's limits: record from the start")]
    NoLimits,
    #[error("LimitsChanged at the start of the recording: {0}")]
    Limits(#[from] LimitsError),
    #[error("the recording has no requests")]
    NoRequests,
    #[error("the recording has no steps, so it does not tell how long one takes")]
    NoSteps,
}

/// The sizes of an engine, and how it chooses.
#[derive(Clone, PartialEq, Debug)]
pub struct Terms {
    pub limits: Limits,
    pub policies: Policies,
    /// Shares of tenants under fair queueing, relative to 1: (number, weight).
    pub weights: Vec<(u32, u32)>,
}

/// A recorded run, as a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// At the start.
    pub terms: Terms,
    /// By time, counted from the first.
    pub arrivals: Vec<Arrival>,
    /// Fitted to the recorded steps, what the host does between two included; `None` of none.
    pub cost: Option<StepCost>,
    /// Time of moving one block to host memory or back; 0 where nothing tells.
    pub block_picos: u64,
}

/// A sequence while the recording is read.
struct Found {
    micros: u64,
    prompt: Option<Arc<[TokenId]>>,
    prompt_tokens: u32,
    output_max: u32,
    tenant: u32,
    class: u8,
    said: Vec<TokenId>,
}

#[derive(Default)]
struct Reading {
    limits: Option<Limits>,
    policies: Option<Policies>,
    weights: BTreeMap<u32, u32>,
    /// Of the request that is being told.
    prompt: (RequestId, Vec<TokenId>),
    found: BTreeMap<SequenceId, Found>,
    times: StepTime,
    work: Work,
    /// Blocks moved, and the time it took.
    swapped: (u64, u64),
    /// Of that time, what lies in the step that is being told, and before it since the last one.
    moving: u64,
    moved: u64,
    /// Host time between two steps.
    between: Histogram,
    /// End of the last step, as long as something runs: waiting for requests is no host time.
    ran: Option<u64>,
    running: BTreeSet<SequenceId>,
}

impl Recorded {
    /// Reads a stream from its start. Sequences that say nothing before they end count as saying
    /// one token; what a caller broke off ends where it was broken off. `block_picos` is what
    /// moving a block was measured to take before the start, 0 if unknown; blocks that the stream
    /// shows to be moved tell more.
    pub fn read<'a>(
        events: impl IntoIterator<Item = &'a Stamped>,
        block_picos: u64,
    ) -> Result<Self, RecordedError> {
        let mut reading = Reading::default();
        events.into_iter().for_each(|event| reading.push(event));
        reading.finish(block_picos)
    }
}

impl Reading {
    fn push(&mut self, stamped: &Stamped) {
        let now = stamped.micros;
        match &stamped.event {
            Event::LimitsChanged { limits, .. } => {
                self.limits.get_or_insert(*limits);
            }
            Event::PoliciesChanged { policies, .. } => {
                self.policies.get_or_insert(*policies);
            }
            Event::TenantWeighted { tenant, weight } => {
                self.weights.insert(*tenant, *weight);
            }
            Event::RequestAsked { request, .. } => self.prompt = (*request, Vec::new()),
            Event::PromptGiven { request, tokens } if *request == self.prompt.0 => {
                self.prompt.1.extend(tokens);
            }
            Event::RequestArrived { .. } => self.arrived(stamped),
            Event::StepPlanned { .. } => self.work = Work::default(),
            Event::RowPlanned { start, len, .. }
            | Event::RowDrafted { start, len, .. }
            | Event::RowPadded { start, len, .. } => {
                self.work = self.work + Work::row(*start, *len);
            }
            Event::StepRan { plan_micros, build_micros, device_micros, .. } => {
                let own = plan_micros.saturating_add(*build_micros).saturating_add(*device_micros);
                // Moves have a time of their own: a step's may not count them again.
                let (moving, moved) =
                    (std::mem::take(&mut self.moving), std::mem::take(&mut self.moved));
                self.times.observe(self.work, own.saturating_sub(moving));
                if let Some(before) = self.ran.replace(now) {
                    let since = now.saturating_sub(before);
                    self.between.record(since.saturating_sub(own).saturating_sub(moved));
                }
            }
            Event::BlocksSwapped { step, out, back, micros, .. } => {
                self.swapped.0 += u64::from(*out) + u64::from(*back);
                self.swapped.1 += micros;
                // A plan without rows has no number, and what it moves lies between two steps.
                let place = if *step == 0 { &mut self.moved } else { &mut self.moving };
                *place += micros;
            }
            Event::SequenceAdmitted { sequence, .. } => {
                self.running.insert(*sequence);
            }
            Event::SequencePreempted { victim: sequence, .. }
            | Event::SequenceFinished { sequence, .. } => {
                self.running.remove(sequence);
                if self.running.is_empty() {
                    self.ran = None;
                }
            }
            Event::TokenSampled { sequence, token, .. } => {
                if let Some(found) = self.found.get_mut(sequence) {
                    found.said.push(*token);
                }
            }
            _ => {}
        }
    }

    fn arrived(&mut self, stamped: &Stamped) {
        let Event::RequestArrived {
            request, sequence, prompt, max_new_tokens, tenant, class, ..
        } = stamped.event
        else {
            return;
        };
        let whole = self.prompt.0 == request && self.prompt.1.len() == prompt as usize;
        let found = Found {
            micros: stamped.micros,
            prompt: whole.then(|| self.prompt.1.as_slice().into()),
            prompt_tokens: prompt,
            output_max: max_new_tokens,
            tenant,
            class,
            said: Vec::new(),
        };
        self.found.insert(sequence, found);
    }

    fn finish(self, known_picos: u64) -> Result<Recorded, RecordedError> {
        let limits = self.limits.ok_or(RecordedError::NoLimits)?;
        limits.check()?;
        let start = self.found.values().map(|f| f.micros).min();
        let start = start.ok_or(RecordedError::NoRequests)?;
        let mut arrivals: Vec<Arrival> = self
            .found
            .into_iter()
            .map(|(sequence, found)| Arrival {
                micros: found.micros - start,
                prompt: match found.prompt {
                    Some(ids) => Prompt::Ids(ids.to_vec()),
                    None => Prompt::unique(u64::from(sequence.0), found.prompt_tokens),
                },
                output: u32::try_from(found.said.len()).unwrap_or(u32::MAX).max(1),
                output_max: found.output_max,
                tenant: found.tenant,
                class: found.class,
                said: found.said,
            })
            .collect();
        arrivals.sort_by_key(|a| a.micros);
        let between = self.between.quantile(500).unwrap_or(0).saturating_mul(1_000_000);
        let cost = self
            .times
            .cost()
            .map(|cost| StepCost { fixed: cost.fixed.saturating_add(between), ..cost });
        let (policies, weights) = (self.policies.unwrap_or_default(), self.weights);
        let (blocks, micros) = self.swapped;
        let block_picos =
            micros.saturating_mul(1_000_000).checked_div(blocks).unwrap_or(known_picos);
        let weights = weights.into_iter().collect();
        let terms = Terms { limits, policies, weights };
        Ok(Recorded { terms, arrivals, cost, block_picos })
    }
}

/// A run with what it was like.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    pub policies: Policies,
    pub summary: Summary,
    /// The whole stream: what a viewer shows.
    pub events: Vec<Stamped>,
}

/// A recorded run beside what a simulation makes of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// As it was measured.
    pub recorded: Summary,
    /// The same policies, simulated: how far the simulation can be believed.
    pub same: Run,
    /// The other policies.
    pub other: Run,
}

/// Runs the requests of a recording, of which `events` are the stream, under other terms with the
/// recording's own step times, and once more under the recording's own terms to compare with.
pub fn what_if(
    events: &[Stamped],
    recorded: &Recorded,
    other: Terms,
    slo: Slo,
) -> Result<Compared, SimError> {
    let mut measures = Measures::new(slo);
    events.iter().for_each(|event| measures.push(event));
    let same = recorded.run(recorded.terms.clone(), slo)?;
    let other = recorded.run(other, slo)?;
    Ok(Compared { recorded: measures.summary(), same, other })
}

/// [`what_if`] of a stream under other policies and limits, with its tenants' own shares and no
/// bounds to keep. `block_picos` is as [`Recorded::read`] has it.
pub fn compare(
    events: &[Stamped],
    policies: Policies,
    limits: Limits,
    block_picos: u64,
) -> Result<Compared, SimError> {
    let recorded = Recorded::read(events, block_picos)?;
    let other = Terms { limits, policies, weights: recorded.terms.weights.clone() };
    what_if(events, &recorded, other, Slo::default())
}

impl Recorded {
    fn run(&self, terms: Terms, slo: Slo) -> Result<Run, SimError> {
        let events: Arc<Mutex<Vec<Stamped>>> = Arc::default();
        let Terms { limits, policies, weights } = terms;
        let policies = simulable(policies);
        let setup = Setup {
            limits,
            policies,
            weights,
            cost: Cost::Fitted(self.cost.ok_or(RecordedError::NoSteps)?),
            block_picos: self.block_picos,
            concurrency: None,
            sinks: vec![Box::new(events.clone())],
        };
        simulate(self.arrivals.iter().cloned(), setup)?;
        let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
        let mut measures = Measures::new(slo);
        events.iter().for_each(|event| measures.push(event));
        Ok(Run { policies, summary: measures.summary(), events })
    }
}
