//! Steps on their way: planned and handed to the runner, taken back and committed in their order.
//! An end that only a token tells is found while the sequence's next row is in the air: that row
//! counts for nothing, and the caller has the last word when the scheduler has let go of it.

use super::output::GenerateError;
use super::requests::settle;
use super::rows::step_rows;
use super::runner_api::{RunError, Runner, StepInput, StepOutput, StepRow};
use super::steps::Engine;
use crate::sched::{Outcome, Plan, PlanRow, WorkCosts};
use crate::trace::{Choice, Event, FinishReason, Work};

/// Steps in a row that may plan nothing while requests are open; more is a fault of the
/// scheduler and is reported, never waited out.
const EMPTY_PLANS_MAX: u32 = 3;

/// Tokens of prompts beside decoding while no step was measured that a target could be held to.
const PIECE_MIN: u32 = 16;

/// A step that was planned and has not been committed.
pub(super) struct Flight {
    pub plan: Plan,
    /// Present where the runner is not asked any more.
    result: Option<Result<StepOutput, RunError>>,
    /// Sampled and probed answers to come.
    expected: (usize, usize),
    work: Work,
    times: Times,
    /// What its plan decided, of a step planned while the one before it was in the air: told when
    /// that one has been.
    decided: Vec<Event>,
    /// What moving blocks for it told.
    moved: Option<Event>,
    ahead: bool,
}

/// Moments in the making of a step, and the time that moving blocks took of it.
#[derive(Clone, Copy)]
struct Times {
    began: u64,
    planned: u64,
    built: u64,
    moving: u64,
}

impl Flight {
    /// The runner still works on it.
    pub fn is_in_the_air(&self) -> bool {
        self.result.is_none()
    }

    fn checked(&self, output: StepOutput) -> Result<StepOutput, RunError> {
        let found = (output.sampled.len(), output.probed.len());
        if found == self.expected {
            return Ok(output);
        }
        let (expected, found) = (self.expected.0 + self.expected.1, found.0 + found.1);
        Err(RunError::WrongCount { expected, found })
    }
}

impl<R: Runner> Engine<R> {
    /// Plans a step and hands it to the runner. With one in the air already, which the caller has
    /// seen to, its rows start from what that one will choose.
    pub(super) async fn launch(&mut self) {
        let ahead = !self.flights.is_empty();
        let began = self.clock.now_micros();
        self.choose_budget();
        let cost = self.times.cost().unwrap_or_default();
        let (token_picos, pair_picos, block_picos) = (cost.token, cost.pair, self.block_picos);
        self.sched.set_costs(WorkCosts { token_picos, pair_picos, block_picos });
        if self.forces_next() {
            self.sched.force_preemption();
        }
        self.draft();
        let mut plan = self.spare.pop().unwrap_or_default();
        self.sched.plan(began, &mut plan, &mut self.events);
        let planned = self.clock.now_micros();
        self.idle = plan.rows.is_empty();
        let mut decided = Vec::new();
        if ahead {
            decided = std::mem::take(&mut self.events);
        } else {
            self.at_step = plan.step;
            // Of an empty step, nothing else tells when it began.
            self.emit(if self.idle { began } else { planned });
        }
        let moved = self.swap(&plan).await;
        if self.idle {
            return self.empty_plan(plan, planned, moved);
        }
        self.empty_plans = 0;
        let before = self.flights.back().map(|flight| &flight.plan);
        let rows = step_rows(&plan, before, &self.sched, &self.table, &self.padding);
        let input = StepInput { step: plan.step, rows: &rows, copies: &plan.copies };
        let expected = (input.sampling().count(), input.probing().count());
        let work = |row: &StepRow<'_>| Work::row(row.start, row.tokens.len() as u32);
        let work = rows.iter().map(work).fold(Work::default(), |all, row| all + row);
        let built = self.clock.now_micros();
        let (result, moved) = match moved {
            Err(error) => (Some(Err(error)), None),
            Ok(moved) if self.steps_in_flight > 1 => {
                (self.runner.launch(input).err().map(Err), moved)
            }
            Ok(moved) => (Some(self.runner.run(input).await), moved),
        };
        drop(rows);
        let (moving, moved) = moved.unzip();
        let times = Times { began, planned, built, moving: moving.unwrap_or(0) };
        let flight = Flight { plan, result, expected, work, times, decided, moved, ahead };
        self.flights.push_back(flight);
    }

    /// Waits for the step that was launched first, commits it and tells what came of it.
    pub(super) async fn land(&mut self) {
        let Some(mut flight) = self.flights.pop_front() else { return };
        let output = match flight.result.take() {
            Some(result) => result,
            None => self.runner.land().await,
        };
        match output.and_then(|output| flight.checked(output)) {
            Ok(output) => self.landed(flight, output),
            Err(error) => {
                self.abandon(flight);
                while let Some(next) = self.flights.pop_front() {
                    self.abandon(next);
                }
                // Theirs was over before.
                let ended = std::mem::take(&mut self.leaving);
                self.close(ended);
                self.fail_all(&GenerateError::Run(error));
            }
        }
    }

    fn landed(&mut self, flight: Flight, output: StepOutput) {
        let ran = self.clock.now_micros();
        let Times { began, planned, built, moving } = flight.times;
        let step = flight.plan.step;
        self.at_step = step;
        self.events.extend(flight.moved);
        self.events.extend(output.kernels.iter().map(|time| Event::KernelTimed {
            step,
            kernel: time.kernel.to_string(),
            launches: time.launches,
            nanos: time.nanos,
        }));
        // The host's part of a step planned ahead lies within the time of the one before.
        let (plan_micros, build_micros) =
            if flight.ahead { (0, 0) } else { (planned - began, built - planned) };
        let device_micros = ran.saturating_sub(built.max(self.landed_at));
        self.events.push(Event::StepRan { step, plan_micros, build_micros, device_micros });
        // Moving has a price of its own.
        let micros = ran.saturating_sub(began.max(self.landed_at));
        self.times.observe(flight.work, micros.saturating_sub(moving));
        self.sched.charge_time(&flight.plan, device_micros);
        self.landed_at = ran;
        self.commit(&flight.plan, output, ran);
        self.spare.push(flight.plan);
    }

    /// Gives every answer to its request, then the outcomes to the scheduler.
    fn commit(&mut self, plan: &Plan, output: StepOutput, now: u64) {
        let (mut sampled, mut probed) = (output.sampled.into_iter(), output.probed.into_iter());
        let mut outcomes = Vec::with_capacity(plan.rows.len());
        for row in &plan.rows {
            self.now.tokens_computed += u64::from(row.tokens());
            let sequence = row.sequence;
            let request = self.table.get_mut(&sequence).filter(|_| !row.pad);
            let Some(request) = request else {
                outcomes.push(Outcome { sequence, token: None, finish: None });
                continue;
            };
            if request.produced == 0 && row.samples {
                request.cached_tokens = self.sched.cached_tokens(sequence);
            }
            let probes = request.probes(row.start, row.start + row.len);
            let probed = if probes { probed.next() } else { None };
            let samples = row.samples && request.generates();
            let answers = if samples { 1 + row.drafts as usize } else { 0 };
            let mut answers = sampled.by_ref().take(answers);
            if self.leaving.iter().any(|(left, _)| *left == sequence) {
                // It ended with the token that this row started from.
                answers.for_each(drop);
                outcomes.push(Outcome { sequence, token: None, finish: None });
                continue;
            }
            let before = outcomes.len();
            let last = settle(row, request, probed, &mut answers, &mut outcomes);
            request.learn(row.drafts, &outcomes[before..]);
            // What follows a wrong guess says nothing.
            answers.for_each(drop);
            self.leaving.extend(last.map(|last| (sequence, last)));
            let tokens = outcomes[before..].iter().filter(|o| o.token.is_some());
            self.now.tokens_generated += tokens.count() as u64;
        }
        self.sched.commit(plan, &outcomes, now, &mut self.events);
        self.now.steps += 1;
        self.emit(now);
        self.tell_ahead(now);
        // Who has a row in the air is still there, blocks and all.
        let (leaving, ended) = std::mem::take(&mut self.leaving)
            .into_iter()
            .partition(|(sequence, _)| self.sched.was_admitted(*sequence));
        self.leaving = leaving;
        self.close(ended);
    }

    /// Tells of the step that was planned while the last one was in the air.
    fn tell_ahead(&mut self, now: u64) {
        let Some(next) = self.flights.front_mut() else { return };
        let Times { began: began_micros, planned, built, .. } = next.times;
        let (step, plan_micros) = (next.plan.step, planned - began_micros);
        let build_micros = built - planned;
        self.at_step = step;
        self.events.append(&mut next.decided);
        self.events.push(Event::StepAhead { step, began_micros, plan_micros, build_micros });
        self.emit(now);
    }

    /// Ends the sequences of a plan that was never run to its end.
    fn abandon(&mut self, mut flight: Flight) {
        let failed = |row: &PlanRow| Outcome {
            sequence: row.sequence,
            token: None,
            finish: Some(FinishReason::Failed),
        };
        let outcomes: Vec<_> = flight.plan.rows.iter().map(failed).collect();
        let now = self.clock.now_micros();
        self.at_step = flight.plan.step;
        self.events.append(&mut flight.decided);
        self.sched.commit(&flight.plan, &outcomes, now, &mut self.events);
        self.emit(now);
    }

    /// A plan without rows is right while a batch is being filled and after a preemption; else it
    /// is a fault if it goes on.
    fn empty_plan(
        &mut self,
        plan: Plan,
        planned: u64,
        moved: Result<Option<(u64, Event)>, RunError>,
    ) {
        let preempted = plan.preempted > 0;
        self.spare.push(plan);
        match moved {
            Ok(None) => {}
            // Told now: with what comes next, a word say, it would belong to that.
            Ok(Some((micros, event))) => {
                self.events.push(event);
                self.emit(planned + micros);
            }
            Err(error) => return self.fail_all(&GenerateError::Run(error)),
        }
        if self.sched.wake_at().is_some() || preempted {
            return;
        }
        self.empty_plans += 1;
        if self.empty_plans > EMPTY_PLANS_MAX {
            let error = "the scheduler plans nothing although requests are open";
            self.fail_all(&GenerateError::Engine(error.to_string()));
        }
    }

    /// Moves blocks to host memory and back as the plan says, and learns what that costs; if it
    /// moved any, the microseconds it took and what there is to tell.
    async fn swap(&mut self, plan: &Plan) -> Result<Option<(u64, Event)>, RunError> {
        let (out, back) = (&plan.swaps_out, &plan.swaps_in);
        let count = out.len() + back.len();
        if count == 0 {
            return Ok(None);
        }
        let began = self.clock.now_micros();
        let block_bytes = self.runner.swap(out, back).await?;
        let micros = self.clock.now_micros() - began;
        let each = micros.saturating_mul(1_000_000) / count as u64;
        self.block_picos =
            if self.block_picos == 0 { each } else { (self.block_picos * 3 + each) / 4 };
        let told = Event::BlocksSwapped {
            step: plan.step,
            out: out.len() as u32,
            back: back.len() as u32,
            bytes: block_bytes * count as u64,
            micros,
        };
        Ok(Some((micros, told)))
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
}
