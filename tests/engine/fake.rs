//! A runner without a model, for tests of engine and server. It keeps the tokens it is given in
//! pages, as a device keeps keys and values, and reads a sequence back through its block table:
//! a wrong table or position shows as a wrong history. The next token is a function of that
//! history alone. Faults are switched on from outside. A step that is launched is computed at once,
//! and its answers come late.

use crate::support::{root, steps_in_flight};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Poll;
use tilewright::base::{Clock, Limits, ManualClock, TokenId};
use tilewright::engine::{
    Capacity, Engine, EngineConfig, EngineHandle, KernelTime, ModelCard, NextIds, Probe, Probed,
    RunError, RunFuture, Runner, SampleInput, Sampled, SamplingDefaults, StepInput, StepOutput,
    StepRow, SwapFuture, TokenLogprobs, Wanted,
};
use tilewright::sched::BlockSwap;
use tilewright::text::{Tokenizer, TokenizerExtra};

/// Fable's end of a turn.
pub const END: TokenId = 2;

/// The next token after `history`, the first `prompt` of which are the prompt.
pub type Answer = Box<dyn Fn(&[TokenId], usize) -> TokenId + Send + Sync>;

/// What a test may turn while the runner runs.
pub struct Knobs {
    answer: Answer,
    /// The device is lost when this step comes: a launched one is only known to be when it lands.
    pub lost_at: AtomicU64,
    /// The device takes no more steps from this one on.
    pub refused_at: AtomicU64,
    /// The device is lost when blocks are moved.
    pub lost_in_swap: AtomicBool,
    /// The thread panics when this step comes.
    pub panic_at: AtomicU64,
    /// Rows whose history holds this id have logits that are not finite.
    pub poison: AtomicU64,
    /// Steps seen.
    pub steps: AtomicU64,
    /// The most that were in the air at once.
    pub in_the_air: AtomicU64,
    gate: Mutex<Gate>,
    turned: Condvar,
}

struct Gate {
    /// Steps that may pass before the runner waits.
    pass: u64,
    /// The runner waits now.
    held: bool,
}

impl Knobs {
    fn new(answer: Answer) -> Self {
        Self {
            answer,
            lost_at: AtomicU64::new(u64::MAX),
            refused_at: AtomicU64::new(u64::MAX),
            lost_in_swap: AtomicBool::new(false),
            panic_at: AtomicU64::new(u64::MAX),
            poison: AtomicU64::new(u64::MAX),
            steps: AtomicU64::new(0),
            in_the_air: AtomicU64::new(0),
            gate: Mutex::new(Gate { pass: u64::MAX, held: false }),
            turned: Condvar::new(),
        }
    }

    /// Lets `steps` more steps pass, then none. `u64::MAX` lets all pass.
    #[cfg(feature = "server")]
    pub fn pass(&self, steps: u64) {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).pass = steps;
        self.turned.notify_all();
    }

    /// Waits until the runner stands at the gate.
    #[cfg(feature = "server")]
    pub fn until_held(&self) {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let stands = |gate: &mut Gate| !(gate.held && gate.pass == 0);
        drop(self.turned.wait_while(gate, stands).unwrap_or_else(PoisonError::into_inner));
    }

    fn wait(&self) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.held = true;
        self.turned.notify_all();
        let mut gate = self
            .turned
            .wait_while(gate, |gate| gate.pass == 0)
            .unwrap_or_else(PoisonError::into_inner);
        gate.held = false;
        if gate.pass != u64::MAX {
            gate.pass -= 1;
        }
    }
}

/// Says `script` after any prompt, then end tokens.
pub fn script(script: Vec<TokenId>) -> Answer {
    Box::new(move |history, prompt| script.get(history.len() - prompt).copied().unwrap_or(END))
}

/// Some token that depends on every token before it, never an end token.
pub fn hashed() -> Answer {
    Box::new(|history, _| {
        let hash = history.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, &t| {
            (h ^ u64::from(t)).wrapping_mul(0x100_0000_01b3)
        });
        300 + ((hash >> 20) % 1000) as TokenId
    })
}

/// Some token of three that depends on the three before it: it soon repeats itself, now and then
/// otherwise than the last time.
pub fn looping() -> Answer {
    Box::new(|history, _| {
        let last = &history[history.len().saturating_sub(3)..];
        let turn = history.len() as u32 / 24;
        let hash = last.iter().fold(7 + turn, |h, &t| (h ^ t).wrapping_mul(0x9E37_79B1));
        300 + (hash >> 13) % 3
    })
}

/// `token` if the mask allows it; else one of those it does, the end before others now and then:
/// a function of the history alone.
fn held(token: TokenId, mask: &[u32], history: &[TokenId]) -> TokenId {
    let allowed = |id: TokenId| mask[id as usize / 32] >> (id % 32) & 1 == 1;
    let hash = history.iter().fold(7u64, |h, &t| (h ^ u64::from(t)).wrapping_mul(0x100_0000_01b3));
    let all: Vec<TokenId> = (0..1551).filter(|id| allowed(*id)).collect();
    match all.contains(&END) && hash >> 20 & 1 == 0 {
        _ if allowed(token) => token,
        true => END,
        false => all[(hash >> 24) as usize % all.len()],
    }
}

pub struct FakeRunner {
    knobs: Arc<Knobs>,
    block_size: usize,
    pages: Vec<TokenId>,
    /// What host blocks hold.
    host: BTreeMap<u32, Vec<TokenId>>,
    /// What comes of the steps in the air.
    flights: VecDeque<Result<StepOutput, RunError>>,
    /// The tokens that the last step chose.
    chosen: Vec<TokenId>,
}

impl FakeRunner {
    fn answer(&self, row: &StepRow<'_>, sample: &SampleInput<'_>) -> Sampled {
        let read = |at: usize| {
            let block = row.blocks[at / self.block_size].index();
            self.pages[block * self.block_size + at % self.block_size]
        };
        let history: Vec<_> = (0..sample.position as usize).map(read).collect();
        let chosen = row.chosen.map(|at| self.chosen[at as usize]);
        let sequence = [sample.history, chosen.as_slice(), sample.drafts].concat();
        assert_eq!(history, sequence, "the cache holds what the sequence holds");
        assert!(sample.drafts.is_empty() || sample.banned.is_empty(), "a choice of its own kind");
        let mut token = (self.knobs.answer)(&history, sample.prompt_len as usize);
        if let Some(strong) = sample.sampling.logit_bias.iter().find(|b| b.1 == 100.0) {
            token = strong.0;
        }
        while sample.banned.contains(&token) {
            token += 1;
        }
        if let Some(mask) = sample.guide.and_then(NextIds::mask) {
            token = held(token, &mask, &history);
        }
        let mut sampled = Sampled::new(token);
        let poison = self.knobs.poison.load(Ordering::SeqCst);
        sampled.finite = !history.iter().any(|&id| u64::from(id) == poison);
        if let Some(count) = sample.sampling.logprobs {
            let top = |rank: u32| (300 + (token + rank) % 1000, -0.5 - rank as f32);
            let top = std::iter::once((token, -0.5)).chain((1..).map(top));
            let top = top.take(count as usize).collect();
            sampled.logprobs = Some(TokenLogprobs { chosen: -0.5, top });
        }
        sampled
    }
}

impl FakeRunner {
    /// The history up to each asked token, told as numbers: what a score or a state depends on.
    fn probe(&self, row: &StepRow<'_>, probe: &Probe<'_>) -> Probed {
        let read = |at: usize| {
            let block = row.blocks[at / self.block_size].index();
            self.pages[block * self.block_size + at % self.block_size]
        };
        let sum = |i: u32| (0..=(row.start + i) as usize).map(|at| read(at) as f32).sum::<f32>();
        let asked = probe.first..probe.first + probe.count;
        match probe.wanted {
            Wanted::Logprobs { next, top } => {
                let one = |(i, &id): (u32, &TokenId)| {
                    let chosen = -sum(i) / 1024.0 - id as f32;
                    let top = (0..top).map(|rank| (300 + rank, chosen - rank as f32)).collect();
                    TokenLogprobs { chosen, top }
                };
                Probed::Logprobs(asked.zip(next).map(one).collect())
            }
            Wanted::Hidden => Probed::Hidden(asked.map(|i| vec![sum(i), 1.0, -0.25]).collect()),
        }
    }
}

impl FakeRunner {
    fn compute(&mut self, input: StepInput<'_>) -> Result<StepOutput, RunError> {
        self.knobs.steps.store(input.step, Ordering::SeqCst);
        if input.step >= self.knobs.panic_at.load(Ordering::SeqCst) {
            panic!("planted");
        }
        if input.step >= self.knobs.lost_at.load(Ordering::SeqCst) {
            return Err(RunError::DeviceLost("planted".to_string()));
        }
        let scratch = self.pages.len() / self.block_size - 1;
        for copy in input.copies {
            let at = |block: usize| block * self.block_size;
            let from = at(copy.from.index());
            self.pages.copy_within(from..from + self.block_size, at(copy.to.index()));
        }
        for row in input.rows {
            let padded = row.blocks.iter().all(|b| b.index() == scratch);
            assert_eq!(row.pad, padded, "padding, and nothing else, is in the scratch block");
            assert!(!row.pad || row.sample.is_none(), "padding is never sampled");
            assert!(row.chosen.is_none() || row.tokens.len() == 1, "one token is not known");
            let chosen = row.chosen.map(|at| self.chosen[at as usize]);
            let tokens = chosen.as_ref().map_or(row.tokens, std::slice::from_ref);
            for (at, &token) in (row.start as usize..).zip(tokens) {
                let block = row.blocks[at / self.block_size].index();
                self.pages[block * self.block_size + at % self.block_size] = token;
            }
        }
        let sampled: Vec<_> = input.sampling().map(|(row, s)| self.answer(row, &s)).collect();
        self.chosen = sampled.iter().map(|answer| answer.token).collect();
        let probed = input.probing().map(|(row, probe)| self.probe(row, probe)).collect();
        let launches = input.rows.len() as u32;
        let kernels = vec![KernelTime { kernel: "fake", launches, nanos: 7 }];
        Ok(StepOutput { sampled, probed, kernels })
    }
}

impl Runner for FakeRunner {
    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        self.knobs.wait();
        Box::pin(std::future::ready(self.compute(input)))
    }

    fn launch(&mut self, input: StepInput<'_>) -> Result<(), RunError> {
        if input.step >= self.knobs.refused_at.load(Ordering::SeqCst) {
            return Err(RunError::Device("refused".to_string()));
        }
        let output = self.compute(input);
        self.flights.push_back(output);
        let count = self.flights.len() as u64;
        assert!(count <= 2, "{count} steps in the air");
        self.knobs.in_the_air.fetch_max(count, Ordering::SeqCst);
        Ok(())
    }

    /// What waits at the gate is the device: a step is handed over at once.
    fn land<'a>(&'a mut self) -> RunFuture<'a> {
        self.knobs.wait();
        let mut looks = 0;
        Box::pin(std::future::poll_fn(move |context| {
            looks += 1;
            if looks < 3 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(self.flights.pop_front().expect("a step in the air"))
        }))
    }

    fn capacity(&self) -> Capacity {
        Capacity { tokens: u32::MAX, sequences: u32::MAX, flights: 2 }
    }

    fn swap<'a>(&'a mut self, out: &'a [BlockSwap], back: &'a [BlockSwap]) -> SwapFuture<'a> {
        if self.knobs.lost_in_swap.load(Ordering::SeqCst) {
            let lost = RunError::DeviceLost("planted".to_string());
            return Box::pin(std::future::ready(Err(lost)));
        }
        let size = self.block_size;
        for swap in out {
            let at = swap.block.index() * size;
            self.host.insert(swap.host, self.pages[at..at + size].to_vec());
        }
        for swap in back {
            let at = swap.block.index() * size;
            self.pages[at..at + size].copy_from_slice(&self.host[&swap.host]);
        }
        Box::pin(std::future::ready(Ok(4 * size as u64)))
    }
}

/// Fable's text side, without its weights.
pub fn card() -> ModelCard {
    let file = |name: &str| {
        let path = root().join("assets/fable").join(name);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let extra = TokenizerExtra::from_config(Some(&file("tokenizer_config.json"))).unwrap();
    let tokenizer = Arc::new(Tokenizer::from_json(&file("tokenizer.json"), extra).unwrap());
    let template = String::from_utf8(file("chat_template.jinja")).unwrap();
    ModelCard {
        name: "fable".to_string(),
        template: Some(tokenizer.template(&template).unwrap()),
        defaults: SamplingDefaults { temperature: Some(0.0), ..SamplingDefaults::default() },
        stop_ids: vec![0, END],
        logit_rows: 1551,
        tuned: 0,
        invariance: Default::default(),
        products: Default::default(),
        tokenizer,
    }
}

pub fn ids(text: &str) -> Vec<TokenId> {
    card().tokenizer.encode(text).unwrap()
}

/// An engine over the fake runner, its knobs and its clock.
pub struct World {
    pub engine: Engine<FakeRunner>,
    pub handle: EngineHandle,
    pub knobs: Arc<Knobs>,
    pub clock: Arc<ManualClock>,
}

pub fn limits() -> Limits {
    Limits { step_tokens_max: 64, blocks: 256, sequences_max: 8, ..Limits::default() }
}

pub fn config(limits: Limits, clock: &Arc<ManualClock>) -> EngineConfig {
    let mut config = EngineConfig::new(limits, clock.clone() as Arc<dyn Clock>);
    config.steps_in_flight = steps_in_flight();
    config
}

impl World {
    pub fn new(limits: Limits, answer: Answer) -> Self {
        Self::with(limits, answer, |_| {})
    }

    pub fn with(limits: Limits, answer: Answer, change: impl FnOnce(&mut EngineConfig)) -> Self {
        let clock = Arc::new(ManualClock::default());
        let mut config = config(limits, &clock);
        change(&mut config);
        let (engine, knobs) = engine(card(), config, answer);
        Self { handle: engine.handle(), engine, knobs, clock }
    }

    /// Steps until nothing is open.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.step() != tilewright::engine::Stepped::Ran {
                return;
            }
        }
        panic!("requests are still open after 100,000 steps: {:?}", self.handle.status());
    }

    pub fn step(&mut self) -> tilewright::engine::Stepped {
        let stepped = pollster::block_on(self.engine.step());
        self.engine.scheduler().check().expect("the scheduler's invariants");
        stepped
    }
}

pub fn engine(
    card: ModelCard,
    config: EngineConfig,
    answer: Answer,
) -> (Engine<FakeRunner>, Arc<Knobs>) {
    let (runner, knobs) = runner(&config.limits, answer);
    (Engine::new(runner, card, config), knobs)
}

pub fn runner(limits: &Limits, answer: Answer) -> (FakeRunner, Arc<Knobs>) {
    let knobs = Arc::new(Knobs::new(answer));
    let block_size = limits.block_size as usize;
    // One block beyond the pool: scratch, for padding.
    let pages = vec![TokenId::MAX; (limits.blocks as usize + 1) * block_size];
    let (host, flights, chosen) = (BTreeMap::new(), VecDeque::new(), Vec::new());
    (FakeRunner { knobs: knobs.clone(), block_size, pages, host, flights, chosen }, knobs)
}
