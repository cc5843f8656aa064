//! The step loop: take what arrived, drop what is gone, plan → run → commit → emit. One
//! request's fault (numbers that are not finite, a reader that is gone or slow) ends that
//! request; a runner's fault ends the engine and fails every open request. Between two steps
//! no cancelled request holds a block.
//!
//! Two steps may be in the air, so that the device need not wait for the host: while the same
//! sequences decode on and nothing comes from outside, the next step is planned and handed over
//! before the tokens of the one before it are known, and starts from them on the device. Everything
//! else waits until nothing is in the air.

use super::card::ModelCard;
use super::flight::Flight;
use super::handle::{Control, EngineHandle, Shared, Submission};
use super::output::{GenerateError, Output};
use super::requests::{Last, Pace};
use super::rows::Padding;
use super::runner_api::Runner;
use super::status::{EngineState, Status};
use super::table::{Request, Table};
use crate::base::{Clock, Limits, Policies, SequenceId};
use crate::sched::{Plan, PlanRow, Scheduler};
use crate::trace::{Event, Sink, Stamped, StepTime, Work};
use futures_util::future::{Either, select};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tokio::sync::{mpsc, watch};

/// Longest sleep while a batch is being filled: what is over for other reasons is seen then.
const FILLING_MICROS_MAX: u64 = 50_000;

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
    /// Steps that were planned and are not committed, in their order.
    pub(super) flights: VecDeque<Flight>,
    /// How many of them there may be.
    pub(super) steps_in_flight: u32,
    /// Plans that no flight needs, kept for their memory.
    pub(super) spare: Vec<Plan>,
    /// Requests that have ended with their token, while the scheduler still waits for a row of them
    /// that is in the air.
    pub(super) leaving: Vec<(SequenceId, Last)>,
    /// The step that events are stamped with.
    pub(super) at_step: u64,
    /// When the last step came back.
    pub(super) landed_at: u64,
    /// The last plan had no rows.
    pub(super) idle: bool,
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
    pub(super) padding: Padding,
    pub(super) times: StepTime,
    /// Time of moving one block to host memory or back; 0 while unknown.
    pub(super) block_picos: u64,
    /// The budget told last.
    pub(super) chosen: Option<u32>,
    force_preemption_every: Option<u64>,
    pub(super) empty_plans: u32,
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
    /// Steps in the air at once, as far as the runner can: 1, or 2 to plan a step while the one
    /// before it runs. Changes no output.
    pub steps_in_flight: u32,
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
            steps_in_flight: 1,
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
        let capacity = runner.capacity();
        let steps_in_flight = config.steps_in_flight.min(capacity.flights);
        let shared = Arc::new(Shared {
            card: Arc::new(card),
            limits,
            capacity,
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
            flights: VecDeque::new(),
            steps_in_flight,
            spare: Vec::new(),
            leaving: Vec::new(),
            at_step: 0,
            landed_at: 0,
            idle: false,
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
        // Whatever comes from outside finds no step in the air.
        if !self.flights.is_empty() && (self.is_called() || !self.gone().is_empty()) {
            self.land().await;
            if self.ended() {
                return Stepped::Ended;
            }
        }
        if self.flights.is_empty() {
            while let Ok(word) = self.control.try_recv() {
                self.obey(word);
            }
            while let Ok(submission) = self.intake.try_recv() {
                self.take(submission);
            }
            self.drop_gone();
        }
        if self.table.is_empty() && self.now.state == EngineState::Draining {
            self.now.state = EngineState::Stopped;
        }
        // Before the step as well as after it: the first one of a request may take seconds.
        self.publish();
        if self.ended() {
            return Stepped::Ended;
        }
        if self.table.is_empty() || self.now.held && self.credit == 0 {
            return Stepped::Idle;
        }
        self.credit = self.credit.saturating_sub(1);
        self.turn().await;
        self.publish();
        match self.sched.wake_at() {
            _ if self.ended() => Stepped::Ended,
            Some(until) if self.idle => Stepped::Filling { until },
            _ => Stepped::Ran,
        }
    }

    /// Lands a step, after launching it if it is not in the air already; and before that launches
    /// the next one, if that is as well known now as it will be then.
    pub(super) async fn turn(&mut self) {
        if self.flights.is_empty() {
            self.launch().await;
        }
        if self.may_run_ahead() {
            self.launch().await;
        }
        self.land().await;
    }

    /// Whether a second step may be planned on top of the one in the air: while nothing comes from
    /// outside, the same sequences decode on, and no choice among them needs the host for more than
    /// the token itself.
    fn may_run_ahead(&self) -> bool {
        let Some(flight) = self.flights.back().filter(|flight| flight.is_in_the_air()) else {
            return false;
        };
        let plain = |row: &PlanRow| self.table.get(&row.sequence).is_some_and(Request::is_plain);
        let quiet = !self.now.held && !self.is_called() && !self.forces_next();
        quiet
            && self.flights.len() < self.steps_in_flight as usize
            && self.sched.may_plan_ahead()
            && flight.plan.rows.iter().all(plain)
    }

    /// Requests or words have come in.
    fn is_called(&self) -> bool {
        !self.control.is_empty() || !self.intake.is_empty()
    }

    /// The next plan is one of those that preempt somebody as a test.
    pub(super) fn forces_next(&self) -> bool {
        let next = self.now.steps + self.flights.len() as u64 + 1;
        self.force_preemption_every.is_some_and(|n| next.is_multiple_of(n))
    }

    /// Stamps the events that came up with the time that they were decided at, and hands them to
    /// the sinks.
    pub(super) fn emit(&mut self, micros: u64) {
        let step = self.at_step;
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
