//! The real engine over a real device, run to the end on the caller's thread, again and again
//! with other limits on the same loaded model.

use super::steps_in_flight;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use tilewright::base::{Clock, Limits, MonotonicClock};
use tilewright::engine::{
    Capacity, Completion, DeviceRunner, Engine, EngineConfig, EngineState, GenerateError,
    GenerateRequest, LoadError, LoadOptions, ModelCard, RunError, RunFuture, Runner, Sizes,
    StepInput, Stepped, SwapFuture, load,
};
use tilewright::record::Device;
use tilewright::sched::BlockSwap;
use tilewright::trace::{Event, RingSink};
use tilewright::weights::Weights;

/// A loaded model and what engines over it are made of.
pub struct World {
    runner: SharedRunner,
    card: ModelCard,
    pub limits: Limits,
}

/// What came of some requests.
#[derive(Default)]
pub struct Outcome {
    pub answers: Vec<Result<Completion, GenerateError>>,
    pub preempted: usize,
    /// Steps that held a decode row and a piece of a prompt.
    pub mixed: usize,
    /// Rows that sampled, and rows of padding that were of one position.
    pub sampled: usize,
    pub padded: usize,
    /// Hits in the prefix cache, and blocks copied.
    pub matched: usize,
    pub copied: usize,
    /// Blocks brought back from host memory.
    pub swapped: u32,
    /// Steps that were planned while the one before was in the air, and rows of them that counted
    /// for nothing.
    pub ahead: usize,
    pub discarded: usize,
    pub state: EngineState,
}

impl Outcome {
    /// The answers, all of which must be there.
    #[track_caller]
    pub fn all(self) -> Vec<Completion> {
        self.answers.into_iter().map(|a| a.unwrap_or_else(|e| panic!("{e}"))).collect()
    }
}

impl Outcome {
    /// `kinds` counts rows that decode, and pieces of prompts, of the step under way.
    fn count(&mut self, event: &Event, kinds: &mut (usize, usize)) {
        match event {
            Event::SequencePreempted { .. } => self.preempted += 1,
            Event::PrefixMatched { .. } => self.matched += 1,
            Event::BlockCopied { .. } => self.copied += 1,
            Event::TokenSampled { .. } => self.sampled += 1,
            Event::BlocksSwapped { back, .. } => self.swapped += back,
            Event::StepAhead { .. } => self.ahead += 1,
            Event::RowDiscarded { .. } => self.discarded += 1,
            Event::RowPadded { len: 1, .. } => self.padded += 1,
            Event::RowPlanned { len: 1, .. } => kinds.0 += 1,
            Event::RowPlanned { .. } => kinds.1 += 1,
            Event::StepRan { .. } => {
                self.mixed += usize::from(kinds.0 > 0 && kinds.1 > 0);
                *kinds = (0, 0);
            }
            _ => {}
        }
    }
}

#[derive(Clone)]
struct SharedRunner(Rc<RefCell<DeviceRunner>>);

impl Runner for SharedRunner {
    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        let sampled = pollster::block_on(self.0.borrow_mut().run(input));
        Box::pin(std::future::ready(sampled))
    }

    fn launch(&mut self, input: StepInput<'_>) -> Result<(), RunError> {
        self.0.borrow_mut().launch(input)
    }

    fn land<'a>(&'a mut self) -> RunFuture<'a> {
        let output = pollster::block_on(self.0.borrow_mut().land());
        Box::pin(std::future::ready(output))
    }

    fn capacity(&self) -> Capacity {
        self.0.borrow().capacity()
    }

    fn swap<'a>(&'a mut self, out: &'a [BlockSwap], back: &'a [BlockSwap]) -> SwapFuture<'a> {
        let bytes = pollster::block_on(self.0.borrow_mut().swap(out, back));
        Box::pin(std::future::ready(bytes))
    }
}

impl World {
    pub fn open(
        weights: &Weights,
        device: Box<dyn Device>,
        options: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let sizes = Sizes::choose(weights, device.facts(), options)?;
        let clock = MonotonicClock::default();
        let loaded = load(weights, device, &sizes, options, &clock, &mut |_, _| {})?;
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let runner = SharedRunner(Rc::new(RefCell::new(loaded.runner)));
        Ok(Self { runner, card: loaded.card, limits: loaded.limits })
    }

    fn card(&self) -> ModelCard {
        let card = &self.card;
        ModelCard {
            name: card.name.clone(),
            tokenizer: card.tokenizer.clone(),
            template: None,
            defaults: card.defaults,
            stop_ids: card.stop_ids.clone(),
            logit_rows: card.logit_rows,
            tuned: 0,
            invariance: card.invariance,
            products: Default::default(),
        }
    }

    /// Runs `requests`, all there from the start, until nothing is open. The answers are those of
    /// the first request's choices, then the second's, and so on.
    pub fn run(&self, limits: Limits, requests: &[GenerateRequest]) -> Outcome {
        self.run_with(limits, requests, |_| {})
    }

    /// The same with more of the engine changed.
    pub fn run_with(
        &self,
        limits: Limits,
        requests: &[GenerateRequest],
        change: impl FnOnce(&mut EngineConfig),
    ) -> Outcome {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let mut config = EngineConfig::new(limits, clock);
        config.steps_in_flight = steps_in_flight();
        let events = Arc::new(Mutex::new(RingSink::new(1 << 16)));
        config.sinks.push(Box::new(events.clone()));
        change(&mut config);
        let mut engine = Engine::new(self.runner.clone(), self.card(), config);
        let handle = engine.handle();
        let mut open = Vec::new();
        for request in requests {
            match handle.submit_choices(request.clone()) {
                Ok(choices) => open.extend(choices.into_iter().map(Ok)),
                Err(refusal) => open.push(Err(refusal)),
            }
        }
        while pollster::block_on(engine.step()) == Stepped::Ran {}
        let collect = |submitted: Result<_, _>| match submitted {
            Ok(generation) => {
                pollster::block_on(tilewright::engine::Generation::collect(generation))
            }
            Err(refusal) => Err(GenerateError::Refused(refusal)),
        };
        let answers = open.into_iter().map(collect).collect();
        let status = handle.status();
        assert_eq!((status.open, status.blocks_used), (0, 0), "nothing leaks: {status:?}");
        engine.scheduler().check().unwrap_or_else(|e| panic!("{e}"));
        let events = events.lock().expect("events");
        assert_eq!(events.dropped(), 0);
        let mut outcome = Outcome { answers, state: status.state, ..Outcome::default() };
        let mut kinds = (0, 0);
        events.events().for_each(|stamped| outcome.count(&stamped.event, &mut kinds));
        outcome
    }
}
