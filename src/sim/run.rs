//! Runs a workload to its end: arrivals go in when their time has come, and where nothing runs the
//! time until the next one is passed, by waiting or, in a simulation, by moving the clock.

use super::arrivals::Arrival;
use super::cost::Cost;
use super::generate::WorkloadError;
use super::recorded::RecordedError;
use super::runner::{STOP, Scripts, SimRunner, VOCABULARY, seed};
use crate::base::{Clock, Limits, LimitsError, ManualClock, Policies, Speculate};
use crate::engine::{
    Engine, EngineConfig, GenerateRequest, LoadError, ModelCard, Runner, SamplingDefaults, Stepped,
    SubmitError, fable_tokenizer,
};
use crate::trace::Sink;
use std::collections::VecDeque;
use std::sync::Arc;

/// The engine that a simulated workload meets.
pub struct Setup {
    pub limits: Limits,
    pub policies: Policies,
    /// Shares of tenants under fair queueing, relative to 1: (number, weight).
    pub weights: Vec<(u32, u32)>,
    pub cost: Cost,
    /// Time of moving one block to host memory or back; 0 if unknown: then none is moved, as it
    /// would cost nothing.
    pub block_picos: u64,
    /// Requests that are open at most: others come when one has ended.
    pub concurrency: Option<u32>,
    pub sinks: Vec<Box<dyn Sink>>,
}

/// Why a run ended short.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error(transparent)]
    Card(#[from] LoadError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Recorded(#[from] RecordedError),
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error("request {number} of the workload: {error}")]
    Refused { number: u64, error: SubmitError },
    #[error("the engine ended before the workload did{0}")]
    Ended(String),
}

/// What was run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ran {
    pub requests: u64,
    /// Of those, the ones that no engine of this size can take.
    pub too_long: u64,
    /// Of those, the ones that end before their last token, where the context or the pool does.
    pub shortened: u64,
    pub steps: u64,
    /// Of the engine's clock.
    pub micros: u64,
}

/// The model whose engine a simulation is: text by Fable's tokenizer, and no weights.
fn card() -> Result<ModelCard, LoadError> {
    Ok(ModelCard {
        name: "simulated".to_string(),
        tokenizer: Arc::new(fable_tokenizer(VOCABULARY)?),
        template: None,
        defaults: SamplingDefaults::default(),
        stop_ids: vec![STOP],
        logit_rows: VOCABULARY,
        tuned: 0,
        invariance: Default::default(),
        products: Default::default(),
    })
}

/// The name of a workload's tenant.
fn tenant_name(number: u32) -> String {
    format!("tenant-{number}")
}

/// What of `policies` a simulation follows: its runner knows how long answers are, not what they
/// would repeat, so nothing is guessed.
pub fn simulable(policies: Policies) -> Policies {
    Policies { speculate: Speculate::Off, ..policies }
}

/// Runs `arrivals`, which come in order of time, through an engine whose runner computes nothing.
pub fn simulate(
    arrivals: impl IntoIterator<Item = Arrival>,
    setup: Setup,
) -> Result<Ran, SimError> {
    setup.limits.check()?;
    let clock = Arc::new(ManualClock::default());
    let scripts = Scripts::default();
    let runner = SimRunner {
        cost: setup.cost,
        block_picos: setup.block_picos,
        clock: clock.clone(),
        scripts: scripts.clone(),
    };
    let limits = match setup.block_picos {
        0 => Limits { host_blocks: 0, ..setup.limits },
        _ => setup.limits,
    };
    let mut config = EngineConfig::new(limits, clock.clone());
    config.policies = simulable(setup.policies);
    config.block_picos = setup.block_picos;
    config.weights = setup.weights.iter().map(|&(n, w)| (tenant_name(n), w)).collect();
    config.sinks = setup.sinks;
    let mut engine = Engine::new(runner, card()?, config);
    let request = |number: u32, mut arrival: Arrival| {
        let said = std::mem::take(&mut arrival.said);
        let mut number_of_script = 0;
        if !said.is_empty() {
            number_of_script = number;
            scripts.borrow_mut().insert(number, said);
        }
        GenerateRequest {
            max_tokens: Some(arrival.output_max.max(arrival.output).max(1)),
            seed: Some(seed(number_of_script, arrival.output)),
            ..request(&arrival, VOCABULARY - 2)
        }
    };
    let pass = |until: u64| clock.advance(until.saturating_sub(clock.now_micros()).max(1));
    drive(&mut engine, arrivals, setup.concurrency, clock.as_ref(), pass, request)
}

/// A request that makes as many tokens as the arrival says, whatever the model would say. Ids of
/// the prompt that are made up lie below `vocabulary`.
pub fn request(arrival: &Arrival, vocabulary: u32) -> GenerateRequest {
    GenerateRequest {
        // Below it lie the control ids of most vocabularies.
        prompt: arrival.prompt.ids(vocabulary / 2, vocabulary),
        max_tokens: Some(arrival.output.max(1)),
        temperature: Some(0.0),
        tenant: (arrival.tenant > 0).then(|| tenant_name(arrival.tenant)),
        priority: Some(u32::from(arrival.class)),
        ..GenerateRequest::default()
    }
}

/// Runs `arrivals`, which come in order of time, through any engine: at most `concurrency` open at
/// once, `request` makes a request of each (with its number, from 1), and `pass` lets the time go
/// on until a moment of `clock`.
pub fn drive<R: Runner>(
    engine: &mut Engine<R>,
    arrivals: impl IntoIterator<Item = Arrival>,
    concurrency: Option<u32>,
    clock: &dyn Clock,
    pass: impl Fn(u64),
    mut request: impl FnMut(u32, Arrival) -> GenerateRequest,
) -> Result<Ran, SimError> {
    let handle = engine.handle();
    // The way in holds no more between two steps.
    let entrance = handle.limits().queue_max.clamp(1, 1024);
    let mut arrivals = arrivals.into_iter().peekable();
    let mut due: VecDeque<Arrival> = VecDeque::new();
    let mut ran = Ran::default();
    let began = clock.now_micros();
    loop {
        let now = clock.now_micros() - began;
        while let Some(arrival) = arrivals.next_if(|a| a.micros <= now) {
            due.push_back(arrival);
            if due.len() > entrance as usize {
                break;
            }
        }
        let room = concurrency.map_or(u32::MAX, |most| most.max(1).saturating_sub(handle.open()));
        for _ in 0..entrance.min(room) {
            let Some(arrival) = due.pop_front() else { break };
            ran.requests += 1;
            // Seen before its ids are made: a trace can say any length.
            let room = handle.sequence_tokens_max().saturating_sub(arrival.prompt.tokens());
            if room == 0 {
                ran.too_long += 1;
                continue;
            }
            ran.shortened += u64::from(arrival.output > room);
            let mut request = request(ran.requests as u32, arrival);
            request.max_tokens = request.max_tokens.map(|most| most.min(room));
            let number = ran.requests;
            handle.submit_quiet(request).map_err(|error| SimError::Refused { number, error })?;
        }
        let next = match due.is_empty() {
            true => arrivals.peek().map(|a| a.micros.saturating_add(began)),
            false => Some(clock.now_micros()),
        };
        let until = match pollster::block_on(engine.step()) {
            Stepped::Ran => continue,
            Stepped::Filling { until } => next.map_or(until, |next| next.min(until)),
            Stepped::Idle if next.is_some() => next.unwrap_or_default(),
            Stepped::Idle => break,
            Stepped::Ended => {
                let why = handle.status().state;
                return Err(SimError::Ended(format!(": {why:?}")));
            }
        };
        pass(until);
    }
    ran.steps = handle.status().steps;
    ran.micros = clock.now_micros() - began;
    Ok(ran)
}
