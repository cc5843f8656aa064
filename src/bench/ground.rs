//! Where a claim is run: on a real engine and device, or on the simulator, with the same scheduler,
//! the same loop and the same arrivals.

use super::claim::ClaimError;
use crate::base::{Clock, KvType, Limits, MonotonicClock, Policies};
use crate::engine::{
    DeviceRunner, Engine, EngineConfig, Loaded, ModelCard, RunFuture, Runner, StepInput, SwapFuture,
};
use crate::sched::BlockSwap;
use crate::sim::{Arrival, Cost, Roofline, Setup, drive, request, simulate};
use crate::trace::{Measures, Sink, Slo, Stamped, Summary, Work};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What is run.
#[derive(Clone)]
pub struct Load {
    pub arrivals: Vec<Arrival>,
    pub limits: Limits,
    pub policies: Policies,
    /// Requests open at once at most.
    pub concurrency: Option<u32>,
    pub slo: Slo,
}

/// What came of it.
pub struct Seen {
    pub summary: Summary,
    pub events: Vec<Stamped>,
}

/// A loaded model, whose engines come one after the other.
pub struct Real {
    runner: Shared,
    card: ModelCard,
    limits: Limits,
    measured: Vec<(Work, u64)>,
    block_picos: u64,
}

#[derive(Clone)]
struct Shared(Rc<RefCell<DeviceRunner>>);

impl Runner for Shared {
    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        // One engine runs at a time, on this thread.
        let output = pollster::block_on(self.0.borrow_mut().run(input));
        Box::pin(std::future::ready(output))
    }

    fn swap<'a>(&'a mut self, out: &'a [BlockSwap], back: &'a [BlockSwap]) -> SwapFuture<'a> {
        let bytes = pollster::block_on(self.0.borrow_mut().swap(out, back));
        Box::pin(std::future::ready(bytes))
    }
}

/// The simulator or a device.
pub enum Ground {
    Sim { name: &'static str, cost: Cost, block_picos: u64, limits: Limits },
    Real(Box<Real>),
}

impl Ground {
    /// An H100 with 8 billion weights.
    pub fn h100() -> Self {
        let limits = Limits {
            sequences_max: 256,
            step_tokens_max: 2048,
            context_max: 8192,
            blocks: Roofline::H100_8B.blocks(80e9, 16),
            queue_max: 1 << 20,
            ..Limits::default()
        };
        let roofline = Roofline::H100_8B;
        Self::Sim {
            name: "h100-8b, simulated",
            cost: Cost::Roofline(roofline),
            block_picos: roofline.block_picos(limits.block_size),
            limits,
        }
    }

    pub fn real(loaded: Loaded) -> Self {
        let Loaded { runner, card, mut limits, measured, block_picos, .. } = loaded;
        limits.queue_max = 1 << 20;
        let runner = Shared(Rc::new(RefCell::new(runner)));
        Self::Real(Box::new(Real { runner, card, limits, measured, block_picos }))
    }

    /// The same simulated device with another link to host memory, in bytes a second.
    pub fn with_link(&self, link: f64) -> Option<Self> {
        let Self::Sim { name, cost: Cost::Roofline(roofline), limits, .. } = *self else {
            return None;
        };
        let roofline = Roofline { link, ..roofline };
        let block_picos = roofline.block_picos(limits.block_size);
        Some(Self::Sim { name, cost: Cost::Roofline(roofline), block_picos, limits })
    }

    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// For people.
    pub fn name(&self) -> String {
        match self {
            Self::Sim { name, .. } => (*name).to_string(),
            Self::Real(real) => {
                let runner = real.runner.0.borrow();
                format!("{} on {}", real.card.name, runner.facts().name)
            }
        }
    }

    /// The most that a run may have.
    pub fn limits(&self) -> Limits {
        match self {
            Self::Sim { limits, .. } => *limits,
            Self::Real(real) => real.limits,
        }
    }

    /// How keys and values are stored; `None` where nothing is.
    pub fn kv(&self) -> Option<KvType> {
        match self {
            Self::Sim { .. } => None,
            Self::Real(real) => Some(real.runner.0.borrow().kv()),
        }
    }

    /// Runs a load to its end. Times are those of the ground's own clock.
    pub fn run(&self, load: Load) -> Result<Seen, ClaimError> {
        let events: Arc<Mutex<Vec<Stamped>>> = Arc::default();
        let sinks: Vec<Box<dyn Sink>> = vec![Box::new(events.clone())];
        let Load { arrivals, limits, policies, concurrency, slo } = load;
        match self {
            Self::Sim { cost, block_picos, .. } => {
                let (cost, block_picos, weights) = (*cost, *block_picos, Vec::new());
                let setup =
                    Setup { limits, policies, weights, cost, block_picos, concurrency, sinks };
                simulate(arrivals, setup)?;
            }
            Self::Real(real) => {
                let limits = real.within(limits);
                let clock = Arc::new(MonotonicClock::default());
                let mut config = EngineConfig::new(limits, clock.clone());
                (config.policies, config.sinks) = (policies, sinks);
                config.measured = real.measured.clone();
                config.block_picos = real.block_picos;
                let mut engine = Engine::new(real.runner.clone(), real.card(), config);
                let pass = |until: u64| {
                    let left = until.saturating_sub(clock.now_micros());
                    std::thread::sleep(Duration::from_micros(left));
                };
                let vocabulary = real.card.logit_rows;
                let request = |_, arrival: Arrival| real.request(&arrival, vocabulary);
                drive(&mut engine, arrivals, concurrency, clock.as_ref(), pass, request)?;
            }
        }
        let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
        let mut measures = Measures::new(slo);
        events.iter().for_each(|event| measures.push(event));
        Ok(Seen { summary: measures.summary(), events })
    }
}

impl Real {
    /// What of `limits` the runner was made for: it has no buffers for more.
    fn within(&self, limits: Limits) -> Limits {
        let most = &self.limits;
        Limits {
            sequences_max: limits.sequences_max.min(most.sequences_max),
            step_tokens_max: limits.step_tokens_max.min(most.step_tokens_max),
            context_max: limits.context_max.min(most.context_max),
            blocks: limits.blocks.min(most.blocks),
            ..limits
        }
    }

    fn request(&self, arrival: &Arrival, vocabulary: u32) -> crate::engine::GenerateRequest {
        let mut request = request(arrival, vocabulary);
        // As many tokens as the workload says, whatever the model would say.
        request.ignore_eos = true;
        request
    }

    fn card(&self) -> ModelCard {
        ModelCard {
            name: self.card.name.clone(),
            tokenizer: self.card.tokenizer.clone(),
            template: None,
            defaults: self.card.defaults,
            stop_ids: self.card.stop_ids.clone(),
            logit_rows: self.card.logit_rows,
            tuned: self.card.tuned,
            invariance: self.card.invariance,
            products: self.card.products.clone(),
        }
    }
}
