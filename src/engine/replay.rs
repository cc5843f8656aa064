//! Runs a recording again: the same requests, cancellations and changes of settings between the
//! same two steps, under a clock that shows the recorded times. Decisions and tokens must come out
//! the same; the first event that does not is named with its step.

use super::card::ModelCard;
use super::handle::{Control, Submission};
use super::output::GenerateError;
use super::probe::{Pooling, Question};
use super::runner_api::Runner;
use super::sampling::{GenerateRequest, InvalidField};
use super::steps::{Engine, EngineConfig};
use super::table::{Request, Sender};
use crate::base::{Clock, Limits, LimitsError, Policies, RequestId, SequenceId, TokenId};
use crate::trace::{
    Asked, Event, EvictReason, FinishReason, LimitsReason, PreemptReason, Sink, Stamped, Work,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was asked, for the stream.
pub(super) fn asked(request: &GenerateRequest, first: &Request, choices: u32) -> Asked {
    let s = &first.sampling;
    let (prompt_logprobs, pooled) = match request.question {
        None => (None, None),
        Some(Question::Logprobs(top)) => (Some(top), None),
        Some(Question::Pooled(Pooling::Last)) => (None, Some("last".to_string())),
        Some(Question::Pooled(Pooling::Mean)) => (None, Some("mean".to_string())),
    };
    Asked {
        choices,
        seed: first.seed,
        temperature: s.temperature,
        top_k: s.top_k,
        top_p: s.top_p,
        min_p: s.min_p,
        repetition_penalty: s.repetition_penalty,
        presence_penalty: s.presence_penalty,
        frequency_penalty: s.frequency_penalty,
        logit_bias: s.logit_bias.clone(),
        logprobs: s.logprobs,
        min_tokens: first.min_tokens,
        max_tokens: first.max_new_tokens,
        stop: request.stop.clone(),
        stop_ids: first.stop_ids.clone(),
        guided: request.grammar.is_some(),
        shown: request.shown.clone(),
        tenant: first.tenant,
        class: first.class,
        cache_salt: request.cache_salt.clone(),
        prompt_logprobs,
        pooled,
    }
}

/// The request that was asked.
fn request(asked: &Asked, prompt: Vec<TokenId>) -> GenerateRequest {
    let question = match (asked.prompt_logprobs, asked.pooled.as_deref()) {
        (Some(top), _) => Some(Question::Logprobs(top)),
        (None, Some("mean")) => Some(Question::Pooled(Pooling::Mean)),
        (None, Some(_)) => Some(Question::Pooled(Pooling::Last)),
        (None, None) => None,
    };
    GenerateRequest {
        prompt,
        min_tokens: Some(asked.min_tokens),
        temperature: Some(asked.temperature),
        top_k: Some(asked.top_k),
        top_p: Some(asked.top_p),
        min_p: Some(asked.min_p),
        repetition_penalty: Some(asked.repetition_penalty),
        presence_penalty: Some(asked.presence_penalty),
        frequency_penalty: Some(asked.frequency_penalty),
        logit_bias: asked.logit_bias.clone(),
        seed: Some(asked.seed),
        stop: asked.stop.clone(),
        // The model's own are among them, unless the request ignored those.
        stop_token_ids: asked.stop_ids.clone(),
        ignore_eos: true,
        logprobs: asked.logprobs,
        question,
        n: Some(asked.choices),
        shown: asked.shown.clone(),
        cache_salt: asked.cache_salt.clone(),
        ..GenerateRequest::default()
    }
}

/// Why a recording cannot be run again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the recording does not begin with limits and policies: record from the start")]
    NoStart,
    #[error("LimitsChanged at the start of the recording: {0}")]
    Limits(#[from] LimitsError),
    #[error(
        "the recording lost {0} events: a replay needs all of them, so record to a faster disk"
    )]
    Lost(u64),
    #[error(
        "the recording has no prompts: it was made by an older version, or by something else than \
         `--record`"
    )]
    NoPrompts,
    #[error(
        "request {request} was held to a grammar (a JSON schema, a tool), which a recording does \
         not hold: its tokens cannot come out again"
    )]
    Guided { request: RequestId },
    #[error("{request}: the model at hand takes no such request: {error}")]
    Request { request: RequestId, error: InvalidField },
}

/// The first event that came out otherwise.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    pub step: u64,
    /// Place in the recorded stream.
    pub seq: u64,
    /// `None` where the recording has nothing more in this step.
    pub recorded: Option<Event>,
    pub replayed: Option<Event>,
}

/// What came of a replay.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Replayed {
    pub requests: u64,
    pub steps: u64,
    pub tokens: u64,
    pub preemptions: u64,
    /// Steps recorded at the end whose outcome is missing: the recording was cut off, or the
    /// engine failed.
    pub unfinished: u64,
    pub difference: Option<Difference>,
}

/// The recorded times, one for each look at the clock; then the last one stays.
#[derive(Default)]
struct RecordedClock(Mutex<(VecDeque<u64>, u64)>);

impl RecordedClock {
    fn show(&self, times: &[u64]) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 = times.iter().copied().collect();
        inner.1 = times.last().copied().unwrap_or(inner.1);
    }
}

impl Clock for RecordedClock {
    fn now_micros(&self) -> u64 {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0.pop_front().unwrap_or(inner.1)
    }
}

/// Keeps what the replay makes.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<VecDeque<Stamped>>>);

impl Seen {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Stamped>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Seen {
    fn push(&mut self, event: &Stamped) {
        if comes_of_decisions(&event.event) {
            self.lock().push_back(event.clone());
        }
    }
}

/// Kernel times are of the device alone, and differ in every run; hashes of blocks follow from
/// their tokens, and older recordings do not tell them.
fn comes_of_decisions(event: &Event) -> bool {
    !matches!(event, Event::KernelTimed { .. } | Event::BlocksHashed { .. } | Event::Unknown)
}

/// What is known of a recorded step beside its events.
#[derive(Clone, Default)]
struct StepTimes {
    plan: u64,
    build: u64,
    /// When it came back.
    ran: u64,
    /// When it was begun, where that was before the step before it came back.
    ahead: Option<u64>,
    /// Of moving blocks, if some were moved.
    swap: Option<u64>,
    /// Sequences whose callers left, or read too slowly, and with which token of this step: of
    /// several, where guesses were right.
    left: Vec<(SequenceId, usize)>,
}

/// The limits that a runner needs so that the recording can run on it: the largest of all.
pub fn recorded_limits(events: &[Stamped]) -> Option<Limits> {
    let mut all: Option<Limits> = None;
    for event in events {
        if let Event::LimitsChanged { limits, .. } = event.event {
            let most = all.get_or_insert(limits);
            most.sequences_max = most.sequences_max.max(limits.sequences_max);
            most.step_tokens_max = most.step_tokens_max.max(limits.step_tokens_max);
        }
    }
    all
}

struct Replay<'a, R: Runner> {
    engine: Engine<R>,
    clock: Arc<RecordedClock>,
    seen: Seen,
    /// Those that [`comes_of_decisions`] keeps.
    recorded: Vec<&'a Stamped>,
    at: usize,
    times: BTreeMap<u64, StepTimes>,
    done: Replayed,
}

/// What the recorded engine knew of its device when it started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// Step times.
    pub measured: Vec<(Work, u64)>,
    /// Time of moving one block to host memory or back; 0 if unknown.
    pub block_picos: u64,
}

/// Runs the recording `events` again, whole and in order, on `runner`, whose model `card`
/// describes.
pub fn replay<R: Runner>(
    runner: R,
    card: ModelCard,
    known: Known,
    events: &[Stamped],
) -> Result<Replayed, ReplayError> {
    let (limits, policies) = start(events)?;
    let clock = Arc::new(RecordedClock::default());
    let seen = Seen::default();
    let mut config = EngineConfig::new(limits, clock.clone());
    config.policies = policies;
    (config.measured, config.block_picos) = (known.measured, known.block_picos);
    config.record_requests = true;
    let ahead = events.iter().any(|e| matches!(e.event, Event::StepAhead { .. }));
    config.steps_in_flight = if ahead { 2 } else { 1 };
    config.sinks.push(Box::new(seen.clone()));
    let engine = Engine::new(runner, card, config);
    let recorded: Vec<_> = events.iter().filter(|e| comes_of_decisions(&e.event)).collect();
    let times = step_times(&recorded);
    let done = Replayed::default();
    let mut replay = Replay { engine, clock, seen, recorded, at: 0, times, done };
    while replay.done.difference.is_none() && replay.at < replay.recorded.len() {
        if !replay.next()? {
            break;
        }
        replay.compare();
    }
    Ok(replay.done)
}

/// Limits and policies at the start.
fn start(events: &[Stamped]) -> Result<(Limits, Policies), ReplayError> {
    let (mut limits, mut policies, mut asked, mut arrived) = (None, None, false, false);
    for event in events {
        match event.event {
            Event::LimitsChanged { limits: found, .. } => limits = limits.or(Some(found)),
            Event::PoliciesChanged { policies: found, .. } => policies = policies.or(Some(found)),
            Event::RequestAsked { .. } => asked = true,
            Event::RequestArrived { .. } => arrived = true,
            Event::EventsDropped { count } => return Err(ReplayError::Lost(count)),
            _ => {}
        }
    }
    let whole = events.first().is_none_or(|first| first.seq == 0);
    match (limits, policies) {
        (Some(_), Some(_)) if arrived && !asked => Err(ReplayError::NoPrompts),
        (Some(limits), Some(policies)) if whole => {
            limits.check()?;
            Ok((limits, policies))
        }
        _ => Err(ReplayError::NoStart),
    }
}

/// The times of every step that ran, and who left in its commit. That is told by the order: in a
/// commit a sequence ends right after its token, before the next row's.
fn step_times(events: &[&Stamped]) -> BTreeMap<u64, StepTimes> {
    let mut all: BTreeMap<u64, StepTimes> = BTreeMap::new();
    let (mut ran, mut last, mut swap, mut ahead) = (None, None, None, None);
    for event in events {
        match event.event {
            // A turn without rows has no number.
            Event::BlocksSwapped { step, micros, .. } => swap = (step > 0).then_some(micros),
            Event::StepAhead { began_micros, plan_micros, build_micros, .. } => {
                ahead = Some((began_micros, plan_micros, build_micros));
            }
            Event::StepRan { step, plan_micros, build_micros, .. } => {
                let ahead = ahead.take();
                let times =
                    StepTimes { ran: event.micros, swap: swap.take(), ..Default::default() };
                all.insert(
                    step,
                    match ahead {
                        Some((began, plan, build)) => {
                            StepTimes { plan, build, ahead: Some(began), ..times }
                        }
                        None => StepTimes { plan: plan_micros, build: build_micros, ..times },
                    },
                );
                (ran, last) = (Some((step, event.micros)), None);
            }
            // Its caller left with the token before.
            Event::RowDiscarded { sequence, reason: FinishReason::Cancelled, .. } => {
                let before = ran.and_then(|(step, _)| all.get_mut(&(step - 1)));
                before.into_iter().for_each(|times| times.left.push((sequence, 1)));
            }
            Event::RowDiscarded { .. } => {}
            Event::TokenSampled { sequence, .. } => {
                let before = last.filter(|l: &(SequenceId, usize)| l.0 == sequence);
                last = Some((sequence, before.map_or(1, |l| l.1 + 1)));
            }
            Event::DraftsTried { .. }
            | Event::BlocksCached { .. }
            | Event::BlockMerged { .. }
            | Event::BlockEvicted { .. }
            | Event::BlocksReturned { .. } => {}
            Event::SequenceFinished { sequence, reason: FinishReason::Cancelled, .. } => {
                if let Some((step, micros)) = ran
                    && let Some(last) = last.filter(|l| l.0 == sequence)
                    && micros == event.micros
                    && let Some(times) = all.get_mut(&step)
                {
                    times.left.push(last);
                }
            }
            Event::SequenceFinished { .. } => {}
            _ => (ran, last) = (None, None),
        }
    }
    all
}

impl<R: Runner> Replay<'_, R> {
    /// Does what made the next recorded event; false when the recording's end is cut off.
    fn next(&mut self) -> Result<bool, ReplayError> {
        let Some(&Stamped { step, micros, ref event, .. }) = self.recorded.get(self.at).copied()
        else {
            return Ok(false);
        };
        self.clock.show(&[micros]);
        match event {
            Event::LimitsChanged { reason: LimitsReason::Start, .. } => {
                self.engine.sched.announce(&mut self.engine.events);
                self.engine.emit(micros);
            }
            Event::LimitsChanged { limits, .. } => self.engine.obey(Control::Limits(*limits)),
            Event::PoliciesChanged { policies, .. } => {
                self.engine.obey(Control::Policies(*policies));
            }
            Event::TenantWeighted { tenant, weight } => {
                self.engine.obey(Control::Weight(*tenant, *weight));
            }
            Event::RequestAsked { request, sequence, asked } => {
                self.submit(*request, *sequence, asked)?;
            }
            Event::SequenceFinished { .. }
            | Event::BlocksReturned { .. }
            | Event::BlockEvicted { reason: EvictReason::Failed, .. } => self.end_early(),
            _ => return Ok(self.turn(step, micros)),
        }
        Ok(true)
    }

    /// A sequence was taken out between two steps: its end follows its blocks at once. Where it
    /// does not, somebody gave blocks back for a reason that the recording does not tell.
    fn end_early(&mut self) {
        let blocks = |e: &&&Stamped| {
            matches!(e.event, Event::BlockEvicted { .. } | Event::BlocksReturned { .. })
        };
        let ended = self.recorded[self.at..].iter().find(|e| !blocks(e));
        let Some(&Event::SequenceFinished { sequence, reason, .. }) = ended.map(|e| &e.event)
        else {
            return;
        };
        let error = match reason {
            FinishReason::Cancelled => GenerateError::Cancelled,
            FinishReason::TimedOut => GenerateError::Timeout { millis: 0 },
            _ => GenerateError::Engine("recorded".to_string()),
        };
        self.engine.end_early(sequence, error);
    }

    fn submit(
        &mut self,
        id: RequestId,
        first: SequenceId,
        asked: &Asked,
    ) -> Result<(), ReplayError> {
        if asked.guided {
            return Err(ReplayError::Guided { request: id });
        }
        self.done.requests += 1;
        let mut prompt = Vec::new();
        for event in &self.recorded[self.at + 1..] {
            match &event.event {
                Event::PromptGiven { request, tokens } if *request == id => prompt.extend(tokens),
                _ => break,
            }
        }
        let handle = self.engine.handle();
        let prompt_tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        if prompt.is_empty() {
            return Err(ReplayError::NoPrompts);
        }
        let request = request(asked, prompt);
        let sampling = request.sampling(handle.card());
        let sampling = sampling.map_err(|error| ReplayError::Request { request: id, error })?;
        let choice = |index| {
            let choice =
                handle.choice(&request, &sampling, prompt_tokens, (id.0, index), Sender::quiet());
            let (tenant, class) = (asked.tenant, asked.class);
            Request { tenant, class, max_new_tokens: asked.max_tokens, ..choice }
        };
        let choices = (0..asked.choices.max(1)).map(choice).collect();
        let tag = handle.tag(asked.cache_salt.as_deref());
        let asked = Some(Box::new(asked.clone()));
        self.engine.take(Submission { first, prompt: request.prompt, tag, choices, asked });
        Ok(())
    }

    /// One turn of the loop, with the clock of the recorded one: a step, which may be in the air
    /// already, and the launch of the next one, where that was planned ahead.
    fn turn(&mut self, step: u64, planned: u64) -> bool {
        // Steps without rows have no number.
        let times = match (step, self.times.get(&step)) {
            (0, _) => StepTimes { swap: self.swap_of_turn(), ..StepTimes::default() },
            (_, Some(times)) => times.clone(),
            (_, None) => {
                self.done.unfinished += 1;
                return false;
            }
        };
        if self.engine.flights.is_empty() {
            self.force(step);
            self.launch(&times, planned.saturating_sub(times.plan));
        }
        let next = self.times.get(&(step + 1)).filter(|_| step > 0).cloned();
        if let Some((next, began)) = next.as_ref().and_then(|next| Some((next, next.ahead?))) {
            self.launch(next, began);
        }
        self.clock.show(&[times.ran]);
        let mut readers = Vec::new();
        for (sequence, token) in times.left {
            if let Some(request) = self.engine.table.get_mut(&sequence) {
                // A channel whose reader is gone, or takes the tokens before that one.
                let (sender, reader) = Sender::new(token - 1);
                request.sender = sender;
                readers.extend((token > 1).then_some(reader));
            }
        }
        self.done.steps += u64::from(step > 0);
        pollster::block_on(self.engine.land());
        drop(readers);
        true
    }

    /// Has somebody preempted in the next plan, where that was asked for.
    fn force(&mut self, step: u64) {
        let forced = |e: &&Stamped| {
            matches!(e.event, Event::SequencePreempted { reason: PreemptReason::Forced, .. })
        };
        let of_turn = |e: &&Stamped| e.step == step && !matches!(e.event, Event::StepRan { .. });
        if self.recorded[self.at..].iter().copied().take_while(of_turn).any(|e| forced(&e)) {
            self.engine.sched.force_preemption();
        }
    }

    fn launch(&mut self, times: &StepTimes, began: u64) {
        let planned = began.saturating_add(times.plan);
        let mut looks = vec![began, planned];
        if let Some(swap) = times.swap {
            looks.extend([planned, planned.saturating_add(swap)]);
        }
        looks.push(planned.saturating_add(times.build));
        self.clock.show(&looks);
        pollster::block_on(self.engine.launch());
    }

    /// Time of moving blocks in the turn that begins here, which has no rows.
    fn swap_of_turn(&self) -> Option<u64> {
        let preempted = |e: &&&Stamped| {
            matches!(
                e.event,
                Event::SequencePreempted { .. }
                    | Event::BlocksReturned { .. }
                    | Event::BudgetChosen { .. }
                    | Event::RowDelayed { .. }
                    | Event::AdmissionDelayed { .. }
            )
        };
        let turn = &self.recorded[self.at..];
        let next = turn.get(turn.iter().take_while(preempted).count())?;
        match next.event {
            Event::BlocksSwapped { micros, .. } => Some(micros),
            _ => None,
        }
    }

    /// Lays what came out beside what was recorded.
    fn compare(&mut self) {
        let mut seen = self.seen.lock();
        if seen.is_empty() {
            let recorded = self.recorded[self.at];
            self.done.difference = Some(Difference {
                step: recorded.step,
                seq: recorded.seq,
                recorded: Some(recorded.event.clone()),
                replayed: None,
            });
        }
        while let Some(replayed) = seen.pop_front() {
            let recorded = self.recorded.get(self.at).copied();
            match recorded {
                Some(recorded) if recorded.event == replayed.event => {
                    self.done.tokens +=
                        u64::from(matches!(replayed.event, Event::TokenSampled { .. }));
                    self.done.preemptions +=
                        u64::from(matches!(replayed.event, Event::SequencePreempted { .. }));
                    self.at += 1;
                }
                // The recording ends within what this made: it was cut off there.
                None => {
                    self.done.unfinished = 1;
                    return;
                }
                Some(recorded) => {
                    self.done.difference = Some(Difference {
                        step: recorded.step.max(replayed.step),
                        seq: recorded.seq,
                        recorded: Some(recorded.event.clone()),
                        replayed: Some(replayed.event),
                    });
                    return;
                }
            }
        }
    }
}
