//! Two steps in the air: what comes out is what comes out of one at a time, while the answers of
//! the fake device are late; and what happens when the host learns late that a row was not needed.

use super::fake::{Answer, END, World, hashed, ids, limits, script};
use super::guided::stairs;
use crate::support::Rows;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tilewright::base::{
    Batching, Limits, Policies, Preemption, PrefixCache, RequestId, Speculate, TokenId,
    threefry2x32,
};
use tilewright::engine::{
    Completion, EngineConfig, EngineState, GenerateError, GenerateRequest, Generation, Output,
    Question, RunError, Stepped,
};
use tilewright::trace::FinishReason::{Length, Stop};
use tilewright::trace::{Event, Picture, RingSink, Stamped, fold};

pub fn rows(rows: &mut Rows) {
    rows.add("ahead::random_worlds_say_the_same", random_worlds);
    rows.add("ahead::ends_are_found_late_and_nothing_follows", ends_found_late);
    rows.add("ahead::what_was_computed_after_an_end_is_shared_with_nobody", nothing_is_shared);
    rows.add("ahead::limits_are_known_before", limits_are_known);
    rows.add("ahead::who_needs_the_host_waits_for_it", who_needs_the_host);
    rows.add("ahead::arrivals_and_words_find_nothing_in_the_air", arrivals_and_words);
    rows.add("ahead::cancelled_in_the_air", cancelled_in_the_air);
    rows.add("ahead::a_device_lost_ahead_fails_who_is_left", device_lost);
    rows.add("ahead::not_finite_in_the_air_ends_one_request", not_finite);
}

type Events = Arc<Mutex<RingSink>>;

fn world(
    flights: u32,
    limits: Limits,
    answer: Answer,
    change: impl FnOnce(&mut EngineConfig),
) -> (World, Events) {
    let events = Arc::new(Mutex::new(RingSink::new(1 << 18)));
    let sink = events.clone();
    let world = World::with(limits, answer, |config| {
        change(config);
        config.steps_in_flight = flights;
        config.sinks.push(Box::new(sink));
    });
    (world, events)
}

fn count(events: &Events, wanted: impl Fn(&Event) -> bool) -> usize {
    events.lock().unwrap().events().filter(|e| wanted(&e.event)).count()
}

fn ahead(events: &Events) -> usize {
    count(events, |e| matches!(e, Event::StepAhead { .. }))
}

fn discarded(events: &Events) -> usize {
    count(events, |e| matches!(e, Event::RowDiscarded { .. }))
}

/// The stream is in order, tells each step by itself, and adds up to an engine with nothing in it.
fn check(events: &Events, limits: &Limits) {
    let ring = events.lock().unwrap();
    assert_eq!(ring.dropped(), 0);
    let all: Vec<&Stamped> = ring.events().collect();
    let ordered = |w: &[&Stamped]| w[0].micros <= w[1].micros && w[0].step <= w[1].step.max(1);
    let busy = |e: &&&Stamped| e.step > 0;
    let busy: Vec<_> = all.iter().filter(busy).copied().collect();
    assert!(busy.windows(2).all(ordered), "{:?}", busy.windows(2).find(|w| !ordered(w)));
    let mut open = None;
    for stamped in &all {
        match stamped.event {
            Event::StepPlanned { step, .. } => assert_eq!(open.replace(step), None),
            Event::StepRan { step, .. } => assert_eq!(open.take(), Some(step)),
            _ => {}
        }
    }
    let mut picture = Picture::default();
    all.iter().for_each(|event| fold(&mut picture, event));
    assert!(picture.sequences.is_empty(), "{:?}", picture.sequences);
    assert_eq!(picture.free_blocks(), limits.blocks);
}

fn request(first: TokenId, max: u32) -> GenerateRequest {
    let prompt = vec![first, 301, 302];
    GenerateRequest { prompt, max_tokens: Some(max), ..GenerateRequest::default() }
}

/// Takes what is there of an answer.
fn drain(generation: &mut Generation) -> Vec<Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut all = Vec::new();
    while let std::task::Poll::Ready(Some(output)) =
        std::future::Future::poll(std::pin::pin!(generation.next()), &mut context)
    {
        all.push(output);
    }
    all
}

fn tokens(outputs: &[Output]) -> Vec<TokenId> {
    let id = |output: &Output| match output {
        Output::Token { id, .. } => Some(*id),
        _ => None,
    };
    outputs.iter().filter_map(id).collect()
}

/// Numbers of one random world.
struct Dice(u32, u32);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.1 += 1;
        threefry2x32([self.0, 0xa4ea], [self.1, 0])[0] % n
    }
}

fn some_request(dice: &mut Dice) -> GenerateRequest {
    let start = dice.below(4);
    let length = 1 + dice.below(40);
    let mut request = GenerateRequest {
        prompt: (0..length).map(|at| 300 + (start * at) % 50).collect(),
        max_tokens: Some(1 + dice.below(60)),
        seed: Some(u64::from(dice.below(1000))),
        logprobs: (dice.below(3) == 0).then_some(2),
        ..GenerateRequest::default()
    };
    match dice.below(14) {
        0 => request.min_tokens = Some(1 + dice.below(request.max_tokens.unwrap_or(1))),
        1 => request.frequency_penalty = Some(0.5),
        2 => request.logit_bias = vec![(333, 1.0)],
        3 => request.n = Some(2),
        4 => request.question = Some(Question::Logprobs(1)),
        5..8 => request.stop = vec!["a".to_string(), "th".to_string()],
        8..11 => request.stop_token_ids = (300..1300).step_by(17).collect(),
        _ => {}
    }
    request
}

/// Any limits, policies and requests, some of which arrive while others run.
fn random_worlds() {
    let (mut sum, mut late, mut preempted) = (0, 0, 0);
    for seed in 0..120 {
        let mut run = |flights: u32| {
            let mut dice = Dice(seed, 0);
            let limits = Limits {
                step_tokens_max: [8, 64, 200][dice.below(3) as usize],
                blocks: [16, 40, 256][dice.below(3) as usize],
                block_size: [1, 4, 16][dice.below(3) as usize] * 4,
                sequences_max: 1 + dice.below(8),
                host_blocks: dice.below(2) * 20,
                ..limits()
            };
            let policies = Policies {
                prefix_cache: [PrefixCache::On, PrefixCache::Off][dice.below(2) as usize],
                preemption: [Preemption::Recompute, Preemption::Swap][dice.below(2) as usize],
                itl_target_micros: (dice.below(4) == 0).then_some(500),
                ..Policies::default()
            };
            // Whoever is sent back must be able to catch up before the next time.
            let room = limits.step_tokens_max > 8 && policies.itl_target_micros.is_none();
            let every = (dice.below(3) == 0 && room).then_some(7);
            let (mut world, events) = world(flights, limits, hashed(), |config| {
                (config.policies, config.force_preemption_every) = (policies, every);
            });
            let mut open = Vec::new();
            for _ in 0..1 + dice.below(9) {
                let request = some_request(&mut dice);
                if let Ok(choices) = world.handle.submit_choices(request) {
                    open.extend(choices);
                }
                for _ in 0..dice.below(2) * dice.below(30) {
                    world.clock.advance(100);
                    world.step();
                }
            }
            world.settle();
            assert_eq!(world.handle.status().blocks_used, 0);
            check(&events, &limits);
            preempted += count(&events, |e| matches!(e, Event::SequencePreempted { .. }));
            let answers = open.into_iter().map(|g| pollster::block_on(g.collect()).map(bits));
            (answers.collect::<Vec<_>>(), ahead(&events), discarded(&events))
        };
        let (one, none, nothing) = run(1);
        assert_eq!((none, nothing), (0, 0), "seed {seed}");
        let (two, planned, over) = run(2);
        assert!(one == two, "seed {seed}: {one:?}, with two in the air {two:?}");
        (sum, late) = (sum + planned, late + over);
    }
    assert!(sum > 1000 && late > 50 && preempted > 100, "{sum} ahead, {late} late, {preempted}");
}

/// Where it finds its prompt is not what it says, and depends on who was there before.
fn bits(mut answer: Completion) -> Completion {
    answer.usage.cached_tokens = 0;
    answer
}

fn ends_found_late() {
    let said = ids("alpha beta gamma delta epsilon zeta eta theta iota kappa");
    let none = GenerateRequest::default;
    let mut requests = vec![none(), GenerateRequest { logprobs: Some(1), ..none() }];
    for stop in ["delta epsilon", "ta et", "a"] {
        requests.push(GenerateRequest { stop: vec![stop.to_string()], ..none() });
    }
    requests.push(GenerateRequest { stop_token_ids: vec![said[7]], ..none() });
    for request in requests {
        let request = GenerateRequest { prompt: ids("Say it:"), ..request };
        let both = [1, 2].map(|flights| {
            let script = script([&said[..], &[END, 400, 401, 402]].concat());
            let (mut world, events) = world(flights, limits(), script, |_| {});
            let mut generation = world.handle.submit(request.clone()).unwrap();
            let mut outputs = Vec::new();
            while !matches!(outputs.last(), Some(Output::Finished { .. } | Output::Failed(_))) {
                assert_eq!(world.step(), Stepped::Ran);
                outputs.extend(drain(&mut generation));
                let over = matches!(outputs.last(), Some(Output::Finished { .. }));
                // Who has the last word sees the blocks free.
                assert!(!over || world.handle.status().blocks_used == 0);
            }
            world.settle();
            check(&events, &limits());
            let sampled = count(&events, |e| matches!(e, Event::TokenSampled { .. }));
            assert_eq!(sampled, tokens(&outputs).len(), "each token told was sent");
            assert_eq!(world.handle.status().tokens_generated, sampled as u64);
            let late = (ahead(&events) > 0, discarded(&events));
            let in_the_air = world.knobs.in_the_air.load(Ordering::SeqCst);
            match flights {
                2 => assert_eq!((late, in_the_air), ((true, 1), 2)),
                _ => assert_eq!((late, in_the_air), ((false, 0), 0)),
            }
            outputs
        });
        let [one, two] = both;
        assert_eq!(one, two);
        assert!(matches!(one.last(), Some(Output::Finished { reason: Stop, .. })), "{one:?}");
    }
}

/// The end token may fill a block: what a row in the air computed with it is not offered to others,
/// so that a later request finds as much as ever.
fn nothing_is_shared() {
    let limits = Limits { block_size: 4, ..limits() };
    for length in 1..10 {
        let said: Vec<TokenId> = (0..length).map(|at| 310 + at).collect();
        let both = [1, 2].map(|flights| {
            let answer = script([&said[..], &[END]].concat());
            let (mut world, events) = world(flights, limits, answer, |_| {});
            let first = world.handle.submit(request(300, 50)).unwrap();
            world.settle();
            let first = pollster::block_on(first.collect()).unwrap();
            assert_eq!((first.reason, first.tokens.len() as u32), (Some(Stop), length + 1));
            // Goes on after all of it.
            let prompt = [&[300, 301, 302], &said[..], &[END, 305, 306, 307, 308, 309]].concat();
            let next = GenerateRequest { prompt, ..request(0, 1) };
            let next = world.handle.submit(next).unwrap();
            world.settle();
            assert_eq!(discarded(&events), (flights - 1) as usize);
            let next = pollster::block_on(next.collect()).unwrap();
            (next, world.handle.status().blocks_cached)
        });
        assert_eq!(both[0], both[1], "{length} tokens and an end");
        // The prompt of 3 and what was said, whole blocks of it.
        assert_eq!(both[0].0.usage.cached_tokens, 3 + length - (3 + length) % 4);
    }
}

/// Neither a limit of tokens nor the end of the context or the pool wastes a row.
fn limits_are_known() {
    for (limits, max) in [
        (limits(), Some(1)),
        (limits(), Some(2)),
        (limits(), Some(40)),
        (Limits { context_max: 48, ..limits() }, None),
        (Limits { blocks: 3, ..limits() }, None),
    ] {
        let (mut world, events) = world(2, limits, hashed(), |_| {});
        let requests = (0..if limits.blocks > 3 { 3 } else { 1 })
            .map(|n| GenerateRequest { max_tokens: max, ..request(400 + n, 1) });
        let open: Vec<_> = requests.map(|r| world.handle.submit(r).unwrap()).collect();
        world.settle();
        let most = max.unwrap_or(limits.context_max.min(limits.blocks * 16) - 3);
        for generation in open {
            let answer = pollster::block_on(generation.collect()).unwrap();
            assert_eq!((answer.tokens.len() as u32, answer.reason), (most, Some(Length)));
        }
        // The step of the prompts gives the first token, the next one may be ahead, and so on.
        assert_eq!((ahead(&events), discarded(&events)), (most as usize - 1, 0), "{max:?}");
        assert_eq!(world.handle.status().steps, u64::from(most));
        check(&events, &limits);
    }
}

/// Whose choice needs the host keeps all from running ahead while it is there, and no longer.
fn who_needs_the_host() {
    let changes: [&dyn Fn(&mut GenerateRequest); 6] = [
        &|r| r.grammar = stairs(10, None),
        &|r| r.repetition_penalty = Some(1.1),
        &|r| r.presence_penalty = Some(0.1),
        &|r| r.logit_bias = vec![(333, 1.0)],
        &|r| r.min_tokens = Some(10),
        &|r| {
            (r.question, r.prompt) = (Some(Question::Logprobs(0)), vec![330; 640]);
            r.max_tokens = Some(1);
        },
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let (mut world, events) = world(2, limits(), hashed(), |_| {});
        let mut needy = request(400, 10);
        change(&mut needy);
        let (needy, plain) = (world.handle.submit(needy), world.handle.submit(request(500, 40)));
        let (needy, plain) = (needy.unwrap(), plain.unwrap());
        while count(&events, |e| matches!(e, Event::SequenceFinished { .. })) == 0 {
            assert_eq!((world.step(), ahead(&events)), (Stepped::Ran, 0), "change {at}");
        }
        world.settle();
        assert!(ahead(&events) > 5, "change {at}: {}", ahead(&events));
        pollster::block_on(needy.collect()).unwrap();
        assert_eq!(pollster::block_on(plain.collect()).unwrap().tokens.len(), 40);
    }
    let policies = |change: &dyn Fn(&mut Policies)| {
        let (mut world, events) = world(2, limits(), hashed(), |c| change(&mut c.policies));
        let _open = [400, 401].map(|n| world.handle.submit(request(n, 20)).unwrap());
        world.settle();
        assert_eq!(ahead(&events), 0);
    };
    policies(&|p| p.batching = Batching::Static { size: 2 });
    policies(&|p| p.batching = Batching::Dynamic { size: 2, timeout_ms: 0 });
    policies(&|p| p.speculate = Speculate::ngram(3, 1, 2).unwrap());
}

/// What comes from outside is heard before another step is planned, and a held engine has nothing
/// in the air.
fn arrivals_and_words() {
    let (mut world, events) = world(2, limits(), hashed(), |_| {});
    let steps = |world: &World| world.handle.status().steps;
    let first = world.handle.submit(request(400, 60)).unwrap();
    for _ in 0..5 {
        assert_eq!(world.step(), Stepped::Ran);
    }
    assert_eq!((steps(&world), ahead(&events)), (5, 5), "the sixth is in the air");
    let second = world.handle.submit(request(401, 30)).unwrap();
    assert_eq!(world.step(), Stepped::Ran);
    let admitted = |e: &Event| matches!(e, Event::SequenceAdmitted { .. });
    assert_eq!((count(&events, admitted), steps(&world)), (2, 7));
    assert_eq!(world.step(), Stepped::Ran);
    world.handle.hold(true);
    assert_eq!(world.step(), Stepped::Idle);
    let then = steps(&world);
    assert_eq!(then, 9, "what was in the air landed");
    for _ in 0..3 {
        assert_eq!(world.step(), Stepped::Idle);
        assert_eq!(steps(&world), then);
    }
    world.handle.step_once();
    assert_eq!((world.step(), world.step()), (Stepped::Ran, Stepped::Idle));
    assert_eq!(steps(&world), then + 1);
    world.handle.hold(false);
    world.settle();
    for (generation, tokens) in [(first, 60), (second, 30)] {
        assert_eq!(pollster::block_on(generation.collect()).unwrap().tokens.len(), tokens);
    }
    check(&events, &limits());
}

/// Called off, dropped, late, or by an engine told to stop: with nothing told after it, no block
/// kept, and the others' answers as ever.
fn cancelled_in_the_air() {
    let alone = {
        let mut world = World::new(limits(), hashed());
        let generation = world.handle.submit(request(500, 40)).unwrap();
        world.settle();
        pollster::block_on(generation.collect()).unwrap()
    };
    type End = fn(&World, RequestId, &mut Option<Generation>);
    let ways: [End; 3] = [
        |world, id, _| world.handle.cancel(id),
        |_, _, generation| *generation = None,
        |world, _, _| world.clock.advance(10_000_000),
    ];
    for way in ways {
        for before in 1..6 {
            let (mut world, events) = world(2, limits(), hashed(), |_| {});
            let request_of = GenerateRequest { timeout_ms: Some(5_000), ..request(400, 50) };
            let gone = world.handle.submit(request_of).unwrap();
            let stays = world.handle.submit(request(500, 40)).unwrap();
            for _ in 0..before {
                world.step();
            }
            let (id, mut gone) = (gone.id(), Some(gone));
            way(&world, id, &mut gone);
            // What is in the air lands, then the word is heard, before the next plan.
            world.step();
            assert_eq!(world.handle.status().open, 1, "after {before} steps");
            let ended = |e: &Event| matches!(e, Event::SequenceFinished { .. });
            assert_eq!(count(&events, ended), 1);
            world.settle();
            check(&events, &limits());
            assert_eq!(world.handle.status().blocks_used, 0);
            assert_eq!(pollster::block_on(stays.collect()).unwrap(), alone);
        }
    }
    let (mut world, events) = world(2, limits(), hashed(), |_| {});
    let open = [400, 401].map(|n| world.handle.submit(request(n, 50)).unwrap());
    for _ in 0..4 {
        world.step();
    }
    world.handle.stop();
    assert_eq!(world.step(), Stepped::Ended);
    for generation in open {
        let error = pollster::block_on(generation.collect()).unwrap_err();
        assert_eq!(error, GenerateError::Stopped);
    }
    assert_eq!(world.handle.status().blocks_used, 0);
    check(&events, &limits());
}

/// Lost when the step ahead lands, or when it is handed over: everybody has the tokens of the steps
/// before it and then the reason, but for who had ended by then.
fn device_lost() {
    for refused in [false, true] {
        let both = [1, 2].map(|flights| {
            let says = |history: &[TokenId], prompt: usize| match history.len() - prompt {
                5 if history[0] == 400 => END,
                n => 310 + n as TokenId,
            };
            let (mut world, events) = world(flights, limits(), Box::new(says), |_| {});
            let open = [400, 401].map(|n| world.handle.submit(request(n, 50)).unwrap());
            let knob = match refused {
                // Whoever launches nothing is never refused.
                true if flights == 2 => &world.knobs.refused_at,
                _ => &world.knobs.lost_at,
            };
            knob.store(7, Ordering::SeqCst);
            world.settle();
            let status = world.handle.status();
            assert!(matches!(status.state, EngineState::Failed(_)), "{status:?}");
            assert_eq!((status.open, status.blocks_used), (0, 0));
            check(&events, &limits());
            open.map(|mut generation| {
                let mut outputs = drain(&mut generation);
                let last = outputs.pop();
                (outputs, last)
            })
        });
        let [one, two] = both;
        let why = |refused: bool| match refused {
            true => RunError::Device("refused".to_string()),
            false => RunError::DeviceLost("planted".to_string()),
        };
        for (at, (one, two)) in one.into_iter().zip(two).enumerate() {
            assert_eq!(one.0, two.0, "tokens before the loss");
            match at {
                0 => assert_eq!(one.1, two.1, "it had ended"),
                _ => {
                    let error = GenerateError::Run(why(refused));
                    assert_eq!(two.1, Some(Output::Failed(error)));
                }
            }
        }
    }
}

fn not_finite() {
    let both = [1, 2].map(|flights| {
        let says = |history: &[TokenId], prompt: usize| match history.len() - prompt {
            n if history[0] == 400 && n == 4 => 777,
            n => 310 + n as TokenId,
        };
        let (mut world, events) = world(flights, limits(), Box::new(says), |_| {});
        let mut open = [400, 401].map(|n| world.handle.submit(request(n, 20)).unwrap());
        world.knobs.poison.store(777, Ordering::SeqCst);
        world.settle();
        check(&events, &limits());
        assert_eq!(discarded(&events), (flights - 1) as usize);
        let status = world.handle.status();
        assert_eq!((status.blocks_used, &status.state), (0, &EngineState::Serving));
        open.each_mut().map(drain)
    });
    assert_eq!(both[0], both[1]);
    assert_eq!(both[0][0].last(), Some(&Output::Failed(GenerateError::NonFinite)));
    assert_eq!(tokens(&both[0][1]).len(), 20);
}
