//! A recorded run, run again: the same decisions and tokens, whatever happened in it; and the first
//! step that comes out otherwise is named.

use super::fake::{self, Answer, FakeRunner, hashed, looping};
use crate::support::{Rows, steps_in_flight};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use tilewright::base::{
    Batching, Clock, FairUnit, Limits, ManualClock, MonotonicClock, Order, Policies, Preemption,
    Prefill, Speculate, TokenId,
};
use tilewright::engine::{
    Capacity, Engine, EngineConfig, GenerateRequest, Known, ModelCard, Question, ReplayError,
    Replayed, RunError, RunFuture, Runner, SamplingDefaults, StepInput, Stepped, SwapFuture,
    replay,
};
use tilewright::sched::BlockSwap;
use tilewright::text::Tokenizer;
use tilewright::trace::{Event, FinishReason, PreemptReason, Stamped};

pub fn rows(rows: &mut Rows) {
    rows.add("engine::replay_is_exact", exact);
    rows.add("engine::replay_is_exact_on_a_real_clock", real_clock);
    rows.add("engine::replay_is_exact_with_guesses", with_guesses);
    rows.add("engine::replay_is_exact_with_two_in_flight", two_in_flight);
    rows.add("engine::replay_is_exact_where_a_request_follows_moved_blocks", after_moves);
    rows.add("engine::replay_names_the_first_step_that_differs", first_difference);
    rows.add("engine::replay_of_a_cut_recording", cut_off);
    rows.add("engine::recordings_without_prompts_are_refused", refused);
}

/// Fable's text side, its tokenizer read once.
fn card() -> ModelCard {
    static TOKENIZER: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    let tokenizer = TOKENIZER.get_or_init(|| fake::card().tokenizer).clone();
    ModelCard {
        name: "fable".to_string(),
        template: None,
        defaults: SamplingDefaults::default(),
        stop_ids: vec![0, fake::END],
        logit_rows: 1551,
        tuned: 0,
        invariance: Default::default(),
        products: Default::default(),
        tokenizer,
    }
}

/// Takes some time for every row.
struct Slow {
    inner: FakeRunner,
    clock: Arc<ManualClock>,
    /// Of the steps in the air.
    flights: VecDeque<u64>,
}

impl Slow {
    fn new(inner: FakeRunner, clock: &Arc<ManualClock>) -> Self {
        Self { inner, clock: clock.clone(), flights: VecDeque::new() }
    }

    fn micros(input: StepInput<'_>) -> u64 {
        let tokens: usize = input.rows.iter().map(|row| row.tokens.len()).sum();
        500 + 37 * tokens as u64
    }
}

impl Runner for Slow {
    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        self.clock.advance(Self::micros(input));
        self.inner.run(input)
    }

    fn launch(&mut self, input: StepInput<'_>) -> Result<(), RunError> {
        self.clock.advance(11);
        self.flights.push_back(Self::micros(input));
        self.inner.launch(input)
    }

    fn land<'a>(&'a mut self) -> RunFuture<'a> {
        self.clock.advance(self.flights.pop_front().expect("a step in the air"));
        self.inner.land()
    }

    fn capacity(&self) -> Capacity {
        self.inner.capacity()
    }

    fn swap<'a>(&'a mut self, out: &'a [BlockSwap], back: &'a [BlockSwap]) -> SwapFuture<'a> {
        self.clock.advance(7 + 3 * (out.len() + back.len()) as u64);
        self.inner.swap(out, back)
    }
}

fn limits() -> Limits {
    Limits {
        step_tokens_max: 40,
        blocks: 8,
        sequences_max: 6,
        queue_max: 9,
        host_blocks: 6,
        ..Limits::default()
    }
}

fn requests() -> Vec<GenerateRequest> {
    let words = "one two three four five six seven eight nine ten ".repeat(4);
    let words = card().tokenizer.encode(&words).unwrap();
    let some = |n: usize, prompt: usize, max_tokens: u32| GenerateRequest {
        prompt: words[n..n + prompt].to_vec(),
        max_tokens: Some(max_tokens),
        seed: Some(n as u64),
        tenant: Some(format!("tenant {}", n % 2)),
        priority: Some(n as u32 % 4),
        ..GenerateRequest::default()
    };
    let mut all: Vec<_> = (0..8).map(|n| some(n, 5 + 2 * n % 9, 20 + n as u32)).collect();
    all[1].n = Some(3);
    all[2].stop = vec!["a".to_string()];
    all[3].question = Some(Question::Logprobs(2));
    all[3].logprobs = Some(1);
    all[4].cache_salt = Some("salt".to_string());
    all[5].logit_bias = vec![(700, 100.0)];
    all[6].min_tokens = Some(18);
    all[7].stop_token_ids = vec![700];
    all
}

/// Everything that may come in between: cancellations, readers that leave, changed settings, a full
/// queue, forced preemptions and those of a small pool.
fn record(
    clock: Arc<dyn Clock>,
    runner: impl Runner,
    policies: Policies,
    turn: impl Fn(u64),
) -> Vec<Stamped> {
    record_with(clock, runner, policies, turn, 1024)
}

/// The same with a bound on what a caller leaves unread.
fn record_with(
    clock: Arc<dyn Clock>,
    runner: impl Runner,
    policies: Policies,
    turn: impl Fn(u64),
    unread: usize,
) -> Vec<Stamped> {
    let config = |config: &mut EngineConfig| {
        (config.policies, config.output_buffer) = (policies, unread);
        config.steps_in_flight = steps_in_flight();
    };
    record_as(clock, runner, config, &requests(), 3, turn)
}

/// The same with more of the engine changed, other requests, and so many steps after each.
fn record_as(
    clock: Arc<dyn Clock>,
    runner: impl Runner,
    change: impl FnOnce(&mut EngineConfig),
    requests: &[GenerateRequest],
    steps: usize,
    turn: impl Fn(u64),
) -> Vec<Stamped> {
    let events: Arc<Mutex<Vec<Stamped>>> = Arc::default();
    let mut config = EngineConfig::new(limits(), clock);
    config.weights = vec![("tenant 1".to_string(), 3)];
    config.record_requests = true;
    config.force_preemption_every = Some(11);
    change(&mut config);
    let policies = config.policies;
    config.sinks.push(Box::new(events.clone()));
    let mut engine = Engine::new(runner, card(), config);
    let handle = engine.handle();
    let mut open = Vec::new();
    for (n, request) in (0u64..).zip(requests.iter().cycle().take(16)) {
        open.extend(handle.submit_choices(request.clone()).expect("a request"));
        for _ in 0..steps {
            turn(n);
            pollster::block_on(engine.step());
        }
        match n {
            3 => handle.cancel(open[0].id()),
            5 => drop(open.swap_remove(2)),
            7 => handle
                .set_policies(Policies { order: Order::Priority, ..policies })
                .expect("may change"),
            9 => handle
                .set_limits(Limits { sequences_max: 3, step_tokens_max: 24, ..limits() })
                .expect("within the device's"),
            _ => {}
        }
    }
    for n in 0..100_000 {
        turn(n);
        match pollster::block_on(engine.step()) {
            Stepped::Ran | Stepped::Filling { .. } => {}
            _ => break,
        }
    }
    assert_eq!(handle.status().open, 0);
    drop(engine);
    std::mem::take(&mut *events.lock().expect("events"))
}

fn runner(answer: Answer) -> FakeRunner {
    fake::runner(&limits(), answer).0
}

fn again(events: &[Stamped], answer: Answer) -> Replayed {
    replay(runner(answer), card(), Known::default(), events).unwrap_or_else(|e| panic!("{e}"))
}

/// Every choice of policies that times or orders could disturb.
fn policies() -> Vec<Policies> {
    let of = |change: fn(&mut Policies)| {
        let mut policies = Policies::default();
        change(&mut policies);
        policies
    };
    vec![
        of(|_| {}),
        of(|p| p.itl_target_micros = Some(1_500)),
        of(|p| p.batching = Batching::Dynamic { size: 3, timeout_ms: 2 }),
        of(|p| p.batching = Batching::Static { size: 2 }),
        of(|p| p.order = Order::Fair { unit: FairUnit::Time }),
        of(|p| (p.order, p.prefill) = (Order::Shortest, Prefill::PrefillFirst)),
        of(|p| p.prefill = Prefill::DecodeFirst),
        of(|p| p.preemption = Preemption::Swap),
    ]
}

fn sampled(events: &[Stamped]) -> u64 {
    let sampled = |e: &&Stamped| matches!(e.event, Event::TokenSampled { .. });
    events.iter().filter(sampled).count() as u64
}

/// What a recording must have had, so that its replay says something.
fn check(events: &[Stamped], replayed: &Replayed) {
    assert_eq!(replayed.difference, None);
    assert_eq!((replayed.tokens, replayed.unfinished), (sampled(events), 0));
    let forced = |e: &Stamped| {
        matches!(e.event, Event::SequencePreempted { reason: PreemptReason::Forced, .. })
    };
    assert!(events.iter().any(forced) && replayed.preemptions > 0);
    assert!(events.iter().any(|e| matches!(e.event, Event::TenantWeighted { .. })));
}

fn exact() {
    let (mut natural, mut swapped, mut hashes) = (0, 0, 0);
    for policies in policies() {
        let clock = Arc::new(ManualClock::default());
        let slow = Slow::new(runner(hashed()), &clock);
        let turn = |n: u64| clock.advance(100 + 77 * (n % 5));
        let events = record(clock.clone(), slow, policies, turn);
        check(&events, &again(&events, hashed()));
        // As it was recorded before hashes of blocks were told.
        let hash = |e: &Stamped| matches!(e.event, Event::BlocksHashed { .. });
        let (told, older): (Vec<_>, Vec<_>) = events.iter().cloned().partition(hash);
        check(&older, &again(&older, hashed()));
        hashes += told.len();
        let full = |e: &&Stamped| {
            matches!(e.event, Event::SequencePreempted { reason: PreemptReason::OutOfBlocks, .. })
        };
        natural += events.iter().filter(full).count();
        let moved = |e: &&Stamped| matches!(e.event, Event::BlocksSwapped { .. });
        swapped += events.iter().filter(moved).count();
    }
    assert!(natural > 0 && swapped > 0, "the pool ran out {natural} times, {swapped} moves");
    assert!(hashes > 0, "no block was hashed");
}

fn real_clock() {
    for policies in policies() {
        let clock = Arc::new(MonotonicClock::default());
        let events = record(clock, runner(hashed()), policies, |_| {});
        check(&events, &again(&events, hashed()));
    }
}

/// Readers that fall behind within a run of right guesses, too.
fn with_guesses() {
    let (mut right, mut left) = (0, 0);
    for (mut policies, unread) in policies().into_iter().flat_map(|p| [(p, 1024), (p, 9), (p, 4)]) {
        policies.speculate = Speculate::ngram(5, 1, 3).expect("usable");
        let clock = Arc::new(ManualClock::default());
        let slow = Slow::new(runner(looping()), &clock);
        let turn = |n: u64| clock.advance(100 + 77 * (n % 5));
        let events = record_with(clock.clone(), slow, policies, turn, unread);
        check(&events, &again(&events, looping()));
        let mut last = None;
        for event in &events {
            match event.event {
                Event::DraftsTried { sequence, right: n, .. } => {
                    right += n;
                    last = (n > 0).then_some(sequence);
                }
                Event::SequenceFinished { sequence, reason: FinishReason::Cancelled, .. } => {
                    left += u32::from(last == Some(sequence));
                }
                Event::StepPlanned { .. } => last = None,
                _ => {}
            }
        }
    }
    assert!(right > 100 && left > 5, "{right} right guesses, {left} left within a run");
}

/// Steps planned while the one before is in the air, with ends that only their tokens tell, and
/// callers who leave or read too slowly while a row of theirs is on its way.
fn two_in_flight() {
    let plain = |mut request: GenerateRequest| {
        (request.question, request.min_tokens, request.n) = (None, None, None);
        request.logit_bias.clear();
        // Some of these come out before the limit.
        request.stop_token_ids = (300..1300).step_by(23).collect();
        request
    };
    let requests: Vec<_> = requests().into_iter().map(plain).collect();
    let (mut ahead, mut discarded, mut left) = (0, 0, 0);
    for (policies, unread) in policies().into_iter().flat_map(|p| [(p, 1024), (p, 9), (p, 4)]) {
        let config = |config: &mut EngineConfig| {
            (config.policies, config.output_buffer) = (policies, unread);
            config.steps_in_flight = 2;
        };
        let clock = Arc::new(ManualClock::default());
        let slow = Slow::new(runner(hashed()), &clock);
        let turn = |n: u64| clock.advance(100 + 77 * (n % 5));
        let events = record_as(clock.clone(), slow, config, &requests, 9, turn);
        check(&events, &again(&events, hashed()));
        let mut over = None;
        for event in &events {
            match event.event {
                Event::StepAhead { .. } => ahead += 1,
                Event::RowDiscarded { sequence, .. } => {
                    discarded += 1;
                    over = Some(sequence);
                }
                Event::SequenceFinished { sequence, reason: FinishReason::Cancelled, .. } => {
                    left += u32::from(over == Some(sequence));
                }
                _ => {}
            }
        }
        // Cut off where a step is told that is still in the air, and where one came to nothing.
        for told in [
            |e: &Stamped| matches!(e.event, Event::StepAhead { .. }),
            |e: &Stamped| matches!(e.event, Event::RowDiscarded { .. }),
        ] {
            let at = events.iter().rposition(told).map_or(0, |at| at + 1);
            assert!(at == 0 || again(&events[..at], hashed()).difference.is_none(), "cut at {at}");
        }
        let clock = Arc::new(MonotonicClock::default());
        let events = record_as(clock, runner(hashed()), config, &requests, 9, |_| {});
        check(&events, &again(&events, hashed()));
    }
    assert!(ahead > 100 && discarded > 20 && left > 3, "{ahead}, {discarded}, {left} left");
}

/// A turn that moves blocks and has no rows, and a request before the next turn.
fn after_moves() {
    let policies = Policies { preemption: Preemption::Swap, ..Policies::default() };
    for flights in [1, 2] {
        let mut met = 0;
        for steps in 8..13 {
            let config = |config: &mut EngineConfig| {
                (config.policies, config.steps_in_flight) = (policies, flights);
            };
            let clock = Arc::new(ManualClock::default());
            let slow = Slow::new(runner(hashed()), &clock);
            let turn = |n: u64| clock.advance(100 + 77 * (n % 5));
            let events = record_as(clock.clone(), slow, config, &requests(), steps, turn);
            let follows = |pair: &[Stamped]| {
                let moved = matches!(pair[0].event, Event::BlocksSwapped { step: 0, .. });
                moved && matches!(pair[1].event, Event::RequestAsked { .. })
            };
            met += events.windows(2).filter(|pair| follows(pair)).count();
            check(&events, &again(&events, hashed()));
        }
        assert!(met > 0, "no request followed moved blocks with {flights} in flight");
    }
}

/// The same but for one token.
fn but_for(length: usize) -> Answer {
    let right = hashed();
    Box::new(move |history: &[TokenId], prompt| {
        right(history, prompt) + TokenId::from(history.len() == length)
    })
}

fn first_difference() {
    let clock = Arc::new(MonotonicClock::default());
    let events = record(clock, runner(hashed()), Policies::default(), |_| {});
    let first = events.iter().find_map(|e| match e.event {
        Event::TokenSampled { sequence, position: 20, token } => Some((e.step, sequence, token)),
        _ => None,
    });
    let (step, of, then) = first.expect("a token at position 20");
    let difference = again(&events, but_for(20)).difference.expect("one token differs");
    assert_eq!(difference.step, step);
    match (difference.recorded, difference.replayed) {
        (
            Some(Event::TokenSampled { sequence, token, .. }),
            Some(Event::TokenSampled { token: now, .. }),
        ) => assert_eq!((sequence, token, now), (of, then, then + 1)),
        other => panic!("{other:?}"),
    }
    // A scheduler that decides otherwise: the recording says that somebody was not preempted.
    let preempted = |e: &Stamped| matches!(e.event, Event::SequencePreempted { .. });
    let at = events.iter().position(preempted).expect("a preemption");
    let mut changed = events.clone();
    changed.remove(at);
    let difference = again(&changed, hashed()).difference.expect("it was preempted");
    assert_eq!(difference.seq, events[at + 1].seq, "{difference:?}");
}

fn cut_off() {
    let clock = Arc::new(MonotonicClock::default());
    let events = record(clock, runner(hashed()), Policies::default(), |_| {});
    let ran = |e: &&Stamped| matches!(e.event, Event::StepRan { .. });
    for cut in [events.len() - 1, events.len() / 2, events.len() / 3, 40, 3, 2] {
        let replayed = again(&events[..cut], hashed());
        assert_eq!(replayed.difference, None, "{cut}");
        assert_eq!(replayed.tokens, sampled(&events[..cut]), "{cut}");
        assert!(replayed.steps >= events[..cut].iter().filter(ran).count() as u64, "{cut}");
    }
    let nothing = replay(runner(hashed()), card(), Known::default(), &[]);
    assert_eq!(nothing, Err(ReplayError::NoStart));
}

fn refused() {
    let clock = Arc::new(MonotonicClock::default());
    let events = record(clock, runner(hashed()), Policies::default(), |_| {});
    let told = |events: &[Stamped]| replay(runner(hashed()), card(), Known::default(), events);
    let without: Vec<_> = events
        .iter()
        .filter(|e| !matches!(e.event, Event::RequestAsked { .. } | Event::PromptGiven { .. }))
        .cloned()
        .collect();
    assert_eq!(told(&without), Err(ReplayError::NoPrompts));
    assert_eq!(told(&events[5..]), Err(ReplayError::NoStart));
    let mut guided = events.clone();
    let first = guided.iter_mut().find_map(|e| match &mut e.event {
        Event::RequestAsked { asked, request, .. } => Some((asked, *request)),
        _ => None,
    });
    let (asked, request) = first.expect("a request");
    asked.guided = true;
    assert_eq!(told(&guided), Err(ReplayError::Guided { request }));
    let mut lossy = events.clone();
    lossy[9].event = Event::EventsDropped { count: 4 };
    assert_eq!(told(&lossy), Err(ReplayError::Lost(4)));
}
