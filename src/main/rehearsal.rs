//! `doctor`'s rehearsal: the built-in model on the chosen device, in a pool too small for what is
//! asked of it. Prompts that begin alike, several choices, preemption to host memory and back; the
//! scheduler's every invariant is checked after each step, and each answer must be the one that
//! the request got alone, unless it may depend on company.

use anyhow::{Context, Result};
use std::sync::{Arc, Mutex};
use tilewright::base::{Invariance, KvType, MonotonicClock, Preemption};
use tilewright::engine::{
    DeviceRunner, Engine, EngineConfig, GenerateRequest, LoadOptions, Sizes, Stepped, fable, load,
};
use tilewright::record::Device;
use tilewright::trace::{Counters, Picture, RingSink, fold};

/// Blocks of 16 tokens in the pool: room for one request and a half.
const BLOCKS: u32 = 9;
/// More events than a rehearsal has.
const EVENTS_MAX: usize = 1 << 14;

/// What came of it.
pub struct Rehearsal {
    pub counters: Counters,
    pub invariance: Invariance,
    /// What is wrong, if anything.
    pub fault: Option<String>,
}

impl Rehearsal {
    /// One line for people.
    pub fn told(&self) -> String {
        let c = &self.counters;
        let end = match (&self.fault, self.invariance) {
            (Some(fault), _) => fault,
            (None, Invariance::On) => {
                "every invariant of the pool held, and each answer is that of the request alone"
            }
            (None, Invariance::Off) => {
                "every invariant of the pool held; answers may depend on company (invariance off)"
            }
        };
        format!(
            "rehearsal: {} steps of the built-in model in {BLOCKS} blocks, {} preemptions, \
             {} blocks to host memory and {} back, {} tokens found in the prefix cache, {} shared \
             by choices: {end}\n",
            c.steps, c.preempted, c.swapped_out, c.swapped_in, c.matched_tokens, c.shared_tokens
        )
    }

    pub fn json(&self) -> serde_json::Value {
        let c = &self.counters;
        serde_json::json!({
            "ok": self.fault.is_none(),
            "fault": self.fault,
            "steps": c.steps,
            "preemptions": c.preempted,
            "blocks_swapped_out": c.swapped_out,
            "blocks_swapped_in": c.swapped_in,
            "prefix_tokens": c.matched_tokens,
            "shared_tokens": c.shared_tokens,
        })
    }
}

/// Runs it.
pub fn rehearse(device: Box<dyn Device>) -> Result<Rehearsal> {
    let weights = fable()?;
    let wanted = LoadOptions {
        context: Some(128),
        sequences: Some(4),
        step_tokens: Some(64),
        kv: Some(KvType::F32),
        ..LoadOptions::default()
    };
    let invariance = device.facts().invariance;
    let sizes = Sizes::choose(&weights, device.facts(), &wanted)?;
    let clock = MonotonicClock::default();
    let loaded = load(&weights, device, &sizes, &wanted, &clock, &mut |_, _| {})?;
    let events = Arc::new(Mutex::new(RingSink::new(EVENTS_MAX)));
    let mut config = EngineConfig::new(loaded.limits, Arc::new(clock));
    config.limits.blocks = config.limits.blocks.min(BLOCKS);
    config.policies.preemption = Preemption::Swap;
    config.kv_identity = loaded.kv_identity;
    config.sinks.push(Box::new(events.clone()));
    let mut engine = Engine::new(loaded.runner, loaded.card, config);
    let fault = compare(&mut engine)?;
    let mut picture = Picture::default();
    if let Ok(events) = events.lock() {
        events.events().for_each(|event| fold(&mut picture, event));
    }
    Ok(Rehearsal { counters: picture.counters, invariance, fault })
}

/// Each request alone, then all together; the first thing that is wrong.
fn compare(engine: &mut Engine<DeviceRunner>) -> Result<Option<String>> {
    let mut alone = Vec::new();
    for (n, request) in (0..).zip(requests()) {
        let salt = Some(format!("alone {n}"));
        match turn(engine, vec![GenerateRequest { cache_salt: salt, ..request }])? {
            Ok(answers) => alone.extend(answers),
            Err(fault) => return Ok(Some(fault)),
        }
    }
    Ok(match turn(engine, requests())? {
        Err(fault) => Some(fault),
        Ok(_) if engine.handle().card().invariance == Invariance::Off => None,
        Ok(together) => {
            let differs = alone.iter().zip(&together).position(|(a, b)| a != b);
            differs.map(|n| format!("answer {n} is another beside others than it is alone"))
        }
    })
}

/// A common beginning and an end of their own; one with two choices.
fn requests() -> Vec<GenerateRequest> {
    let request = |n: u32| GenerateRequest {
        prompt: (0..40).map(|at| 300 + at * 7 % 900).chain(1000 + n * 5..1007 + n * 5).collect(),
        max_tokens: Some(20),
        ignore_eos: true,
        temperature: Some(if n == 1 { 0.9 } else { 0.0 }),
        seed: Some(u64::from(n)),
        n: Some(if n == 1 { 2 } else { 1 }),
        ..GenerateRequest::default()
    };
    (0..3).map(request).collect()
}

/// Runs requests to their end: the tokens of every choice, or the first invariant that broke.
fn turn(
    engine: &mut Engine<DeviceRunner>,
    requests: Vec<GenerateRequest>,
) -> Result<Result<Vec<Vec<u32>>, String>> {
    let mut open = Vec::new();
    for request in requests {
        open.extend(engine.handle().submit_choices(request)?);
    }
    while pollster::block_on(engine.step()) == Stepped::Ran {
        if let Err(fault) = engine.scheduler().check() {
            return Ok(Err(fault));
        }
    }
    let answer = |generation| {
        let done = pollster::block_on(tilewright::engine::Generation::collect(generation));
        done.map(|answer| answer.ids()).context("a request of the rehearsal failed")
    };
    Ok(Ok(open.into_iter().map(answer).collect::<Result<_>>()?))
}
