//! The step loop: take what arrived, drop what is gone, plan → run → commit → emit. One
//! request's fault (numbers that are not finite, a reader that is gone or slow) ends that
//! request; a runner's fault ends the engine and fails every open request. Between two steps
//! no cancelled request holds a block.

use super::card::ModelCard;
use super::handle::{Control, EngineHandle, Shared, Submission};
use super::output::{GenerateError, Output, SubmitError};
use super::runner_api::{RunError, Runner, SampleInput, Sampled, StepInput, StepRow};
use super::status::{EngineState, Status};
use super::table::{Request, Table};
use crate::base::{Clock, Limits, SequenceId};
use crate::sched::{NewSequence, Outcome, Plan, PlanRow, Scheduler};
use crate::trace::{Event, FinishReason, Refusal, Sink, Stamped};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tokio::sync::{mpsc, watch};

/// Steps in a row that may plan nothing while requests are open; more is a fault of the
/// scheduler and is reported, never waited out.
const EMPTY_PLANS_MAX: u32 = 3;

/// What one call of [`Engine::step`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stepped {
    /// A plan was run.
    Ran,
    /// Nothing is open, or the engine is held: wait for a request or a word.
    Idle,
    /// The engine has ended.
    Ended,
}

/// The loop and all it owns. Lives on one thread; see [`EngineHandle`] for the others.
pub struct Engine<R: Runner> {
    runner: R,
    sched: Scheduler,
    plan: Plan,
    table: Table,
    clock: Arc<dyn Clock>,
    sinks: Vec<Box<dyn Sink>>,
    events: Vec<Event>,
    event_seq: u64,
    intake: mpsc::Receiver<Submission>,
    control: mpsc::UnboundedReceiver<Control>,
    status: watch::Sender<Status>,
    now: Status,
    empty_plans: u32,
    /// Steps that a held engine may still do.
    credit: u32,
    handle: EngineHandle,
}

/// What an engine is made with, beside its runner.
pub struct EngineConfig {
    pub limits: Limits,
    /// The seeds of requests that bring none follow from this one.
    pub seed: u64,
    /// Outputs that may wait for one reader; one more cancels its request.
    pub output_buffer: usize,
    pub clock: Arc<dyn Clock>,
    /// Where stamped events go.
    pub sinks: Vec<Box<dyn Sink>>,
}

impl EngineConfig {
    pub fn new(limits: Limits, clock: Arc<dyn Clock>) -> Self {
        Self { limits, seed: 0, output_buffer: 1024, clock, sinks: Vec::new() }
    }
}

impl<R: Runner> Engine<R> {
    pub fn new(runner: R, card: ModelCard, config: EngineConfig) -> Self {
        let EngineConfig { limits, seed, output_buffer, clock, sinks } = config;
        let (submit, intake) = mpsc::channel((limits.queue_max as usize).clamp(1, 1024));
        let (tell, control) = mpsc::unbounded_channel();
        let now = Status { blocks_total: limits.blocks, ..Status::default() };
        let (status, seen) = watch::channel(now.clone());
        let next = AtomicU32::new(0);
        let shared = Arc::new(Shared { card: Arc::new(card), limits, seed, output_buffer, next });
        Self {
            runner,
            sched: Scheduler::new(limits),
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
            empty_plans: 0,
            credit: 0,
            handle: EngineHandle { shared, intake: submit, control: tell, status: seen },
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

    /// Runs until told to stop, drained, or failed.
    pub async fn run(&mut self) {
        loop {
            match self.step().await {
                Stepped::Ran => {}
                Stepped::Idle => self.wait().await,
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
        if self.ended() { Stepped::Ended } else { Stepped::Ran }
    }

    /// Plan, run, commit, emit.
    async fn turn(&mut self) {
        let began = self.clock.now_micros();
        self.sched.plan(began, &mut self.plan, &mut self.events);
        let planned = self.clock.now_micros();
        self.emit();
        if self.plan.rows.is_empty() {
            self.empty_plans += 1;
            if self.empty_plans > EMPTY_PLANS_MAX {
                let error = "the scheduler plans nothing although requests are open";
                self.fail_all(&GenerateError::Engine(error.to_string()));
            }
            return;
        }
        self.empty_plans = 0;
        let rows = step_rows(&self.plan, &self.sched, &self.table);
        let input = StepInput { step: self.plan.step, rows: &rows };
        let expected = input.sampling().count();
        let built = self.clock.now_micros();
        let sampled = self.runner.run(input).await.and_then(|sampled| match sampled.len() {
            found if found == expected => Ok(sampled),
            found => Err(RunError::WrongCount { expected, found }),
        });
        drop(rows);
        match sampled {
            Ok(sampled) => {
                let ran = self.clock.now_micros();
                self.events.push(Event::StepRan {
                    step: self.plan.step,
                    plan_micros: planned - began,
                    build_micros: built - planned,
                    device_micros: ran - built,
                });
                self.commit(sampled, ran);
            }
            Err(error) => {
                self.abandon_plan();
                self.fail_all(&GenerateError::Run(error));
            }
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

    /// Gives every sampled token to its request, then the outcomes to the scheduler.
    fn commit(&mut self, sampled: Vec<Sampled>, now: u64) {
        let mut sampled = sampled.into_iter();
        let mut outcomes = Vec::with_capacity(self.plan.rows.len());
        let mut ended = Vec::new();
        for row in &self.plan.rows {
            self.now.tokens_computed += u64::from(row.len);
            let answer = if row.samples { sampled.next() } else { None };
            let outcome = match (answer, self.table.get_mut(&row.sequence)) {
                (Some(answer), Some(request)) => {
                    let (outcome, last) = settle(row.sequence, request, answer);
                    ended.extend(last.map(|last| (row.sequence, last)));
                    self.now.tokens_generated += u64::from(outcome.token.is_some());
                    outcome
                }
                _ => Outcome { sequence: row.sequence, token: None, finish: None },
            };
            outcomes.push(outcome);
        }
        self.sched.commit(&self.plan, &outcomes, now, &mut self.events);
        self.now.steps += 1;
        self.emit();
        self.close(ended);
    }

    fn take(&mut self, submission: Submission) {
        let Submission { sequence, prompt, request } = submission;
        if self.now.state != EngineState::Serving {
            let error = GenerateError::Refused(SubmitError::Stopping);
            return request.sender.send_last(Output::Failed(error));
        }
        if request.sender.gone() {
            self.now.requests_cancelled += 1;
            return;
        }
        let new = NewSequence::new(sequence, request.id, prompt, request.max_new_tokens);
        let now = self.clock.now_micros();
        let taken = self.sched.submit(new, now, &mut self.events);
        self.emit();
        if let Err(refusal) = taken {
            self.now.requests_failed += 1;
            let error = self.refused(refusal, &request);
            return request.sender.send_last(Output::Failed(GenerateError::Refused(error)));
        }
        let started = Output::Started {
            prompt_tokens: request.prompt_tokens,
            max_new_tokens: request.max_new_tokens,
            seed: request.seed,
        };
        // A reader that is gone already is found by `drop_gone`, before the next plan.
        let _ = request.sender.send(started);
        self.table.insert(sequence, request);
    }

    /// The scheduler's refusal in the words of the API. Lengths were checked by the handle, so
    /// only a full queue is common.
    fn refused(&self, refusal: Refusal, request: &Request) -> SubmitError {
        let prompt = u64::from(request.prompt_tokens);
        let limits = self.sched.limits();
        match refusal {
            Refusal::Full { waiting, max } => SubmitError::QueueFull { waiting, max },
            Refusal::TooLong { context, .. } => {
                SubmitError::BeyondContext { prompt, limit: context }
            }
            Refusal::NeverFits { .. } => {
                SubmitError::BeyondPool { prompt, limit: limits.pool_tokens() }
            }
            Refusal::Empty => SubmitError::Empty,
            other => SubmitError::Failed(other.to_string()),
        }
    }

    fn obey(&mut self, word: Control) {
        match word {
            Control::Cancel(id) => {
                let found = self.table.iter().find(|(_, request)| request.id == id);
                if let Some((&sequence, _)) = found {
                    self.end_early(sequence, GenerateError::Cancelled);
                }
            }
            Control::Drain if self.now.state == EngineState::Serving => {
                self.now.state = EngineState::Draining;
                self.publish();
            }
            Control::Drain => {}
            Control::Hold(hold) => (self.now.held, self.credit) = (hold, 0),
            Control::StepOnce if self.now.held => self.credit += 1,
            Control::StepOnce => {}
            Control::Stop => {
                self.end_all(&GenerateError::Stopped);
                self.now.state = EngineState::Stopped;
                self.refuse_waiting();
            }
        }
    }

    /// Cancels every request whose caller dropped its end.
    fn drop_gone(&mut self) {
        let gone = |(&sequence, request): (&SequenceId, &Request)| {
            request.sender.gone().then_some(sequence)
        };
        let gone: Vec<_> = self.table.iter().filter_map(gone).collect();
        for sequence in gone {
            self.end_early(sequence, GenerateError::Cancelled);
        }
    }

    /// Takes a request out of the scheduler, blocks and all, and tells its caller why.
    fn end_early(&mut self, sequence: SequenceId, error: GenerateError) {
        let now = self.clock.now_micros();
        let reason = match error {
            GenerateError::Run(_) | GenerateError::Engine(_) => FinishReason::Failed,
            _ => FinishReason::Cancelled,
        };
        self.sched.finish(sequence, reason, now, &mut self.events);
        self.emit();
        self.close(vec![(sequence, Last::Early(error))]);
    }

    fn end_all(&mut self, error: &GenerateError) {
        while let Some(&sequence) = self.table.keys().next() {
            self.end_early(sequence, error.clone());
        }
    }

    /// The engine cannot go on.
    fn fail_all(&mut self, error: &GenerateError) {
        self.now.state = EngineState::Failed(error.to_string().into());
        // Seen before any caller learns of its own failure.
        self.publish();
        self.end_all(error);
        self.refuse_waiting();
    }

    /// Answers what is still on its way in after the end.
    fn refuse_waiting(&mut self) {
        self.intake.close();
        while let Ok(submission) = self.intake.try_recv() {
            let error = match &self.now.state {
                EngineState::Failed(why) => SubmitError::Failed(why.to_string()),
                _ => SubmitError::Stopping,
            };
            let last = Output::Failed(GenerateError::Refused(error));
            submission.request.sender.send_last(last);
        }
    }

    /// Sends the last words of requests that the scheduler has let go of already. The status is
    /// published first: who has its answer sees its blocks free.
    fn close(&mut self, ended: Vec<(SequenceId, Last)>) {
        if ended.is_empty() {
            return;
        }
        let words: Vec<_> = ended
            .into_iter()
            .filter_map(|(sequence, last)| {
                let request = self.table.remove(&sequence)?;
                let output = self.count_last(&request, last);
                Some((request.sender, output))
            })
            .collect();
        self.publish();
        for (sender, output) in words {
            sender.send_last(output);
        }
    }

    fn count_last(&mut self, request: &Request, last: Last) -> Output {
        let (count, output) = match last {
            Last::Finished(reason) => {
                let usage = request.usage();
                (&mut self.now.requests_finished, Output::Finished { reason, usage })
            }
            Last::Early(error) => {
                let count = match error {
                    GenerateError::Cancelled
                    | GenerateError::Stopped
                    | GenerateError::SlowReader(_) => &mut self.now.requests_cancelled,
                    _ => &mut self.now.requests_failed,
                };
                (count, Output::Failed(error))
            }
        };
        *count += 1;
        output
    }

    /// Stamps the events that came up and hands them to the sinks.
    fn emit(&mut self) {
        let (step, micros) = (self.plan.step, self.clock.now_micros());
        for event in self.events.drain(..) {
            let stamped = Stamped { seq: self.event_seq, step, micros, event };
            self.event_seq += 1;
            for sink in &mut self.sinks {
                sink.push(&stamped);
            }
        }
    }

    fn publish(&mut self) {
        self.now.open = self.table.len() as u32;
        self.now.running = self.sched.running();
        self.now.waiting = self.sched.waiting();
        self.now.slots_unused = self.sched.slots_unused();
        self.now.blocks_used = self.now.blocks_total - self.sched.free_blocks();
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

    /// Sleeps until a request or a word arrives, and takes it.
    async fn wait(&mut self) {
        let next = {
            let (arrival, word) = (pin!(self.intake.recv()), pin!(self.control.recv()));
            match select(arrival, word).await {
                Either::Left((submission, _)) => Either::Left(submission),
                Either::Right((word, _)) => Either::Right(word),
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

/// How a request ended.
enum Last {
    Finished(FinishReason),
    Early(GenerateError),
}

/// One sampling row's answer: what the scheduler learns, and the last word if there is one.
fn settle(sequence: SequenceId, request: &mut Request, answer: Sampled) -> (Outcome, Option<Last>) {
    let failed = |error| {
        let finish = Some(FinishReason::Failed);
        (Outcome { sequence, token: None, finish }, Some(Last::Early(error)))
    };
    if !answer.finite {
        return failed(GenerateError::NonFinite);
    }
    let token = Some(answer.token);
    let (output, finish) = request.accept(answer);
    match request.sender.send(output) {
        Ok(()) => (Outcome { sequence, token, finish }, finish.map(Last::Finished)),
        Err(error) => {
            let finish = Some(FinishReason::Cancelled);
            (Outcome { sequence, token, finish }, Some(Last::Early(error)))
        }
    }
}

/// The plan's rows as values for the runner.
fn step_rows<'a>(plan: &'a Plan, sched: &'a Scheduler, table: &'a Table) -> Vec<StepRow<'a>> {
    let rows = plan.rows.iter().map(|row| {
        let history = sched.tokens(row.sequence);
        let (start, end) = (row.start as usize, row.start as usize + row.len as usize);
        let request = table.get(&row.sequence).filter(|_| row.samples);
        StepRow {
            sequence: row.sequence,
            slot: row.slot,
            start: row.start,
            tokens: &history[start..end],
            blocks: sched.blocks(row.sequence),
            sample: request.map(|request| SampleInput {
                sampling: &request.sampling,
                seed: request.seed,
                position: row.start + row.len,
                history: &history[..end],
                prompt_len: request.prompt_tokens,
                banned: request.banned(),
            }),
        }
    });
    rows.collect()
}
