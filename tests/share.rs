//! Rows of `share`: blocks that sequences share change no bit of anybody's answer. Ids and
//! log-probabilities through the whole engine, on both devices.

use crate::models::craft::Checkpoint;
use crate::support::{On, Rows, World, shared};
use std::sync::{Arc, Mutex};
use tilewright::base::{
    Activations, Format, KvType, Limits, Preemption, PrefixCache, SequenceId, threefry2x32,
};
use tilewright::engine::{Completion, GenerateRequest, LoadOptions, choice_seed, fable};
use tilewright::trace::{Event, RingSink};
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let device = on.name();
        for (block_size, kv) in [(16, KvType::F32), (32, KvType::F16)] {
            let name = format!("share::no_bit_changes_{block_size}.{device}");
            rows.add_if(present.clone(), name, move |()| {
                let options = options(block_size, kv);
                no_bit_changes(&open(&Checkpoint::fable(2).folder(), on, &options), block_size);
            });
        }
        let name = format!("share::no_bit_changes_int8.{device}");
        rows.add_if(present.clone(), name, move |()| {
            let mut weights = Checkpoint::fable(2).folder();
            weights.quantise(Format::Q8_0);
            let plain = options(16, KvType::F32);
            let options = LoadOptions { activations: Activations::Int8, ..plain };
            no_bit_changes(&open(&weights, on, &options), 16);
        });
        // A cache of latents: one buffer a layer, where others have two.
        let path = present.clone().and_then(|()| shared("fixtures/deepseek-moe"));
        rows.add_if(path, format!("share::no_bit_changes_latent.{device}"), move |path| {
            let weights = Weights::open(&path).unwrap_or_else(|e| panic!("{e}"));
            // As many ids as Fable's tokenizer has, and more.
            let checkpoint = Checkpoint::of(&weights).tied().repeated_vocabulary(3);
            let kv = if on == On::Cpu { KvType::F32 } else { KvType::Q8 };
            no_bit_changes(&open(&checkpoint.folder(), on, &options(16, kv)), 16);
        });
        let name = format!("share::hit_of_512_computes_little.{device}");
        rows.add_if(present, name, move |()| hit_of_512(on));
    }
}

fn ids(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| 3 + threefry2x32([seed, 9], [at, 0])[0] % 1500).collect()
}

fn options(block_size: u32, kv: KvType) -> LoadOptions {
    LoadOptions {
        kv: Some(kv),
        context: Some(512),
        sequences: Some(8),
        step_tokens: Some(128),
        block_size: Some(block_size),
        ..LoadOptions::default()
    }
}

fn open(weights: &Weights, on: On, options: &LoadOptions) -> World {
    World::open(weights, on.device(), options).unwrap_or_else(|e| panic!("{e}"))
}

/// Prompts that begin alike; two of several choices, one of them at a block's edge.
fn requests() -> Vec<GenerateRequest> {
    let request = |(seed, common, own, n): (u32, u32, u32, u32)| GenerateRequest {
        prompt: [ids(1, common), ids(seed, own)].concat(),
        max_tokens: Some(10),
        ignore_eos: true,
        temperature: Some(if n == 1 { 0.0 } else { 0.9 }),
        seed: Some(u64::from(seed)),
        logprobs: Some(1),
        n: Some(n),
        ..GenerateRequest::default()
    };
    [(2, 50, 7, 1), (3, 50, 11, 3), (3, 50, 11, 1), (4, 48, 0, 2), (5, 33, 1, 1)]
        .map(request)
        .into()
}

/// The same with every choice a request of its own.
fn apart(requests: &[GenerateRequest]) -> Vec<GenerateRequest> {
    let split = requests.iter().flat_map(|r| {
        (0..r.n.unwrap_or(1)).map(move |index| GenerateRequest {
            seed: r.seed.map(|seed| choice_seed(seed, index)),
            n: None,
            ..r.clone()
        })
    });
    split.collect()
}

/// What must not change: how much was found in the cache may.
fn bits(answers: Vec<Completion>) -> Vec<Completion> {
    let strip = |mut answer: Completion| {
        answer.usage.cached_tokens = 0;
        answer
    };
    answers.into_iter().map(strip).collect()
}

/// Pieces of prompts, preemptions, and what becomes of the preempted.
#[derive(Clone, Copy, Debug)]
struct Pressure {
    step_tokens: u32,
    /// Somebody is preempted at every such step.
    every: Option<u64>,
    /// Blocks of the pool; few of them preempt by need.
    blocks: u32,
    preemption: Preemption,
}

impl Pressure {
    fn all() -> Vec<Self> {
        let none =
            Self { step_tokens: 16, every: None, blocks: 60, preemption: Preemption::Recompute };
        let mut all = vec![none, Self { step_tokens: 128, ..none }];
        for preemption in [Preemption::Recompute, Preemption::Swap, Preemption::Auto] {
            all.push(Self { step_tokens: 128, every: Some(3), preemption, ..none });
            all.push(Self { step_tokens: 48, blocks: 13, preemption, ..none });
        }
        all
    }
}

/// Prefix cache × pieces × preemption × choices × block size (and storage type).
fn no_bit_changes(world: &World, block_size: u32) {
    let requests = requests();
    let roomy = Limits { blocks: 60, ..world.limits };
    let run = |limits, requests: &[GenerateRequest], prefix_cache, every, preemption| {
        world.run_with(limits, requests, |config| {
            config.policies.prefix_cache = prefix_cache;
            config.policies.preemption = preemption;
            config.force_preemption_every = every;
        })
    };
    let alone = run(roomy, &apart(&requests), PrefixCache::Off, None, Preemption::Recompute);
    assert_eq!((alone.matched, alone.copied, alone.preempted), (0, 0, 0));
    let expected = bits(alone.all());
    assert_ne!(expected[1].ids(), expected[2].ids(), "choices differ");
    for prefix_cache in [PrefixCache::On, PrefixCache::Off] {
        for pressure in Pressure::all() {
            let Pressure { step_tokens: step_tokens_max, every, preemption, .. } = pressure;
            let blocks = pressure.blocks * 16 / block_size;
            let limits = Limits { step_tokens_max, blocks, watermark_permille: 0, ..roomy };
            let together = run(limits, &requests, prefix_cache, every, preemption);
            let what = format!("{prefix_cache}, {pressure:?}");
            assert_eq!(together.matched > 0, prefix_cache == PrefixCache::On, "{what}");
            // One at a block's edge in blocks of 16 needs no copy but of the block's last token.
            assert!(together.copied >= 3, "{what}: {} copies", together.copied);
            let pressed = every.is_some() || pressure.blocks < 60;
            assert_eq!(together.preempted > 0, pressed, "{what}");
            let may_swap = pressed && preemption != Preemption::Recompute;
            assert!(together.swapped == 0 || may_swap, "{what}: {}", together.swapped);
            // With the cache, blocks of a victim may all be there still when it returns.
            let must_swap = preemption == Preemption::Swap && prefix_cache == PrefixCache::Off;
            assert!(together.swapped > 0 || !(pressed && must_swap), "{what}");
            assert!(bits(together.all()) == expected, "{what}");
        }
    }
}

/// The first token after a prompt whose first 512 tokens are cached costs at most 15 % of what it
/// costs without; the times are printed, not judged.
fn hit_of_512(on: On) {
    let weights = fable().expect("fable");
    let options = LoadOptions {
        context: Some(640),
        sequences: Some(4),
        step_tokens: Some(64),
        ..LoadOptions::default()
    };
    let world = World::open(&weights, on.device(), &options).unwrap_or_else(|e| panic!("{e}"));
    let request = |seed: u32| GenerateRequest {
        prompt: [ids(1, 512), ids(seed, 16)].concat(),
        max_tokens: Some(1),
        ..GenerateRequest::default()
    };
    let events = Arc::new(Mutex::new(RingSink::new(1 << 12)));
    let limits = Limits { sequences_max: 1, ..world.limits };
    let answers = world
        .run_with(limits, &[request(2), request(3)], |c| c.sinks.push(Box::new(events.clone())))
        .all();
    assert_eq!((answers[0].usage.cached_tokens, answers[1].usage.cached_tokens), (0, 512));
    let events = events.lock().expect("events");
    let cost = |id: u32| {
        let (mut tokens, mut start) = (0, 0);
        for stamped in events.events() {
            match stamped.event {
                Event::SequenceAdmitted { sequence: SequenceId(s), .. } if s == id => {
                    start = stamped.micros;
                }
                Event::RowPlanned { sequence: SequenceId(s), len, .. } if s == id => tokens += len,
                Event::TokenSampled { sequence: SequenceId(s), .. } if s == id => {
                    return (tokens, stamped.micros - start);
                }
                _ => {}
            }
        }
        panic!("{id} has no token");
    };
    let (miss, hit) = (cost(0), cost(1));
    println!(
        "first token: miss {} tokens, {} µs; hit {} tokens, {} µs",
        miss.0, miss.1, hit.0, hit.1
    );
    assert!(hit.0 * 100 <= miss.0 * 15, "{hit:?} after {miss:?}");
}
