//! `what-if`: a recording's requests under other policies, side by side with its own.

use crate::cli::{count, switch};
use crate::policies::PolicyArgs;
use crate::print;
use crate::workload::{GoalArgs, SizeArgs, apart, read_recorded};
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use tilewright::bench::{summaries, waited};
use tilewright::sim::{Terms, what_if};
use tilewright::trace::{FileSink, Header, Sink, Waits};

#[derive(Args)]
pub struct WhatIfArgs {
    /// Recording made with --record, or with --out of `sim`; plain or gzip.
    pub file: PathBuf,
    #[command(flatten)]
    pub sizes: SizeArgs,
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
    if let Some(path) = &args.out {
        apart(path, [args.file.as_path()])?;
    }
    let (recorded, events) = read_recorded(&args.file)?;
    let mut limits = recorded.terms.limits;
    args.sizes.apply(&mut limits);
    let policies = args.policies.apply(&mut limits);
    let mut weights: BTreeMap<u32, u32> = recorded.terms.weights.iter().copied().collect();
    weights.extend(args.policies.numbered_weights()?);
    let other = Terms { limits, policies, weights: weights.into_iter().collect() };
    let compared = what_if(&events, &recorded, other, args.goals.slo());
    let compared = compared.with_context(|| args.file.display().to_string())?;
    if let Some(path) = &args.out {
        let header = Header::simulated(recorded.block_picos);
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
            "other": {"policies": compared.other.policies, "summary": compared.other.summary},
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
