//! `replay`: a recording run again on its model; exits 1 where something comes out otherwise.

use crate::cli::ReplayArgs;
use crate::workload::read_recording;
use crate::{device, model, print};
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use tilewright::base::{Invariance, MonotonicClock};
use tilewright::engine::{
    Difference, Known, LoadOptions, Replayed, Sizes, load, recorded_limits, replay,
};
use tilewright::trace::{Event, Work};

pub fn run(args: ReplayArgs) -> Result<ExitCode> {
    let (header, events) = read_recording(&args.file)?;
    let name = args.file.display();
    let limits = recorded_limits(&events).with_context(|| {
        format!("{name} does not tell the engine's limits: record from the start")
    })?;
    limits.check().with_context(|| format!("{name}, LimitsChanged"))?;
    let made = header.engine.unwrap_or_default();
    let weights = model::quantised(&args.model, args.quantize.as_deref())?;
    let mut device = args.device.clone();
    if made.invariance == Invariance::Off {
        device.invariance = Invariance::Off;
    }
    let device = device::open(&device)?;
    let mut options = LoadOptions {
        context: Some(limits.context_max),
        sequences: Some(limits.sequences_max),
        step_tokens: Some(limits.step_tokens_max),
        kv: made.kv,
        activations: made.activations,
        block_size: Some(limits.block_size),
        ..LoadOptions::default()
    };
    // As many blocks as there were.
    let sizes = Sizes::choose(&weights, device.facts(), &options)?;
    options.kv_memory = Some(sizes.kv_bytes(limits.blocks));
    let sizes = model::sizes(&weights, device.as_ref(), &mut options)?;
    let (blocks, wanted) = (sizes.options.blocks, limits.blocks);
    if blocks < wanted {
        bail!(
            "{name} had {wanted} KV blocks, {blocks} fit here: free memory, or another --adapter"
        );
    }
    let clock = MonotonicClock::default();
    let loaded = load(&weights, device, &sizes, &options, &clock, &mut |_, _| {})?;
    let mut notes = Vec::new();
    let (now, then) = (&loaded.card.name, &header.model);
    if !then.is_empty() && now != then {
        notes.push(format!("the recording is of {then}, the model at hand is {now}"));
    }
    let (now, then) = (&loaded.runner.facts().name, &made.device);
    if !then.is_empty() && now != then {
        notes.push(format!("recorded on {then}, replayed on {now}: bits may differ"));
    }
    let measured = made.measured.iter();
    let measured = measured.map(|&(tokens, pairs, micros)| (Work { tokens, pairs }, micros));
    let known = Known { measured: measured.collect(), block_picos: made.block_picos };
    let replayed = replay(loaded.runner, loaded.card, known, &events);
    let replayed = replayed.with_context(|| name.to_string())?;
    report(&args, &replayed, &notes)?;
    Ok(if replayed.difference.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(args: &ReplayArgs, replayed: &Replayed, notes: &[String]) -> Result<()> {
    if args.json {
        let difference = replayed.difference.as_ref().map(|d| {
            serde_json::json!({
                "step": d.step,
                "seq": d.seq,
                "recorded": d.recorded,
                "replayed": d.replayed,
            })
        });
        let json = serde_json::json!({
            "requests": replayed.requests,
            "steps": replayed.steps,
            "tokens": replayed.tokens,
            "preemptions": replayed.preemptions,
            "unfinished": replayed.unfinished,
            "difference": difference,
            "notes": notes,
        });
        return print(&(serde_json::to_string_pretty(&json)? + "\n"));
    }
    let mut out: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
    let Replayed { requests, steps, tokens, preemptions, unfinished, .. } = replayed;
    out += &match &replayed.difference {
        None => format!(
            "the same: {requests} requests, {steps} steps, {tokens} tokens, {preemptions} \
             preemptions\n"
        ),
        Some(difference) => told(difference),
    };
    if *unfinished > 0 {
        out += "the recording ends within a step: it was cut off, or the engine failed there\n";
    }
    print(&out)
}

/// Where a replay leaves its recording.
fn told(difference: &Difference) -> String {
    let Difference { step, seq, recorded, replayed } = difference;
    if let (
        Some(Event::TokenSampled { sequence, position, token: then }),
        Some(Event::TokenSampled { sequence: of, position: at, token: now }),
    ) = (recorded, replayed)
        && (sequence, position) == (of, at)
    {
        return format!(
            "step {step} differs: the token at position {position} of sequence {sequence} was \
             {then} and is {now} now\n"
        );
    }
    let said = |event: &Option<Event>| match event {
        Some(event) => serde_json::to_string(event).unwrap_or_default(),
        None => "nothing".to_string(),
    };
    format!(
        "step {step} differs at event {seq}:\n  recorded: {}\n  replayed: {}\n",
        said(recorded),
        said(replayed)
    )
}
