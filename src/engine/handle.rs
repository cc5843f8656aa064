//! The way into the engine from other threads: submit, cancel, drain, stop, status.

use super::card::ModelCard;
use super::draft::Reach;
use super::guided::Guided;
use super::output::{Generation, SettingError, SubmitError};
use super::probe::{Collected, Question};
use super::replay::asked;
use super::runner_api::Capacity;
use super::sampling::{GenerateRequest, InvalidField, Sampling, choice_seed};
use super::status::{Checked, EngineState, Status};
use super::table::{Request, Sender};
use crate::base::{CLASS_DEFAULT, Limits, Policies, RequestId, SequenceId, TokenId, threefry2x32};
use crate::sched::{LimitsFixed, Tag};
use crate::text::StopMatcher;
use crate::trace::Asked;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::{mpsc, oneshot, watch};

/// A request on its way to the engine's thread.
pub(super) struct Submission {
    /// The sequence of the first choice; the others' follow.
    pub first: SequenceId,
    pub prompt: Vec<TokenId>,
    pub tag: Tag,
    /// One or more, with the same id.
    pub choices: Vec<Request>,
    /// Where requests are recorded.
    pub asked: Option<Box<Asked>>,
}

/// Words to the loop itself. Few and small, so their channel needs no bound.
#[derive(Debug)]
pub(super) enum Control {
    Cancel(RequestId),
    Check(oneshot::Sender<Checked>),
    Drain,
    Stop,
    /// Holds the loop between two steps, or lets it go on.
    Hold(bool),
    /// One step although it is held.
    StepOnce,
    Limits(Limits),
    Policies(Policies),
    /// (tenant, weight).
    Weight(u32, u32),
}

pub(super) struct Shared {
    pub card: Arc<ModelCard>,
    /// Those at the start.
    pub limits: Limits,
    pub capacity: Capacity,
    /// Of the model, without a salt.
    pub tag: Tag,
    pub seed: u64,
    pub output_buffer: usize,
    pub record_requests: bool,
    pub next: AtomicU32,
}

/// The engine as other threads see it. Cheap to clone.
#[derive(Clone)]
pub struct EngineHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) intake: mpsc::Sender<Submission>,
    pub(super) control: mpsc::UnboundedSender<Control>,
    pub(super) status: watch::Receiver<Status>,
}

impl EngineHandle {
    pub fn card(&self) -> &Arc<ModelCard> {
        &self.shared.card
    }

    /// The sizes the engine was started with.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Tokens that one sequence may have in all: the model's positions or the whole KV pool.
    pub fn sequence_tokens_max(&self) -> u32 {
        let pool = self.shared.limits.pool_tokens();
        u32::try_from(pool).unwrap_or(u32::MAX).min(self.shared.limits.context_max)
    }

    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Requests between arrival at the engine and their last output, after the last step.
    pub fn open(&self) -> u32 {
        self.status.borrow().open
    }

    /// The status as a channel that tells of every step.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Checks a request of one choice and hands it to the engine. Never waits.
    pub fn submit(&self, request: GenerateRequest) -> Result<Generation, SubmitError> {
        if request.n.is_some_and(|n| n > 1) {
            return Err(InvalidField::new("n", "must be 1: one choice per request").into());
        }
        let mut choices = self.submit_choices(request)?;
        choices.pop().ok_or(SubmitError::Empty)
    }

    /// The same with as many choices as the request asks for, in order. All are taken or none;
    /// each ends by itself.
    pub fn submit_choices(&self, request: GenerateRequest) -> Result<Vec<Generation>, SubmitError> {
        let (submission, generations) = self.prepare(request, false)?;
        self.send(submission)?;
        Ok(generations)
    }

    /// The same with nobody to answer: no text is made, and what comes of the request is in the
    /// trace alone. For simulations and benches.
    pub fn submit_quiet(&self, request: GenerateRequest) -> Result<RequestId, SubmitError> {
        let (submission, _) = self.prepare(request, true)?;
        let id = RequestId(submission.first.0);
        self.send(submission)?;
        Ok(id)
    }

    /// Checks a request and makes its choices, with the caller's ends unless it is `quiet`.
    fn prepare(
        &self,
        request: GenerateRequest,
        quiet: bool,
    ) -> Result<(Submission, Vec<Generation>), SubmitError> {
        self.check_state()?;
        let sampling = request.sampling(&self.shared.card)?;
        let prompt_tokens = self.check_length(request.prompt.len() as u64)?;
        let n = request.n.unwrap_or(1);
        let queue_max = self.status.borrow().limits.queue_max;
        if n > queue_max.max(1) {
            let message = format!("is {n}, more than the queue holds, which is {queue_max}");
            return Err(InvalidField::new("n", message).into());
        }
        let number = self.shared.next.fetch_add(n, Ordering::Relaxed);
        let mut generations = Vec::new();
        let mut choices = Vec::with_capacity(n as usize);
        for index in 0..n {
            let sender = if quiet {
                Sender::quiet()
            } else {
                let (sender, outputs) = Sender::new(self.shared.output_buffer);
                generations.push(Generation::new(RequestId(number), outputs));
                sender
            };
            choices.push(self.choice(&request, &sampling, prompt_tokens, (number, index), sender));
        }
        let tag = self.tag(request.cache_salt.as_deref());
        let asked = match self.shared.record_requests {
            true => choices.first().map(|first| Box::new(asked(&request, first, n))),
            false => None,
        };
        let (first, prompt) = (SequenceId(number), request.prompt);
        Ok((Submission { first, prompt, tag, choices, asked }, generations))
    }

    /// What prefix blocks of a request with this salt are kept under.
    pub(super) fn tag(&self, salt: Option<&str>) -> Tag {
        match salt {
            None => self.shared.tag.clone(),
            // The first part is the same for all, so no two pairs read alike.
            Some(salt) => format!("{}\0{salt}", self.shared.tag).into(),
        }
    }

    /// Choice `index` of request `number`.
    pub(super) fn choice(
        &self,
        request: &GenerateRequest,
        sampling: &Sampling,
        prompt_tokens: u32,
        (number, index): (u32, u32),
        sender: Sender,
    ) -> Request {
        let (stop_ids, ignored_ids) = self.end_ids(request);
        let room = self.sequence_tokens_max().saturating_sub(prompt_tokens);
        let seed = request.seed.unwrap_or_else(|| self.own_seed(number));
        Request {
            id: RequestId(number),
            sampling: sampling.clone(),
            seed: choice_seed(seed, index),
            prompt_tokens,
            max_new_tokens: match request.question {
                Some(Question::Pooled(_)) => 0,
                _ => request.max_tokens.unwrap_or(u32::MAX).min(room),
            },
            min_tokens: request.min_tokens.unwrap_or(0),
            stop_ids,
            ignored_ids,
            tenant: request.tenant.as_ref().map_or(0, |name| self.tenant(name)),
            class: request.priority.map_or(CLASS_DEFAULT, |class| class as u8),
            arrived: 0,
            timeout_ms: request.timeout_ms,
            produced: 0,
            drafts: Vec::new(),
            reach: Reach::default(),
            cached_tokens: 0,
            asked: request.question.map(|asked| Collected::new(asked, prompt_tokens)),
            guide: request.grammar.clone().map(Guided::start),
            shown: request.shown.clone(),
            text: self.shared.card.tokenizer.stream(),
            stops: StopMatcher::new(request.stop.clone()),
            sender,
        }
    }

    /// The ids that end a request, and the end ids that do not.
    fn end_ids(&self, request: &GenerateRequest) -> (Vec<TokenId>, Vec<TokenId>) {
        let own = self.shared.card.stop_ids.clone();
        let (mut stop_ids, mut ignored) =
            if request.ignore_eos { (Vec::new(), own) } else { (own, Vec::new()) };
        stop_ids.extend(&request.stop_token_ids);
        stop_ids.sort_unstable();
        stop_ids.dedup();
        ignored.retain(|id| !stop_ids.contains(id));
        (stop_ids, ignored)
    }

    fn check_state(&self) -> Result<(), SubmitError> {
        match &self.status.borrow().state {
            EngineState::Serving => Ok(()),
            EngineState::Draining | EngineState::Stopped => Err(SubmitError::Stopping),
            EngineState::Failed(why) => Err(SubmitError::Failed(why.to_string())),
        }
    }

    /// Checks every invariant of scheduler, block pool and prefix index between two steps; `None`
    /// when the engine has ended. Takes time in proportion to the pool.
    pub async fn check(&self) -> Option<Checked> {
        let (answer, checked) = oneshot::channel();
        self.tell(Control::Check(answer));
        checked.await.ok()
    }

    /// Ends a request, all its choices. Dropping its [`Generation`] does the same.
    pub fn cancel(&self, id: RequestId) {
        self.tell(Control::Cancel(id));
    }

    /// No more requests; the engine ends when the open ones have.
    pub fn drain(&self) {
        self.tell(Control::Drain);
    }

    /// Ends every open request and the engine.
    pub fn stop(&self) {
        self.tell(Control::Stop);
    }

    /// Holds the engine between two steps, or lets it go on. Requests still arrive and wait.
    pub fn hold(&self, hold: bool) {
        self.tell(Control::Hold(hold));
    }

    /// Lets a held engine do exactly one step.
    pub fn step_once(&self) {
        self.tell(Control::StepOnce);
    }

    /// Changes limits from the next step on. What the pool and the device fix cannot change.
    pub fn set_limits(&self, limits: Limits) -> Result<(), SettingError> {
        LimitsFixed::check(&self.shared.limits, &limits)?;
        let Capacity { tokens, sequences, .. } = self.shared.capacity;
        for (field, asked, most) in [
            ("step_tokens_max", limits.step_tokens_max, tokens),
            ("sequences_max", limits.sequences_max, sequences),
        ] {
            if asked == 0 || asked > most {
                return Err(SettingError::Range { field, asked, most });
            }
        }
        limits.check()?;
        self.tell(Control::Limits(limits));
        Ok(())
    }

    /// Changes policies from the next step on; whoever waits or runs is placed anew.
    pub fn set_policies(&self, policies: Policies) -> Result<(), SettingError> {
        policies.check()?;
        self.tell(Control::Policies(policies));
        Ok(())
    }

    /// A tenant's share under fair queueing, relative to 1.
    pub fn set_weight(&self, tenant: &str, weight: u32) {
        self.tell(Control::Weight(self.tenant(tenant), weight));
    }

    /// The number under which a tenant is known: a hash that depends on the engine's seed, so that
    /// nobody can choose a name that shares another's counter. 0 is nobody in particular.
    pub fn tenant(&self, name: &str) -> u32 {
        let key = self.shared.seed;
        let start = [key as u32, (key >> 32) as u32];
        let mix =
            |hash: [u32; 2], byte: &u8| threefry2x32(start, [hash[0], hash[1] ^ u32::from(*byte)]);
        name.as_bytes().iter().fold([name.len() as u32, 0], mix)[0].max(1)
    }

    fn tell(&self, word: Control) {
        // An engine that has ended has nothing left to cancel or stop.
        let _ = self.control.send(word);
    }

    fn send(&self, submission: Submission) -> Result<(), SubmitError> {
        self.intake.try_send(submission).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                // As many as the way in holds, and those that the scheduler has.
                let arriving = u32::try_from(self.intake.max_capacity()).unwrap_or(u32::MAX);
                let status = self.status.borrow();
                let waiting = status.waiting.saturating_add(arriving);
                let (max, retry_seconds) = (status.limits.queue_max, status.retry_seconds);
                SubmitError::QueueFull { waiting, max, retry_seconds }
            }
            mpsc::error::TrySendError::Closed(_) => match &self.status.borrow().state {
                EngineState::Failed(why) => SubmitError::Failed(why.to_string()),
                _ => SubmitError::Stopping,
            },
        })
    }

    fn check_length(&self, prompt: u64) -> Result<u32, SubmitError> {
        let limits = &self.shared.limits;
        if prompt == 0 {
            return Err(SubmitError::Empty);
        }
        if prompt >= u64::from(limits.context_max) {
            return Err(SubmitError::BeyondContext { prompt, limit: limits.context_max });
        }
        if prompt >= limits.pool_tokens() {
            return Err(SubmitError::BeyondPool { prompt, limit: limits.pool_tokens() });
        }
        u32::try_from(prompt).map_err(|_| InvalidField::new("prompt", "is too long").into())
    }

    /// A seed for a request that brought none.
    fn own_seed(&self, number: u32) -> u64 {
        let key = self.shared.seed;
        let word = threefry2x32([key as u32, (key >> 32) as u32], [number, 1]);
        u64::from(word[0]) | u64::from(word[1]) << 32
    }
}
