//! The step loop: take what arrived, drop what is gone, plan → run → commit → emit. One
//! request's fault (numbers that are not finite, a reader that is gone or slow) ends that
//! request; a runner's fault ends the engine and fails every open request. Between two steps
//! no cancelled request holds a block.

use super::card::ModelCard;
use super::handle::{Control, EngineHandle, Shared, Submission};
use super::output::{GenerateError, Output};
use super::requests::{Pace, settle};
use super::rows::{Padding, step_rows};
use super::runner_api::{RunError, Runner, StepInput, StepOutput, StepRow};
use super::status::{EngineState, Status};
use super::table::Table;
use crate::base::{Clock, Limits, Policies};
use crate::sched::{Outcome, Plan, PlanRow, Scheduler, WorkCosts};
use crate::trace::{Choice, Event, FinishReason, Sink, Stamped, StepTime, Work};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tokio::sync::{mpsc, watch};

/// Steps in a row that may plan nothing while requests are open; more is a fault of the
/// scheduler and is reported, never waited out.
const EMPTY_PLANS_MAX: u32 = 3;

/// Longest sleep while a batch is being filled: what is over for other reasons is seen then.
const FILLING_MICROS_MAX: u64 = 50_000;

/// Tokens of prompts that a step may have where its target is not known to be met, or decoding
/// alone breaks it: a target that cannot be met must not keep prompts out for ever. Where decoding
/// keeps to it, [`StepTime::choose`] leaves them what fits, one token at least.
const PIECE_MIN: u32 = 16;

/// What one call of [`Engine::step`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stepped {
    /// A plan was run.
    Ran,
    /// Nothing is open, or the engine is held: wait for a request or a word.
    Idle,
    /// A batch is being filled: nothing is done before this time, in microseconds of the engine's
    /// clock, unless a request or a word comes.
    Filling { until: u64 },
    /// The engine has ended.
    Ended,
}

/// The loop and all it owns. Lives on one thread; see [`EngineHandle`] for the others.
pub struct Engine<R: Runner> {
    pub(super) runner: R,
    pub(super) sched: Scheduler,
    pub(super) plan: Plan,
    pub(super) table: Table,
    pub(super) clock: Arc<dyn Clock>,
    sinks: Vec<Box<dyn Sink>>,
    pub(super) events: Vec<Event>,
    event_seq: u64,
    pub(super) intake: mpsc::Receiver<Submission>,
    pub(super) control: mpsc::UnboundedReceiver<Control>,
    status: watch::Sender<Status>,
    pub(super) now: Status,
    pub(super) pace: Pace,
    padding: Padding,
    times: StepTime,
    /// Time of moving one block to host memory or back; 0 while unknown.
    block_picos: u64,
    /// The budget told last.
    chosen: Option<u32>,
    force_preemption_every: Option<u64>,
    empty_plans: u32,
    /// Steps that a held engine may still do.
    pub(super) credit: u32,
    handle: EngineHandle,
}

/// What an engine is made with, beside its runner.
pub struct EngineConfig {
    pub limits: Limits,
    pub policies: Policies,
    /// What the model's keys and values depend on beside tokens; see [`crate::sched::Tag`].
    pub kv_identity: String,
    /// Tenants with another share than 1 under fair queueing.
    pub weights: Vec<(String, u32)>,
    /// Steps measured before, for the model of step time.
    pub measured: Vec<(Work, u64)>,
    /// Time of moving one block to host memory or back, as measured; 0 if unknown.
    pub block_picos: u64,
    /// Fault hook: every so many steps the youngest is preempted, needed or not.
    pub force_preemption_every: Option<u64>,
    /// The seeds of requests that bring none follow from this one.
    pub seed: u64,
    /// Requests' parameters and prompts go into the stream, so that it can be replayed.
    pub record_requests: bool,
    /// Outputs that may wait for one reader; one more cancels its request.
    pub output_buffer: usize,
    pub clock: Arc<dyn Clock>,
    /// Where stamped events go.
    pub sinks: Vec<Box<dyn Sink>>,
}

impl EngineConfig {
    pub fn new(limits: Limits, clock: Arc<dyn Clock>) -> Self {
        Self {
            limits,
            policies: Policies::default(),
            kv_identity: String::new(),
            weights: Vec::new(),
            measured: Vec::new(),
            block_picos: 0,
            force_preemption_every: None,
            seed: 0,
            record_requests: false,
            output_buffer: 1024,
            clock,
            sinks: Vec::new(),
        }
    }
}

impl<R: Runner> Engine<R> {
    pub fn new(runner: R, card: ModelCard, config: EngineConfig) -> Self {
        let EngineConfig { limits, policies, seed, output_buffer, clock, sinks, .. } = config;
        let tag = config.kv_identity.into();
        let (submit, intake) = mpsc::channel((limits.queue_max as usize).clamp(1, 1024));
        let (tell, control) = mpsc::unbounded_channel();
        let now = Status { blocks_total: limits.blocks, limits, policies, ..Status::default() };
        let (status, seen) = watch::channel(now.clone());
        let shared = Arc::new(Shared {
            card: Arc::new(card),
            limits,
            capacity: runner.capacity(),
            tag,
            seed,
            output_buffer,
            record_requests: config.record_requests,
            next: AtomicU32::new(0),
        });
        let mut times = StepTime::default();
        config.measured.iter().for_each(|&(work, micros)| times.observe(work, micros));
        let handle = EngineHandle { shared, intake: submit, control: tell, status: seen };
        config.weights.iter().for_each(|(tenant, weight)| handle.set_weight(tenant, *weight));
        Self {
            runner,
            sched: Scheduler::with_policies(limits, policies),
            plan: Plan::default(),
            table: Table::new(),
            clock,
            sinks,
            events: Vec::new(),
            event_seq: 0,
            intake,
            control,
            status,
            now,
            pace: Pace::default(),
            padding: Padding::new(&limits),
            times,
            block_picos: config.block_picos,
            chosen: None,
            force_preemption_every: config.force_preemption_every,
            empty_plans: 0,
            credit: 0,
            handle,
        }
    }

    /// The way in for other threads.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// The scheduler's own state, for views and tests.
    pub fn scheduler(&self) -> &Scheduler {
        &self.sched
    }

    /// Runs until told to stop, drained, or failed. `sleep` ends after so many microseconds.
    pub async fn run<S: Future<Output = ()>>(&mut self, sleep: impl Fn(u64) -> S) {
        loop {
            match self.step().await {
                Stepped::Ran => {}
                Stepped::Idle => self.wait(std::future::pending()).await,
                Stepped::Filling { until } => {
                    let left = until.saturating_sub(self.clock.now_micros());
                    self.wait(sleep(left.min(FILLING_MICROS_MAX))).await;
                }
                Stepped::Ended => return,
            }
        }
    }

    /// One turn of the loop.
    pub async fn step(&mut self) -> Stepped {
        if self.ended() {
            return Stepped::Ended;
        }
        while let Ok(word) = self.control.try_recv() {
            self.obey(word);
        }
        while let Ok(submission) = self.intake.try_recv() {
            self.take(submission);
        }
        self.drop_gone();
        if self.table.is_empty() {
            if self.now.state == EngineState::Draining {
                self.now.state = EngineState::Stopped;
            }
            self.publish();
            return if self.ended() { Stepped::Ended } else { Stepped::Idle };
        }
        if self.now.held && self.credit == 0 {
            self.publish();
            return Stepped::Idle;
        }
        self.credit = self.credit.saturating_sub(1);
        self.turn().await;
        self.publish();
        match self.sched.wake_at() {
            _ if self.ended() => Stepped::Ended,
            Some(until) if self.plan.rows.is_empty() => Stepped::Filling { until },
            _ => Stepped::Ran,
        }
    }

    /// Plan, run, commit, emit.
    pub(super) async fn turn(&mut self) {
        let began = self.clock.now_micros();
        self.choose_budget();
        let cost = self.times.cost().unwrap_or_default();
        let (token_picos, pair_picos, block_picos) = (cost.token, cost.pair, self.block_picos);
        self.sched.set_costs(WorkCosts { token_picos, pair_picos, block_picos });
        if self.force_preemption_every.is_some_and(|n| (self.now.steps + 1).is_multiple_of(n)) {
            self.sched.force_preemption();
        }
        self.sched.plan(began, &mut self.plan, &mut self.events);
        let planned = self.clock.now_micros();
        let empty = self.plan.rows.is_empty();
        // Of an empty step, nothing else tells when it began.
        self.emit(if empty { began } else { planned });
        let moving = match self.swap().await {
            Ok(micros) => micros,
            Err(error) => {
                self.abandon_plan();
                return self.fail_all(&GenerateError::Run(error));
            }
        };
        if empty {
            return self.empty_plan();
        }
        self.empty_plans = 0;
        let rows = step_rows(&self.plan, &self.sched, &self.table, &self.padding);
        let input = StepInput { step: self.plan.step, rows: &rows, copies: &self.plan.copies };
        let expected = (input.sampling().count(), input.probing().count());
        let work = |row: &StepRow<'_>| Work::row(row.start, row.tokens.len() as u32);
        let work = rows.iter().map(work).fold(Work::default(), |all, row| all + row);
        let built = self.clock.now_micros();
        let output = self.runner.run(input).await.and_then(|output| {
            let found = (output.sampled.len(), output.probed.len());
            match found == expected {
                true => Ok(output),
                false => Err(RunError::WrongCount {
                    expected: expected.0 + expected.1,
                    found: found.0 + found.1,
                }),
            }
        });
        drop(rows);
        match output {
            Ok(output) => {
                let ran = self.clock.now_micros();
                let step = self.plan.step;
                self.events.extend(output.kernels.iter().map(|time| Event::KernelTimed {
                    step,
                    kernel: time.kernel.to_string(),
                    launches: time.launches,
                    nanos: time.nanos,
                }));
                self.events.push(Event::StepRan {
                    step,
                    plan_micros: planned - began,
                    build_micros: built - planned,
                    device_micros: ran - built,
                });
                // Moving has a price of its own.
                self.times.observe(work, (ran - began).saturating_sub(moving));
                self.sched.charge_time(&self.plan, ran - built);
                self.commit(output, ran);
            }
            Err(error) => {
                self.abandon_plan();
                self.fail_all(&GenerateError::Run(error));
            }
        }
    }

    /// Moves blocks to host memory and back as the plan says, and learns what that costs; the
    /// microseconds it took.
    async fn swap(&mut self) -> Result<u64, RunError> {
        let (out, back) = (&self.plan.swaps_out, &self.plan.swaps_in);
        let count = out.len() + back.len();
        if count == 0 {
            return Ok(0);
        }
        let began = self.clock.now_micros();
        let block_bytes = self.runner.swap(out, back).await?;
        let micros = self.clock.now_micros() - began;
        let each = micros.saturating_mul(1_000_000) / count as u64;
        self.block_picos =
            if self.block_picos == 0 { each } else { (self.block_picos * 3 + each) / 4 };
        self.events.push(Event::BlocksSwapped {
            step: self.plan.step,
            out: out.len() as u32,
            back: back.len() as u32,
            bytes: block_bytes * count as u64,
            micros,
        });
        Ok(micros)
    }

    /// Sets how many tokens the next step may have, where a target of step time says so.
    fn choose_budget(&mut self) {
        let Some(target_micros) = self.sched.policies().itl_target_micros else {
            self.chosen = None;
            return self.sched.set_step_budget(None);
        };
        let most = self.sched.limits().step_tokens_max;
        let choice = self.times.choose(target_micros, self.sched.backlog(), PIECE_MIN, most);
        self.sched.set_step_budget(Some(choice.budget));
        if self.chosen.replace(choice.budget) == Some(choice.budget) {
            return;
        }
        let Choice { budget, decode, predicted_micros, cost, slack_permille } = choice;
        self.events.push(Event::BudgetChosen {
            budget,
            decode,
            target_micros,
            predicted_micros,
            fixed_micros: cost.fixed / 1_000_000,
            token_nanos: cost.token / 1000,
            pair_picos: cost.pair,
            slack_permille,
        });
    }

    /// A plan without rows is right while a batch is being filled and after a preemption; else it
    /// is a fault if it goes on.
    fn empty_plan(&mut self) {
        if self.sched.wake_at().is_some() || self.plan.preempted > 0 {
            return;
        }
        self.empty_plans += 1;
        if self.empty_plans > EMPTY_PLANS_MAX {
            let error = "the scheduler plans nothing although requests are open";
            self.fail_all(&GenerateError::Engine(error.to_string()));
        }
    }

    /// Ends the sequences of a plan that was never run to its end.
    fn abandon_plan(&mut self) {
        let failed = |row: &PlanRow| Outcome {
            sequence: row.sequence,
            token: None,
            finish: Some(FinishReason::Failed),
        };
        let outcomes: Vec<_> = self.plan.rows.iter().map(failed).collect();
        let now = self.clock.now_micros();
        self.sched.commit(&self.plan, &outcomes, now, &mut self.events);
    }

    /// Gives every answer to its request, then the outcomes to the scheduler.
    fn commit(&mut self, output: StepOutput, now: u64) {
        let (mut sampled, mut probed) = (output.sampled.into_iter(), output.probed.into_iter());
        let mut outcomes = Vec::with_capacity(self.plan.rows.len());
        let mut ended = Vec::new();
        for row in &self.plan.rows {
            self.now.tokens_computed += u64::from(row.len);
            let mut outcome = Outcome { sequence: row.sequence, token: None, finish: None };
            if !row.pad
                && let Some(request) = self.table.get_mut(&row.sequence)
            {
                if request.produced == 0 && row.samples {
                    request.cached_tokens = self.sched.cached_tokens(row.sequence);
                }
                let probes = request.probes(row.start, row.start + row.len);
                let probed = if probes { probed.next() } else { None };
                let samples = row.samples && request.generates();
                let sampled = if samples { sampled.next() } else { None };
                let last;
                (outcome, last) = settle(row, request, probed, sampled);
                ended.extend(last.map(|last| (row.sequence, last)));
                self.now.tokens_generated += u64::from(outcome.token.is_some());
            }
            outcomes.push(outcome);
        }
        self.sched.commit(&self.plan, &outcomes, now, &mut self.events);
        self.now.steps += 1;
        self.emit(now);
        self.close(ended);
    }

    /// Stamps the events that came up with the time that they were decided at, and hands them to
    /// the sinks.
    pub(super) fn emit(&mut self, micros: u64) {
        let step = self.plan.step;
        for event in self.events.drain(..) {
            let stamped = Stamped { seq: self.event_seq, step, micros, event };
            self.event_seq += 1;
            for sink in &mut self.sinks {
                sink.push(&stamped);
            }
        }
    }

    pub(super) fn publish(&mut self) {
        self.now.open = self.table.len() as u32;
        self.now.running = self.sched.running();
        self.now.waiting = self.sched.waiting();
        self.now.slots_unused = self.sched.slots_unused();
        self.now.retry_seconds = self.pace.retry_seconds(self.now.waiting);
        self.now.blocks_used = self.now.blocks_total - self.sched.free_blocks();
        self.now.blocks_shared = self.sched.shared_blocks();
        self.now.blocks_cached = self.sched.cached_blocks();
        self.status.send_if_modified(|seen| {
            let changed = *seen != self.now;
            if changed {
                seen.clone_from(&self.now);
            }
            changed
        });
    }

    fn ended(&self) -> bool {
        matches!(self.now.state, EngineState::Stopped | EngineState::Failed(_))
    }

    /// Sleeps until a request or a word arrives, and takes it; or until `sleep` is over.
    async fn wait(&mut self, sleep: impl Future<Output = ()>) {
        let next = {
            let (arrival, word) = (pin!(self.intake.recv()), pin!(self.control.recv()));
            match select(select(arrival, word), pin!(sleep)).await {
                Either::Left((Either::Left((submission, _)), _)) => Either::Left(submission),
                Either::Left((Either::Right((word, _)), _)) => Either::Right(word),
                Either::Right(_) => return,
            }
        };
        match next {
            Either::Left(Some(submission)) => self.take(submission),
            Either::Right(Some(word)) => self.obey(word),
            // The engine holds a handle of its own: its channels never close before it ends.
            _ => {}
        }
    }
}

impl<R: Runner> Drop for Engine<R> {
    /// A loop that ends without having been told to has failed: a panic on its thread. The
    /// scheduler may be in any state then and is left alone.
    fn drop(&mut self) {
        if self.ended() {
            return;
        }
        let why = "the engine's thread ended unexpectedly";
        self.now.state = EngineState::Failed(why.into());
        self.status.send_replace(self.now.clone());
        for (_, request) in std::mem::take(&mut self.table) {
            let error = GenerateError::Engine(why.to_string());
            request.sender.send_last(Output::Failed(error));
        }
        self.refuse_waiting();
    }
}
