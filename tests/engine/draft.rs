//! Guessed tokens: what comes out is what comes out without them, in fewer steps.

use super::fake::{Answer, END, World, ids, limits, looping, script};
use crate::support::Rows;
use std::sync::{Arc, Mutex};
use tilewright::base::{
    Limits, Policies, Preemption, PrefixCache, Speculate, TokenId, threefry2x32,
};
use tilewright::engine::{Completion, GenerateError, GenerateRequest, Question, draft};
use tilewright::trace::FinishReason::{Length, Stop};
use tilewright::trace::{Event, RingSink};

pub fn rows(rows: &mut Rows) {
    rows.add("draft::what_followed_before_is_guessed", what_followed_before);
    rows.add("draft::ends_within_a_run_of_right_guesses", ends_within_a_run);
    rows.add("draft::wrong_guesses_make_the_next_fewer", wrong_guesses);
    rows.add("draft::random_worlds_say_the_same", random_worlds);
    rows.add("draft::a_request_that_edits_logits_guesses_nothing", who_guesses_nothing);
}

fn what_followed_before() {
    let guess = |history: &[TokenId], min, max| {
        let mut out = vec![9];
        draft(history, min, max, 4, &mut out);
        out[1..].to_vec()
    };
    assert!(guess(&[], 1, 3).is_empty());
    assert!(guess(&[5], 1, 3).is_empty());
    assert_eq!(guess(&[1, 2, 3, 4, 5, 6, 1, 2], 1, 3), [3, 4, 5, 6]);
    // The longest match, and of equals the most recent.
    assert_eq!(guess(&[1, 2, 7, 0, 3, 2, 8, 0, 1, 2], 1, 3), [7, 0, 3, 2]);
    assert_eq!(guess(&[3, 2, 7, 0, 3, 2, 8, 0, 1, 2], 1, 3), [8, 0, 1, 2]);
    assert!(guess(&[3, 2, 7, 0, 3, 2, 8, 0, 1, 2], 2, 3).is_empty());
    // No longer than asked for: the first three of these say 7, the last two 8.
    assert_eq!(guess(&[6, 1, 2, 7, 5, 1, 2, 8, 6, 1, 2], 1, 2), [8, 6, 1, 2]);
    assert_eq!(guess(&[6, 1, 2, 7, 5, 1, 2, 8, 6, 1, 2], 1, 3), [7, 5, 1, 2]);
    // What goes round goes on.
    assert_eq!(guess(&[4, 4], 1, 3), [4, 4, 4, 4]);
    assert_eq!(guess(&[0, 1, 2, 1, 2], 1, 3), [1, 2, 1, 2]);
}

/// What was guessed, how much of it was right, and in how many steps.
#[derive(Default, Debug)]
struct Seen {
    drafted: u64,
    right: u64,
    preempted: usize,
    matched: usize,
    steps: u64,
    /// Guesses and how many were right, row by row.
    tried: Vec<(u32, u32)>,
}

type Answers = Vec<Result<Completion, GenerateError>>;

/// Runs `requests`; `between` may act before each step.
fn run(
    (limits, answer): (Limits, Answer),
    (policies, every): (Policies, Option<u64>),
    requests: &[GenerateRequest],
    between: impl Fn(u64, &World, &[tilewright::base::RequestId]),
) -> (Answers, Seen) {
    let events = Arc::new(Mutex::new(RingSink::new(1 << 18)));
    let sink = events.clone();
    let mut world = World::with(limits, answer, |config| {
        (config.policies, config.force_preemption_every) = (policies, every);
        config.sinks.push(Box::new(sink));
    });
    let submit = |r: &GenerateRequest| world.handle.submit(r.clone()).expect("a request");
    let open: Vec<_> = requests.iter().map(submit).collect();
    let names: Vec<_> = open.iter().map(|generation| generation.id()).collect();
    for step in 0.. {
        between(step, &world, &names);
        if world.step() != tilewright::engine::Stepped::Ran {
            break;
        }
    }
    let status = world.handle.status();
    assert_eq!((status.open, status.blocks_used), (0, 0));
    let mut seen = Seen { steps: status.steps, ..Seen::default() };
    let (mut sampled, mut guessed) = (0, 0);
    for stamped in events.lock().expect("events").events() {
        match stamped.event {
            Event::RowDrafted { len, .. } => guessed += u64::from(len),
            Event::DraftsTried { drafted, right, .. } => {
                seen.drafted += u64::from(drafted);
                seen.right += u64::from(right);
                seen.tried.push((drafted, right));
            }
            Event::TokenSampled { .. } => sampled += 1,
            Event::SequencePreempted { .. } => seen.preempted += 1,
            Event::PrefixMatched { .. } => seen.matched += 1,
            _ => {}
        }
    }
    assert_eq!((guessed, sampled), (seen.drafted, status.tokens_generated));
    let answers = open.into_iter().map(|g| {
        let mut answer = pollster::block_on(g.collect())?;
        // Where it finds its prompt is not what it says.
        answer.usage.cached_tokens = 0;
        Ok(answer)
    });
    (answers.collect(), seen)
}

fn guessing(tokens: u8, min: u8, max: u8) -> Policies {
    let speculate = Speculate::ngram(tokens, min, max).expect("usable");
    Policies { speculate, ..Policies::default() }
}

/// One request whose prompt holds what it will say, after the first of it.
fn repeats(said: &[TokenId], answer: &[TokenId], change: GenerateRequest) -> (Completion, Seen) {
    let prompt = [&ids("Say it:"), said, &ids(" Again:"), &said[..2]].concat();
    let request = GenerateRequest { prompt, ..change };
    let both = [Policies::default(), guessing(4, 2, 4)].map(|policies| {
        let answer = script(answer[2..].to_vec());
        let alone = std::slice::from_ref(&request);
        let (mut answers, seen) = run((limits(), answer), (policies, None), alone, |_, _, _| {});
        (answers.remove(0).unwrap_or_else(|e| panic!("{e}")), seen)
    });
    let [(plain, without), (guessed, with)] = both;
    assert_eq!(guessed, plain);
    assert_eq!(without.drafted, 0);
    assert!(with.right > 0 && with.steps < without.steps, "{with:?}, {without:?}");
    (guessed, with)
}

fn ends_within_a_run() {
    let said = ids("alpha beta gamma delta epsilon zeta eta theta iota kappa");
    let none = GenerateRequest::default;
    // Every limit: within a run of guesses, at its end, and just after it.
    for max in 3..said.len() as u32 - 2 {
        let request = GenerateRequest { max_tokens: Some(max), logprobs: Some(1), ..none() };
        let (answer, seen) = repeats(&said, &said, request);
        assert_eq!((answer.tokens.len() as u32, answer.reason), (max, Some(Length)));
        assert!(seen.steps <= 1 + u64::from(max).div_ceil(5), "{max}: {seen:?}");
    }
    // A stop string that only several guesses together hold.
    for stop in ["delta epsilon", "ta et", "a gamma d", "kappa"] {
        let request = GenerateRequest { stop: vec![stop.to_string()], ..none() };
        let (answer, _) = repeats(&said, &said, request);
        assert_eq!(answer.reason, Some(Stop));
        assert!(!answer.text.contains(stop), "{}", answer.text);
    }
    // An end id among the guesses: what was guessed after it is never said.
    for at in 3..8 {
        let (mut held, end) = (said.clone(), 2 + at);
        held.insert(end, END);
        let (answer, _) = repeats(&held, &held, none());
        assert_eq!((answer.ids(), answer.reason), (held[2..=end].to_vec(), Some(Stop)));
        assert_eq!(answer.usage.completion_tokens as usize, at + 1);
    }
    // One that is no guess, in place of one.
    let (answer, _) = repeats(&said, &[&said[..7], &[END]].concat(), none());
    assert_eq!((answer.ids().len(), answer.reason), (6, Some(Stop)));
}

/// A list whose lines differ in one token, then a passage that the prompt holds, with gaps.
fn wrong_guesses() {
    let passage: Vec<TokenId> = (400..440).collect();
    let prompt = [&passage[..], &[300, 301]].concat();
    let lines = (501..509).flat_map(|n| [300, 301, n]);
    let quoted = [&passage[..20], &[600], &passage[22..24], &[601], &passage[30..34]].concat();
    let said: Vec<TokenId> = [500].into_iter().chain(lines).chain(quoted).collect();
    let run_by = |policies| {
        let max_tokens = Some(said.len() as u32);
        let request = GenerateRequest { prompt: prompt.clone(), max_tokens, ..Default::default() };
        let world = (limits(), script(said.clone()));
        let (mut answers, seen) = run(world, (policies, None), &[request], |_, _, _| {});
        let answer = answers.remove(0).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(answer.ids(), said);
        seen
    };
    // The list: all, half, half, none. The passage: after one that was right unseen one more each
    // time, but not beyond the most; then as many as were right, or half as many.
    let list = [(4, 0), (2, 0), (1, 0)];
    let passage = [(1, 1), (2, 2), (3, 3), (4, 4), (4, 3), (3, 0), (1, 1)];
    let seen = run_by(guessing(4, 2, 4));
    assert_eq!(seen.tried, [&list[..], &passage].concat());
    assert_eq!(seen.steps, 39);
    // One at a time at most: from one to none, and back.
    let seen = run_by(guessing(1, 2, 4));
    assert_eq!((seen.tried[0], seen.tried[1]), ((1, 0), (1, 1)));
    assert!(seen.tried.iter().all(|&(drafted, _)| drafted == 1));
}

struct Dice(u32, u32);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.1 += 1;
        threefry2x32([self.0, 77], [self.1, 0])[0] % bound
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

fn random_request(dice: &mut Dice, n: u32) -> GenerateRequest {
    let common = dice.below(30);
    let own = (0..1 + dice.below(40)).map(|i| 300 + (n * 7 + i) % 5);
    GenerateRequest {
        prompt: (0..common).map(|i| 300 + i % 4).chain(own).collect(),
        max_tokens: Some(10 + dice.below(60)),
        min_tokens: dice.chance(20).then(|| dice.below(10)),
        stop: if dice.chance(20) { vec!["aa".to_string()] } else { Vec::new() },
        stop_token_ids: if dice.chance(20) { vec![301] } else { Vec::new() },
        logprobs: dice.chance(30).then_some(2),
        question: dice.chance(20).then_some(Question::Logprobs(1)),
        logit_bias: if dice.chance(10) { vec![(302, 100.0)] } else { Vec::new() },
        seed: Some(u64::from(n)),
        ..GenerateRequest::default()
    }
}

/// Tiny pools, forced preemptions, prefix cache and host memory on and off, cancellations: whoever
/// is left says what it says alone without guesses, and who was cancelled got a beginning of it.
fn random_worlds() {
    let mut all = Seen::default();
    for seed in 0..120 {
        let mut dice = Dice(seed, 0);
        let requests: Vec<_> =
            (0..2 + dice.below(9)).map(|n| random_request(&mut dice, n)).collect();
        let roomy = (Policies::default(), None);
        let (plain, _) = run((limits(), looping()), roomy, &requests, |_, _, _| {});
        let small = Limits {
            blocks: 10 + dice.below(20),
            block_size: [4, 16][dice.below(2) as usize],
            step_tokens_max: 4 + dice.below(60),
            host_blocks: [0, 8][dice.below(2) as usize],
            context_max: 160,
            ..limits()
        };
        let small = Limits { blocks: small.blocks * 16 / small.block_size, ..small };
        let (tokens, min) = (1 + dice.below(8) as u8, 1 + dice.below(2) as u8);
        let policies = Policies {
            prefix_cache: [PrefixCache::On, PrefixCache::Off][dice.below(2) as usize],
            preemption: [Preemption::Swap, Preemption::Recompute][dice.below(2) as usize],
            ..guessing(tokens, min, min + dice.below(3) as u8)
        };
        // Who loses all its work every few steps needs room to redo it in one.
        let every = dice.chance(50).then(|| 3 + u64::from(dice.below(6)));
        let small = match every {
            Some(_) => Limits { step_tokens_max: 160 * 8, ..small },
            None => small,
        };
        let gone = dice.chance(50).then(|| (u64::from(dice.below(20)), dice.below(2) as usize));
        let cancel = |step: u64, world: &World, names: &[_]| {
            if let Some((_, who)) = gone.filter(|g| g.0 == step) {
                world.handle.cancel(names[who]);
            }
        };
        let (answers, seen) = run((small, looping()), (policies, every), &requests, cancel);
        for (n, (answer, plain)) in answers.iter().zip(&plain).enumerate() {
            match answer {
                Err(GenerateError::Cancelled) if gone.is_some_and(|g| g.1 == n) => {}
                answer => assert_eq!(answer, plain, "seed {seed}, request {n}"),
            }
        }
        all.drafted += seen.drafted;
        all.right += seen.right;
        all.preempted += seen.preempted;
        all.matched += seen.matched;
    }
    let Seen { drafted, right, preempted, matched, .. } = all;
    assert!(right > 1000 && drafted - right > 1000, "{all:?}");
    assert!(preempted > 50 && matched > 50, "{all:?}");
}

fn who_guesses_nothing() {
    let none = GenerateRequest::default;
    let cases = [
        (true, none()),
        (false, GenerateRequest { repetition_penalty: Some(1.1), ..none() }),
        (false, GenerateRequest { presence_penalty: Some(0.1), ..none() }),
        (false, GenerateRequest { frequency_penalty: Some(0.1), ..none() }),
        (false, GenerateRequest { logit_bias: vec![(5, 1.0)], ..none() }),
        (false, GenerateRequest { min_tokens: Some(40), ..none() }),
    ];
    for (guesses, request) in cases {
        let prompt = (0..20).map(|i| 300 + i % 3).collect();
        let request = GenerateRequest { prompt, max_tokens: Some(40), ..request };
        let one = std::slice::from_ref(&request);
        let (_, seen) = run((limits(), looping()), (guessing(4, 1, 3), None), one, |_, _, _| {});
        assert_eq!(seen.drafted > 0, guesses, "{request:?}");
    }
}
