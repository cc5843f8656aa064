//! How requests enter the loop and leave it: taken, refused, late, cancelled, finished, failed.
//! Each gets exactly one last word, after the scheduler has let go of it.

use super::handle::{Control, Submission};
use super::output::{GenerateError, Output, SubmitError};
use super::probe::Collected;
use super::runner_api::{Probed, Runner, Sampled};
use super::status::{Checked, EngineState};
use super::steps::Engine;
use super::table::Request;
use crate::base::{RequestId, SequenceId, TokenId};
use crate::sched::{NewSequence, Outcome, PlanRow};
use crate::trace::{Asked, Event, FinishReason, Refusal};

/// Answers all choices of a request that is not taken.
fn refuse(choices: Vec<Request>, error: &SubmitError) {
    for request in choices {
        request.sender.send_last(Output::Failed(GenerateError::Refused(error.clone())));
    }
}

/// How a request ended.
pub(super) enum Last {
    Finished(FinishReason),
    Early(GenerateError),
}

/// The pace at which requests leave: what a refused caller is told to wait.
#[derive(Default)]
pub(super) struct Pace {
    last: Option<u64>,
    /// Running mean of the time between two ends.
    micros: u64,
}

/// Longest wait that a caller is told.
const RETRY_SECONDS_MAX: u64 = 60;

impl Pace {
    fn ended(&mut self, now: u64) {
        if let Some(last) = self.last.replace(now) {
            self.micros = (self.micros * 7 + now.saturating_sub(last)) / 8;
        }
    }

    /// Seconds in which `waiting` requests leave.
    pub fn retry_seconds(&self, waiting: u32) -> u32 {
        let micros = self.micros.saturating_mul(u64::from(waiting));
        micros.div_ceil(1_000_000).clamp(1, RETRY_SECONDS_MAX) as u32
    }
}

impl<R: Runner> Engine<R> {
    pub(super) fn take(&mut self, submission: Submission) {
        let Submission { first, prompt, tag, choices, asked } = submission;
        if self.now.state != EngineState::Serving {
            return refuse(choices, &SubmitError::Stopping);
        }
        if choices.iter().all(|request| request.sender.gone()) {
            self.now.requests_cancelled += choices.len() as u64;
            return;
        }
        let now = self.clock.now_micros();
        if let (Some(asked), Some(choice)) = (asked, choices.first()) {
            self.tell_asked(choice.id, first, asked, &prompt, now);
        }
        let (waiting, max) = (self.sched.waiting(), self.sched.limits().queue_max);
        if u64::from(waiting) + choices.len() as u64 > u64::from(max) {
            self.now.requests_failed += choices.len() as u64;
            let refusal = Refusal::Full { waiting, max };
            for (sequence, choice) in (first.0..).map(SequenceId).zip(&choices) {
                let request = choice.id;
                self.events.push(Event::RequestRefused { request, sequence, refusal });
            }
            self.emit(now);
            let retry_seconds = self.pace.retry_seconds(waiting);
            return refuse(choices, &SubmitError::QueueFull { waiting, max, retry_seconds });
        }
        let siblings = choices.len() > 1;
        for (sequence, request) in (first.0..).map(SequenceId).zip(choices) {
            let max_new = request.max_new_tokens.max(1);
            let new = NewSequence {
                tenant: request.tenant,
                class: request.class,
                tag: tag.clone(),
                siblings,
                uncached: request.asked.as_ref().is_some_and(Collected::needs_every_row),
                ..NewSequence::new(sequence, request.id, prompt.clone(), max_new)
            };
            self.take_choice(new, request, now);
        }
    }

    fn tell_asked(
        &mut self,
        request: RequestId,
        sequence: SequenceId,
        asked: Box<Asked>,
        prompt: &[TokenId],
        now: u64,
    ) {
        self.sched.announce(&mut self.events);
        self.events.push(Event::RequestAsked { request, sequence, asked });
        for piece in prompt.chunks(Asked::PIECE) {
            self.events.push(Event::PromptGiven { request, tokens: piece.to_vec() });
        }
        self.emit(now);
    }

    fn take_choice(&mut self, new: NewSequence, mut request: Request, now: u64) {
        let sequence = new.sequence;
        request.arrived = now;
        let taken = self.sched.submit(new, now, &mut self.events);
        self.emit(now);
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
            Refusal::Full { waiting, max } => {
                let retry_seconds = self.pace.retry_seconds(waiting);
                SubmitError::QueueFull { waiting, max, retry_seconds }
            }
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

    pub(super) fn obey(&mut self, word: Control) {
        match word {
            Control::Cancel(id) => {
                let of = |(&s, request): (&SequenceId, &Request)| (request.id == id).then_some(s);
                let sequences: Vec<_> = self.table.iter().filter_map(of).collect();
                for sequence in sequences {
                    self.end_early(sequence, GenerateError::Cancelled);
                }
            }
            Control::Check(answer) => {
                self.publish();
                let fault = self.sched.check().err();
                // Who asked may be gone.
                let _ = answer.send(Checked { fault, status: self.now.clone() });
            }
            Control::Drain if self.now.state == EngineState::Serving => {
                self.now.state = EngineState::Draining;
                self.publish();
            }
            Control::Drain => {}
            Control::Hold(hold) => (self.now.held, self.credit) = (hold, 0),
            Control::StepOnce if self.now.held => self.credit += 1,
            Control::StepOnce => {}
            Control::Limits(limits) => {
                // The handle has checked what is fixed.
                if self.sched.set_limits(limits, &mut self.events).is_ok() {
                    self.now.limits = *self.sched.limits();
                }
                self.emit(self.clock.now_micros());
                self.publish();
            }
            Control::Policies(policies) => {
                self.sched.set_policies(policies, &mut self.events);
                self.now.policies = policies;
                self.emit(self.clock.now_micros());
                self.publish();
            }
            Control::Weight(tenant, weight) => {
                self.sched.set_weight(tenant, weight);
                self.sched.announce(&mut self.events);
                self.events.push(Event::TenantWeighted { tenant, weight });
                self.emit(self.clock.now_micros());
            }
            Control::Stop => {
                self.end_all(&GenerateError::Stopped);
                self.now.state = EngineState::Stopped;
                self.refuse_waiting();
            }
        }
    }

    /// Ends every request whose caller dropped its end or whose time is up.
    pub(super) fn drop_gone(&mut self) {
        for (sequence, error) in self.gone() {
            self.end_early(sequence, error);
        }
    }

    /// Those requests, and what is over for them.
    pub(super) fn gone(&self) -> Vec<(SequenceId, GenerateError)> {
        let now = self.clock.now_micros();
        let patience = u64::from(self.sched.limits().queue_timeout_ms);
        let over = |(&sequence, request): (&SequenceId, &Request)| {
            let waited = now.saturating_sub(request.arrived) / 1000;
            let error = if request.sender.gone() {
                GenerateError::Cancelled
            } else if let Some(millis) = request.timeout_ms.filter(|&most| waited >= most) {
                GenerateError::Timeout { millis }
            } else if patience > 0 && waited >= patience && !self.sched.was_admitted(sequence) {
                let retry_seconds = self.pace.retry_seconds(self.sched.waiting());
                GenerateError::QueueTimeout { millis: patience, retry_seconds }
            } else {
                return None;
            };
            Some((sequence, error))
        };
        self.table.iter().filter_map(over).collect()
    }

    /// Takes a request out of the scheduler, blocks and all, and tells its caller why.
    pub(super) fn end_early(&mut self, sequence: SequenceId, error: GenerateError) {
        let now = self.clock.now_micros();
        let reason = match error {
            GenerateError::Run(_) | GenerateError::Engine(_) => FinishReason::Failed,
            GenerateError::Timeout { .. } | GenerateError::QueueTimeout { .. } => {
                FinishReason::TimedOut
            }
            _ => FinishReason::Cancelled,
        };
        self.sched.finish(sequence, reason, now, &mut self.events);
        self.emit(now);
        self.close(vec![(sequence, Last::Early(error))]);
    }

    fn end_all(&mut self, error: &GenerateError) {
        while let Some(&sequence) = self.table.keys().next() {
            self.end_early(sequence, error.clone());
        }
    }

    /// The engine cannot go on.
    pub(super) fn fail_all(&mut self, error: &GenerateError) {
        self.now.state = EngineState::Failed(error.to_string().into());
        // Seen before any caller learns of its own failure.
        self.publish();
        self.end_all(error);
        self.refuse_waiting();
    }

    /// Answers what is still on its way in after the end.
    pub(super) fn refuse_waiting(&mut self) {
        self.intake.close();
        while let Ok(submission) = self.intake.try_recv() {
            let error = match &self.now.state {
                EngineState::Failed(why) => SubmitError::Failed(why.to_string()),
                _ => SubmitError::Stopping,
            };
            refuse(submission.choices, &error);
        }
    }

    /// Sends the last words of requests that the scheduler has let go of already. The status is
    /// published first: who has its answer sees its blocks free.
    pub(super) fn close(&mut self, ended: Vec<(SequenceId, Last)>) {
        if ended.is_empty() {
            return;
        }
        let now = self.clock.now_micros();
        ended.iter().for_each(|_| self.pace.ended(now));
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
}

/// One row's answers: what the scheduler learns, and the last word if there is one. Of the answers
/// those count that were asked for after tokens which came out so.
pub(super) fn settle(
    row: &PlanRow,
    request: &mut Request,
    probed: Option<Probed>,
    answers: &mut impl Iterator<Item = Sampled>,
    outcomes: &mut Vec<Outcome>,
) -> Option<Last> {
    let sequence = row.sequence;
    let mut told = probed.map_or(Ok(()), |probed| request.probed(probed));
    if row.samples {
        told = told.and_then(|()| request.answer_asked());
    }
    let Some(mut answer) = answers.next() else {
        // A prompt that was only asked about ends where it would sample.
        let finish = told.map(|()| row.samples.then_some(FinishReason::Length));
        let (finish, last) = ending(finish);
        outcomes.push(Outcome { sequence, token: None, finish });
        return last;
    };
    for at in 1.. {
        let token = (told.is_ok() && answer.finite).then_some(answer.token);
        let finish = told.clone().and_then(|()| request.take(answer));
        let (finish, last) = ending(finish);
        outcomes.push(Outcome { sequence, token, finish });
        if finish.is_some() || request.drafts.get(at).copied() != token {
            return last;
        }
        answer = answers.next()?;
    }
    None
}

/// Why a request ends, if it does, in the scheduler's words and in the caller's.
fn ending(
    finish: Result<Option<FinishReason>, GenerateError>,
) -> (Option<FinishReason>, Option<Last>) {
    match finish {
        Ok(finish) => (finish, finish.map(Last::Finished)),
        Err(error) => {
            let reason = match error {
                GenerateError::NonFinite | GenerateError::Grammar(_) => FinishReason::Failed,
                _ => FinishReason::Cancelled,
            };
            (Some(reason), Some(Last::Early(error)))
        }
    }
}
