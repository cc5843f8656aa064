//! Rows of `company`: a request's bits do not depend on what else the engine does. Logits through
//! the model by hand, ids and logprobs through the whole engine, on both devices. Bits are
//! compared, not tolerances.

use crate::models::craft::{Checkpoint, EMBEDDING};
use crate::support::{Decoder, On, Rows, World, shared};
use half::f16;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tilewright::base::{
    Activations, Admission, Batching, Format, KvType, Limits, Order, Policies, Preemption, Prefill,
    Victim,
};
use tilewright::engine::{EngineState, GenerateError, GenerateRequest, LoadOptions, fable};
use tilewright::model::Options;
use tilewright::trace::{Event, RingSink};
use tilewright::weights::Weights;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let device = on.name();
        for (name, kv) in [
            ("qwen3-moe", KvType::F32),
            ("gemma2", KvType::F32),
            ("deepseek-moe", KvType::F32),
            ("deepseek-mla", KvType::F16),
            ("deepseek-mla", KvType::Q8),
        ] {
            let path = present.clone().and_then(|()| shared(&format!("fixtures/{name}")));
            rows.add_if(path, format!("company::{name}_{kv}.{device}"), move |p| {
                family(&p, on, kv)
            });
        }
        for kv in KvType::ALL {
            let row = format!("company::logits_{kv}.{device}");
            rows.add_if(present.clone(), row, move |()| {
                logits(on, &Checkpoint::fable(2).folder(), kv, Activations::F32);
            });
        }
        for format in [Format::Q8_0, Format::Q4_0] {
            let row = format!("company::logits_int8_{format}.{device}");
            rows.add_if(present.clone(), row, move |()| {
                let mut weights = Checkpoint::fable(2).folder();
                weights.quantise(format);
                logits(on, &weights, KvType::F32, Activations::Int8);
            });
        }
        rows.add_if(present.clone(), format!("company::kv_overflow.{device}"), move |()| {
            kv_overflow(on);
        });
        rows.add_if(present.clone(), format!("company::tiny_pool_q8.{device}"), move |()| {
            tiny_pool(on, KvType::Q8);
        });
        rows.add_if(present.clone(), format!("company::partials_run_out.{device}"), move |()| {
            partials_run_out(on);
        });
        rows.add_if(present.clone(), format!("company::engine.{device}"), move |()| engine(on));
        rows.add_if(present.clone(), format!("company::tiny_pool.{device}"), move |()| {
            tiny_pool(on, KvType::F32);
        });
        rows.add_if(present.clone(), format!("company::not_finite.{device}"), move |()| {
            not_finite(on);
        });
        rows.add_if(present.clone(), format!("company::policies.{device}"), move |()| policies(on));
        rows.add_if(present.clone(), format!("company::itl_target.{device}"), move |()| {
            itl_target(on);
        });
        rows.add_if(present.clone(), format!("company::swapped.{device}"), move |()| swapped(on));
        rows.add_if(
            present,
            format!("company::static_batching_uses_a_fifth.{device}"),
            move |()| {
                static_batching_uses_a_fifth(on);
            },
        );
    }
}

/// Ids that look random, the same in every run.
fn ids(seed: u32, count: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        3 + state % 1500
    };
    (0..count).map(|_| next()).collect()
}

/// Blocks `first..first + count` of the pool in an order that scatters them.
fn table(first: u32, count: u32) -> Vec<u32> {
    // 7 has no factor in common with the pool's size, so no block is given twice.
    (first..first + count).map(|i| (i * 7 + 3) % POOL).collect()
}

type Logits = Vec<Vec<f32>>;

#[track_caller]
fn same_bits(what: &str, expected: &Logits, got: &Logits) {
    assert_eq!(expected.len(), got.len(), "{what}");
    for (n, (e, g)) in expected.iter().zip(got).enumerate() {
        let differ = e.iter().zip(g).filter(|(e, g)| e.to_bits() != g.to_bits()).count();
        assert_eq!(differ, 0, "{what}: {differ} of {} logits of step {n} differ", e.len());
    }
}

/// One sequence of a batch: what is known, and how much of it has been computed.
struct Row {
    tokens: Vec<u32>,
    table: Vec<u32>,
    done: usize,
}

impl Row {
    fn new(n: u32, tokens: Vec<u32>) -> Self {
        let first = if n == 0 { 0 } else { SUBJECT_BLOCKS + (n - 1) * 17 };
        let blocks = tokens.len().div_ceil(16) as u32;
        Self { tokens, table: table(first, blocks), done: 0 }
    }
}

impl Row {
    /// A row in a pool of 40 blocks, six of them for the first.
    fn in_pool(n: u32, tokens: Vec<u32>) -> Self {
        let first = if n == 0 { 0 } else { 3 + n * 3 };
        let blocks = tokens.len().div_ceil(16) as u32;
        // 7 has no factor in common with the pool's size.
        let table = (first..first + blocks).map(|i| (i * 7 + 3) % 40).collect();
        Self { tokens, table, done: 0 }
    }
}

const CONTEXT: u32 = 1152;
/// Blocks of a decoder of that context; see `Decoder::options`.
const POOL: u32 = 4 * CONTEXT.div_ceil(16) + 16;

/// Runs `count` more tokens of each chosen row, in this order; the last position's logits of each.
fn step(decoder: &mut Decoder, rows: &mut [Row], chosen: &[(usize, usize)]) -> Logits {
    decoder.batch.clear();
    for &(n, count) in chosen {
        let row = &mut rows[n];
        let part = &row.tokens[row.done..row.done + count];
        let first = decoder.batch.push_row(part, row.done as u32, &row.table);
        decoder.batch.samples.push((first + count as u32 - 1, Default::default()));
        row.done += count;
    }
    decoder.batch.logits = true;
    let bytes = decoder.run();
    decoder.model.logits(&decoder.batch, &bytes)
}

/// More keys than two splits have: single tokens run as three work items with a merge, whose
/// order would show.
const PROMPT: usize = 560;
const AFTER: usize = 4;
const SUBJECT_BLOCKS: u32 = 40;

/// The subject by itself: the prompt in chunks, then one token at a time.
fn alone(decoder: &mut Decoder, tokens: &[u32], chunk: usize) -> Logits {
    let mut rows = [Row::new(0, tokens.to_vec())];
    let mut last = Vec::new();
    while rows[0].done < PROMPT {
        let count = chunk.min(PROMPT - rows[0].done);
        last = step(decoder, &mut rows, &[(0, count)]);
    }
    for _ in 0..AFTER {
        last.extend(step(decoder, &mut rows, &[(0, 1)]));
    }
    last
}

fn logits(on: On, weights: &Weights, kv: KvType, activations: Activations) {
    let options = Options { kv, activations, ..Decoder::options(CONTEXT) };
    let decoder = Decoder::sized(weights, on.device(), options);
    let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(decoder.model.options.blocks, POOL);
    let tokens = ids(1, PROMPT + AFTER);
    let expected = alone(&mut decoder, &tokens, PROMPT);
    for chunk in [16, 64, 100] {
        same_bits(&format!("chunks of {chunk}"), &expected, &alone(&mut decoder, &tokens, chunk));
    }
    // All in one row: splits are folded inside the kernel.
    decoder.batch.clear();
    decoder.batch.push_row(&tokens, 0, &table(0, SUBJECT_BLOCKS));
    let wanted = PROMPT - 1..PROMPT + AFTER;
    decoder.batch.samples.extend(wanted.map(|at| (at as u32, Default::default())));
    decoder.batch.logits = true;
    let bytes = decoder.run();
    let whole = decoder.model.logits(&decoder.batch, &bytes);
    same_bits("one row", &expected, &whole);

    // Among 15 others of many lengths, which prefill and decode beside it in the same steps.
    let lengths = [272, 270, 257, 256, 255, 200, 120, 64, 33, 32, 17, 16, 15, 9, 7];
    let others = (1..).zip(lengths).map(|(n, len)| Row::new(n, ids(n + 1, len)));
    let mut rows: Vec<Row> = std::iter::once(Row::new(0, tokens.clone())).chain(others).collect();
    let mut got = Vec::new();
    for turn in 0.. {
        let left = |n: usize, row: &Row| match n {
            0 if row.done < PROMPT => 100.min(PROMPT - row.done),
            0 => usize::from(row.done < row.tokens.len()),
            // Odd rows go one by one, even ones in chunks.
            n => (1 + (n + 1) % 2 * 20).min(row.tokens.len() - row.done),
        };
        let mut chosen: Vec<_> = rows.iter().enumerate().map(|(n, r)| (n, left(n, r))).collect();
        chosen.retain(|c| c.1 > 0);
        let count = chosen.len();
        chosen.rotate_left(turn % count.max(1));
        let Some(at) = chosen.iter().position(|c| c.0 == 0) else { break };
        let all = step(&mut decoder, &mut rows, &chosen);
        if rows[0].done >= PROMPT {
            got.push(all[at].clone());
        }
    }
    same_bits("among others", &expected, &got);

    // The comparison sees a difference: one other token long before.
    let mut other = tokens;
    other[5] ^= 1;
    assert_ne!(expected, alone(&mut decoder, &other, PROMPT));
}

/// A family with what others lack: its logits alone, in chunks, and among others.
fn family(folder: &Path, on: On, kv: KvType) {
    const KEYS: usize = 80;
    let weights = Weights::open(folder).unwrap_or_else(|e| panic!("{e}"));
    let options = Options { kv, ..Decoder::options(96) };
    let decoder = Decoder::sized(&weights, on.device(), options);
    let mut decoder = decoder.unwrap_or_else(|e| panic!("{e}"));
    let ids = |seed, count| ids(seed, count).iter().map(|id| id % 600).collect::<Vec<u32>>();
    let tokens = ids(1, KEYS + 2);
    // Alone: the prompt in chunks, then token by token.
    let mut by = |chunk: usize, tokens: &[u32]| {
        let mut rows = [Row::in_pool(0, tokens.to_vec())];
        let mut last = Vec::new();
        while rows[0].done < tokens.len() {
            let left = if rows[0].done < KEYS { KEYS - rows[0].done } else { 1 };
            let logits = step(&mut decoder, &mut rows, &[(0, chunk.min(left))]);
            if rows[0].done >= KEYS {
                last.extend(logits);
            }
        }
        last
    };
    let expected = by(KEYS, &tokens);
    for chunk in [7, 64] {
        same_bits(&format!("chunks of {chunk}"), &expected, &by(chunk, &tokens));
    }
    let mut other = tokens.clone();
    other[KEYS - 3] ^= 1;
    assert_ne!(expected, by(KEYS, &other), "the comparison sees a difference");
    let lengths = [33, 17, 9, 1];
    let others = (1..).zip(lengths).map(|(n, len)| Row::in_pool(n, ids(n + 1, len)));
    let mut rows: Vec<Row> = std::iter::once(Row::in_pool(0, tokens)).chain(others).collect();
    let mut got = Vec::new();
    while rows[0].done < rows[0].tokens.len() {
        let left = |n: usize, row: &Row| match n {
            0 if row.done < KEYS => 30.min(KEYS - row.done),
            0 => 1,
            n => (1 + n % 2 * 12).min(row.tokens.len() - row.done),
        };
        let mut chosen: Vec<_> = rows.iter().enumerate().map(|(n, r)| (n, left(n, r))).collect();
        chosen.retain(|c| c.1 > 0);
        chosen.reverse();
        let at = chosen.iter().position(|c| c.0 == 0).expect("the subject");
        let all = step(&mut decoder, &mut rows, &chosen);
        if rows[0].done >= KEYS {
            got.push(all[at].clone());
        }
    }
    same_bits("among others", &expected, &got);
}

/// More split rows than there are slots for partials: the rest fold in the kernel, same bits.
fn partials_run_out(on: On) {
    let weights = Checkpoint::fable(1).folder();
    let mut decoder = Decoder::of(&weights, on, CONTEXT);
    let tokens = ids(2, 1101);
    let table = table(0, 70);
    for (n, part) in tokens[..1100].chunks(550).enumerate() {
        decoder.batch.clear();
        decoder.batch.push_row(part, n as u32 * 550, &table);
        decoder.run();
    }
    let mut decode = |copies: usize| {
        decoder.batch.clear();
        for _ in 0..copies {
            // Every copy writes the same key and value to the same place.
            let at = decoder.batch.push_row(&tokens[1100..], 1100, &table);
            decoder.batch.samples.push((at, Default::default()));
        }
        decoder.batch.logits = true;
        let bytes = decoder.run();
        decoder.model.logits(&decoder.batch, &bytes)
    };
    let one = decode(1);
    // 128 rows of five splits each; 512 fit.
    for row in decode(128) {
        same_bits("a copy", &one, &vec![row]);
    }
}

/// Sixteen requests: long and short, greedy and sampled, with and without penalties.
pub fn requests() -> Vec<GenerateRequest> {
    let lengths = [300, 15, 40, 270, 7, 64, 128, 33, 90, 16, 17, 31, 256, 257, 5, 1];
    let request = |(n, len): (u32, usize)| GenerateRequest {
        prompt: ids(n + 100, len),
        max_tokens: Some(24),
        ignore_eos: true,
        temperature: Some(if n % 2 == 0 { 0.0 } else { 0.9 }),
        top_p: (n % 3 == 0).then_some(0.8),
        top_k: (n % 5 == 1).then_some(40),
        repetition_penalty: (n % 4 == 3).then_some(1.2),
        frequency_penalty: (n % 4 == 2).then_some(0.5),
        seed: Some(u64::from(n) + 7),
        logprobs: Some(3),
        ..GenerateRequest::default()
    };
    (0..).zip(lengths).map(request).collect()
}

pub fn options(step_tokens: u32) -> LoadOptions {
    LoadOptions {
        context: Some(512),
        sequences: Some(16),
        step_tokens: Some(step_tokens),
        ..LoadOptions::default()
    }
}

fn engine(on: On) {
    let weights = Checkpoint::fable(2).folder();
    let world = World::open(&weights, on.device(), &options(512)).unwrap_or_else(|e| panic!("{e}"));
    let requests = requests();
    let roomy = Limits { blocks: 200, ..world.limits };
    let together = world.run(roomy, &requests);
    assert_eq!(together.preempted, 0);
    let expected = together.all();
    for step_tokens in [16, 64] {
        let outcome = world.run(Limits { step_tokens_max: step_tokens, ..roomy }, &requests);
        assert!(outcome.mixed > 0, "decode and prefill in one step");
        assert!(outcome.all() == expected, "{step_tokens} tokens per step");
    }
    let tight = world.run(Limits { blocks: 26, step_tokens_max: 64, ..roomy }, &requests);
    assert!(tight.preempted > 0);
    assert!(tight.all() == expected, "after preemption");
    for n in [0, 1, 3, 7, 10, 15] {
        let alone = world.run(roomy, &requests[n..=n]).all();
        assert!(alone[0] == expected[n], "request {n} alone");
    }
    // Another seed gives another text: the sampled rows do depend on something.
    let other = GenerateRequest { seed: Some(99), ..requests[3].clone() };
    assert_ne!(world.run(roomy, &[other]).all()[0].ids(), expected[3].ids());
}

fn tiny_pool(on: On, kv: KvType) {
    let weights = fable().expect("fable");
    let options = LoadOptions { kv: Some(kv), ..options(64) };
    let world = World::open(&weights, on.device(), &options).unwrap_or_else(|e| panic!("{e}"));
    let request = |n: u32| GenerateRequest {
        prompt: ids(n + 200, 20 + 5 * n as usize),
        max_tokens: Some(30),
        ignore_eos: true,
        temperature: Some(if n.is_multiple_of(3) { 0.7 } else { 0.0 }),
        seed: Some(u64::from(n)),
        logprobs: Some(0),
        ..GenerateRequest::default()
    };
    let requests: Vec<_> = (0..12).map(request).collect();
    let roomy = world.run(Limits { blocks: 200, ..world.limits }, &requests);
    assert_eq!(roomy.preempted, 0);
    let tiny = world.run(Limits { blocks: 24, ..world.limits }, &requests);
    assert!(tiny.preempted > 0);
    assert!(tiny.all() == roomy.all(), "pressure changed an answer");
}

/// Case 45: values that f16 cannot hold end their request with an error; f32 holds them.
fn kv_overflow(on: On) {
    let mut checkpoint = Checkpoint::fable(2);
    // The last layer's values a million times as large, and its output as much smaller.
    for (part, factor) in [("v_proj", 1e6f32), ("o_proj", 1e-6)] {
        let name = format!("model.layers.1.self_attn.{part}.weight");
        let stored = checkpoint.tensors.get_mut(&name).expect("a matrix");
        let values: Vec<f32> = stored.values().iter().map(|v| v * factor).collect();
        (stored.format, stored.bytes) = (Format::F32, bytemuck::cast_slice(&values).to_vec());
    }
    let weights = checkpoint.folder();
    let mut requests = requests();
    requests.truncate(2);
    let run = |kv| {
        let options = LoadOptions { kv: Some(kv), ..options(64) };
        let world = World::open(&weights, on.device(), &options);
        let world = world.unwrap_or_else(|e| panic!("{e}"));
        world.run(world.limits, &requests)
    };
    run(KvType::F32).all();
    run(KvType::Q8).all();
    let half = run(KvType::F16);
    assert_eq!(half.state, EngineState::Serving);
    for answer in half.answers {
        let error = answer.expect_err("values beyond f16");
        assert_eq!(error, GenerateError::NonFinite);
        assert!(error.to_string().contains("--kv-dtype f32"), "{error}");
    }
}

/// A token whose embedding is not a number: its request ends, nobody else's bits change, not
/// even of those that get its blocks afterwards.
fn not_finite(on: On) {
    const POISON: u32 = 777;
    let mut checkpoint = Checkpoint::fable(2).untied();
    let clean = checkpoint.folder();
    let embedding = checkpoint.tensors.get_mut(EMBEDDING).expect("an embedding");
    assert_eq!(embedding.format, Format::F16);
    let row = embedding.bytes.len() / embedding.shape[0] as usize;
    let nan = f16::NAN.to_le_bytes().repeat(row / 2);
    embedding.bytes[POISON as usize * row..][..row].copy_from_slice(&nan);
    let poisoned = checkpoint.folder();

    let mut requests = requests();
    requests.truncate(8);
    for request in &mut requests {
        request.prompt.retain(|id| *id != POISON);
    }
    let open =
        |weights| World::open(weights, on.device(), &options(64)).unwrap_or_else(|e| panic!("{e}"));
    let world = open(&clean);
    let expected = world.run(world.limits, &requests).all();
    let world = open(&poisoned);
    let mut bad = requests[2].clone();
    bad.prompt[20] = POISON;
    // A pool so small that the others take the blocks of the one that ended.
    let limits = Limits { blocks: 40, ..world.limits };
    let mut all = requests.clone();
    all.insert(0, bad);
    let outcome = world.run(limits, &all);
    assert_eq!(outcome.state, EngineState::Serving);
    let mut answers = outcome.answers.into_iter();
    assert_eq!(answers.next().expect("nine"), Err(GenerateError::NonFinite));
    for (n, (answer, expected)) in answers.zip(&expected).enumerate() {
        assert!(answer.as_ref() == Ok(expected), "neighbour {n}: {answer:?}");
    }
    let after = world.run(limits, &requests).all();
    assert!(after == expected, "requests after it");
}

/// Whatever is scheduled how, padded, or sent back to the queue at every third step, on one small
/// pool: every request gets the same answer to the bit.
fn policies(on: On) {
    let weights = Checkpoint::fable(2).folder();
    // Room for any prompt in one step: who loses its work every third step must redo it in two.
    let world = World::open(&weights, on.device(), &options(512)).unwrap_or_else(|e| panic!("{e}"));
    let mut requests = requests()[4..12].to_vec();
    (0..).zip(&mut requests).for_each(|(n, r)| r.max_tokens = Some(6 + 5 * n));
    let requests = &requests[..];
    let roomy = Limits { blocks: 200, ..world.limits };
    let expected = world.run(roomy, requests).all();
    let with = |every: Option<u64>, change: &dyn Fn(&mut Policies)| {
        let limits = Limits { blocks: 40, ..world.limits };
        world.run_with(limits, requests, |config| {
            change(&mut config.policies);
            config.force_preemption_every = every;
        })
    };
    let padded = with(None, &|p| p.batching = Batching::Static { size: 4 });
    assert!(padded.padded > 0);
    assert!(padded.all() == expected, "in static batches");
    let forced = with(Some(3), &|_| {});
    assert!(forced.preempted > 10, "{}", forced.preempted);
    assert!(forced.all() == expected, "retracted at every third step");
    let all = with(Some(5), &|p| {
        p.batching = Batching::Dynamic { size: 3, timeout_ms: 0 };
        p.prefill = Prefill::PrefillFirst;
        p.admission = Admission::ExactPeak;
        p.order = Order::Shortest;
        p.victim = Victim::LeastLost;
        p.itl_target_micros = Some(1);
    });
    assert!(all.all() == expected, "everything else at once");
}

/// A target for the time of a step, on a device that nobody tuned: prompts are cut to it, and no
/// answer changes. How well it is held is printed, not judged.
fn itl_target(on: On) {
    let weights = Checkpoint::fable(2).folder();
    let world = World::open(&weights, on.device(), &options(256)).unwrap_or_else(|e| panic!("{e}"));
    let request = |n: u32| GenerateRequest {
        prompt: ids(n + 400, if n < 4 { 8 } else { 250 }),
        max_tokens: Some(if n < 4 { 60 } else { 4 }),
        ignore_eos: true,
        temperature: Some(0.0),
        ..GenerateRequest::default()
    };
    let requests: Vec<_> = (0..12).map(request).collect();
    let run = |target: Option<u32>| {
        let events = Arc::new(Mutex::new(RingSink::new(1 << 14)));
        let outcome = world.run_with(world.limits, &requests, |config| {
            config.policies.itl_target_micros = target;
            config.sinks.push(Box::new(events.clone()));
        });
        let (mut micros, mut chosen, mut widest) = (Vec::new(), 0, 0);
        for stamped in events.lock().expect("events").events() {
            match stamped.event {
                Event::StepRan { plan_micros, build_micros, device_micros, .. } => {
                    micros.push(plan_micros + build_micros + device_micros);
                }
                Event::StepPlanned { tokens, decode: 1.., .. } => widest = widest.max(tokens),
                Event::BudgetChosen { .. } => chosen += 1,
                _ => {}
            }
        }
        micros.sort_unstable();
        (outcome.all(), micros, chosen, widest)
    };
    let (expected, free, chosen, widest) = run(None);
    assert_eq!((chosen, widest), (0, 256));
    let at = |micros: &[u64], percent: usize| micros[(micros.len() - 1) * percent / 100];
    // Twice a step that only decodes.
    let target = u32::try_from(2 * at(&free, 25)).expect("a step is short").max(1);
    for (target, what) in [(target, "twice a decode"), (1, "one that cannot be met")] {
        let (answers, micros, chosen, widest) = run(Some(target));
        assert!(answers == expected, "target {target} µs changed an answer");
        assert!(chosen > 0, "a budget is told");
        println!(
            "target {target} µs ({what}): steps of {} at the median, {} at 90 %, {} at most, up to \
             {widest} tokens; without a target {}, {}, {}",
            at(&micros, 50),
            at(&micros, 90),
            at(&micros, 100),
            at(&free, 50),
            at(&free, 90),
            at(&free, 100)
        );
    }
}

/// Preempted to host memory and brought back, by need and by force, with much room there and with
/// little: the same answers to the bit, at every storage type of the cache.
fn swapped(on: On) {
    let weights = Checkpoint::fable(2).folder();
    for kv in [KvType::F32, KvType::Q8] {
        let options = LoadOptions { kv: Some(kv), swap_memory: Some(8 << 20), ..options(512) };
        let world = World::open(&weights, on.device(), &options).unwrap_or_else(|e| panic!("{e}"));
        assert!(world.limits.host_blocks > 60, "{}", world.limits.host_blocks);
        let requests = &requests()[4..12];
        let expected = world.run(Limits { blocks: 200, ..world.limits }, requests).all();
        for (host_blocks, every) in [(60, None), (60, Some(3)), (4, Some(3))] {
            let limits = Limits { blocks: 14, host_blocks, ..world.limits };
            let outcome = world.run_with(limits, requests, |config| {
                config.policies.preemption = Preemption::Swap;
                config.force_preemption_every = every;
            });
            assert!(outcome.preempted > 0 && outcome.swapped > 0, "{host_blocks}, {every:?}");
            assert!(outcome.all() == expected, "{kv:?}, {host_blocks} host blocks, {every:?}");
        }
    }
}

/// Lengths 20 35 40 60 80 120 200 900 in one batch of 8: 1455 of 7200 places made a token.
fn static_batching_uses_a_fifth(on: On) {
    let weights = Checkpoint::fable(1).folder();
    let options = LoadOptions { context: Some(1024), ..options(128) };
    let world = World::open(&weights, on.device(), &options).unwrap_or_else(|e| panic!("{e}"));
    let lengths = [20, 35, 40, 60, 80, 120, 200, 900];
    let requests = (0..).zip(lengths).map(|(n, max)| GenerateRequest {
        prompt: ids(n + 300, 16),
        max_tokens: Some(max),
        ignore_eos: true,
        temperature: Some(0.0),
        ..GenerateRequest::default()
    });
    let requests: Vec<_> = requests.collect();
    let batched = world.run_with(world.limits, &requests, |config| {
        config.policies.batching = Batching::Static { size: 8 };
    });
    assert_eq!((batched.sampled, batched.sampled + batched.padded), (1455, 7200));
    let permille = batched.sampled * 1000 / (batched.sampled + batched.padded);
    assert_eq!(permille, 202);
}
