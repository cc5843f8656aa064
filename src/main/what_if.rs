//! `what-if`: a recording's requests under other policies, side by side with its own.

use crate::cli::{count, switch};
use crate::policies::PolicyArgs;
use crate::print;
use crate::workload::{GoalArgs, read_recording};
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use tilewright::bench::{summaries, waited};
use tilewright::engine::recorded_limits;
use tilewright::sim::what_if;
use tilewright::trace::{FileSink, Header, Sink, Waits};

#[derive(Args)]
pub struct WhatIfArgs {
    /// Recording made with --record, or with --out of `sim`; plain or gzip.
    pub file: PathBuf,
    /// Sequences that run at once [default: the recording's].
    #[arg(long, visible_alias = "parallel", value_name = "N", value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_NUM_SEQS", help_heading = "Engine")]
    pub max_num_seqs: Option<u32>,
    /// Tokens computed per step [default: the recording's].
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_NUM_BATCHED_TOKENS", help_heading = "Engine")]
    pub max_num_batched_tokens: Option<u32>,
    /// KV blocks of the pool [default: the recording's].
    #[arg(long, value_name = "N", value_parser = count, env = "TILEWRIGHT_KV_BLOCKS")]
    #[arg(help_heading = "Engine")]
    pub kv_blocks: Option<u32>,
    #[command(flatten)]
    pub policies: PolicyArgs,
    #[command(flatten)]
    pub goals: GoalArgs,
    /// Show what so many requests waited for, those that others delayed most first.
    #[arg(long, value_name = "N", default_value = "5", value_parser = count)]
    #[arg(env = "TILEWRIGHT_WAITS", help_heading = "Output")]
    pub waits: u32,
    /// Write every event of the other run to this file, for `view` [default: not written].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_OUT", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch(), help_heading = "Output")]
    pub json: bool,
}

pub fn run(args: &WhatIfArgs) -> Result<ExitCode> {
    let (_, events) = read_recording(&args.file)?;
    let name = args.file.display();
    let mut limits = recorded_limits(&events).with_context(|| {
        format!("{name} does not tell the engine's limits: record from the start")
    })?;
    for (asked, field) in [
        (args.max_num_seqs, &mut limits.sequences_max),
        (args.max_num_batched_tokens, &mut limits.step_tokens_max),
        (args.kv_blocks, &mut limits.blocks),
    ] {
        *field = asked.unwrap_or(*field);
    }
    let policies = args.policies.apply(&mut limits);
    let compared = what_if(&events, policies, Some(limits), args.goals.slo());
    let compared = compared.with_context(|| name.to_string())?;
    if let Some(path) = &args.out {
        let header = Header { model: "simulated".to_string(), ..Header::default() };
        let write = || {
            let mut sink = FileSink::patient(path, &header)?;
            compared.other.events.iter().for_each(|event| sink.push(event));
            sink.finish()
        };
        write().with_context(|| format!("--out {}", path.display()))?;
    }
    if args.json {
        let json = serde_json::json!({
            "recorded": compared.recorded,
            "same": {"policies": compared.same.policies, "summary": compared.same.summary},
            "other": {"policies": policies, "summary": compared.other.summary},
        });
        print(&(serde_json::to_string_pretty(&json)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let runs = [
        ("recorded", &compared.recorded),
        ("simulated", &compared.same.summary),
        ("what if", &compared.other.summary),
    ];
    print(&summaries(&runs).to_string())?;
    for (name, events) in [("recorded", &events), ("what if", &compared.other.events)] {
        let mut waits = Waits::default();
        events.iter().for_each(|event| waits.push(event));
        print(&format!("\nwaits, {name}, ms\n{}", waited(&waits, args.waits as usize)))?;
    }
    Ok(ExitCode::SUCCESS)
}
