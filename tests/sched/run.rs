//! A scheduler driven at full speed: no checks, no cache, events handed out step by step.

use tilewright::base::{Limits, Policies, RequestId, SequenceId};
use tilewright::sched::{NewSequence, Outcome, Plan, Scheduler};
use tilewright::trace::Event;

pub struct Run {
    pub sched: Scheduler,
    pub plan: Plan,
    /// Of the latest step and the submissions before it.
    pub events: Vec<Event>,
    pub now: u64,
    outcomes: Vec<Outcome>,
    next: u32,
}

impl Run {
    pub fn new(limits: Limits, policies: Policies) -> Self {
        Self {
            sched: Scheduler::with_policies(limits, policies),
            plan: Plan::default(),
            events: Vec::new(),
            now: 0,
            outcomes: Vec::new(),
            next: 0,
        }
    }

    /// Submits under the next id; `None` when refused.
    pub fn submit(
        &mut self,
        prompt: u32,
        new: u32,
        more: impl Fn(&mut NewSequence),
    ) -> Option<u32> {
        let id = self.next;
        // Nobody begins like another.
        let prompt = vec![id; prompt as usize];
        let mut request = NewSequence::new(SequenceId(id), RequestId(id), prompt, new);
        more(&mut request);
        self.sched.submit(request, self.now, &mut self.events).ok()?;
        self.next += 1;
        Some(id)
    }

    /// One step; the events since the last one are in `events`. False when it had no row.
    pub fn step(&mut self, events: &mut Vec<Event>) -> bool {
        self.now += 1000;
        self.sched.plan(self.now, &mut self.plan, &mut self.events);
        self.outcomes.clear();
        self.outcomes.extend(self.plan.rows.iter().map(|r| Outcome {
            sequence: r.sequence,
            token: r.samples.then_some(7),
            finish: None,
        }));
        self.sched.commit(&self.plan, &self.outcomes, self.now, &mut self.events);
        events.clear();
        events.append(&mut self.events);
        !self.plan.rows.is_empty()
    }
}
