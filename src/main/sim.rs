//! `sim`: a workload through the real scheduler and engine loop, over a runner that computes
//! nothing.

use crate::cli::{count, switch};
use crate::policies::PolicyArgs;
use crate::print;
use crate::workload::{GoalArgs, SizeArgs, WorkloadArgs, apart, read_recorded};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use tilewright::base::Limits;
use tilewright::bench::{summaries, waited};
use tilewright::sim::{Cost, Ran, Roofline, Setup, simulate};
use tilewright::trace::{FileSink, Header, Measures, Sink, Stamped, Waits};

#[derive(Args)]
pub struct SimArgs {
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// What steps take: h100-8b (the roofline of an H100 with a model of 8 billion weights in
    /// bfloat16), or a recording, whose own steps are fitted and whose sizes are taken over.
    #[arg(long, value_name = "NAME|FILE", default_value = "h100-8b", env = "TILEWRIGHT_HARDWARE")]
    #[arg(help_heading = "Engine")]
    pub hardware: String,
    #[command(flatten)]
    pub sizes: SizeArgs,
    #[command(flatten)]
    pub policies: PolicyArgs,
    #[command(flatten)]
    pub goals: GoalArgs,
    /// Show what so many requests waited for, those that others delayed most first [default: none].
    #[arg(long, value_name = "N", value_parser = count, env = "TILEWRIGHT_WAITS")]
    #[arg(help_heading = "Output")]
    pub waits: Option<u32>,
    /// Write every event to this file, for `view` [default: not written].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_OUT", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch(), help_heading = "Output")]
    pub json: bool,
}

/// Sizes of an engine for 8 billion weights on 80 GB.
fn h100() -> Limits {
    Limits {
        sequences_max: 256,
        step_tokens_max: 2048,
        context_max: 8192,
        blocks: Roofline::H100_8B.blocks(80e9, 16),
        // As much host memory as device memory.
        host_blocks: Roofline::H100_8B.blocks(80e9, 16),
        ..Limits::default()
    }
}

impl SimArgs {
    /// What steps take, and the sizes that go with it.
    fn engine(&self) -> Result<(Cost, u64, Limits)> {
        let (cost, block_picos, mut limits) = match self.hardware.as_str() {
            "h100-8b" => {
                let (roofline, limits) = (Roofline::H100_8B, h100());
                (Cost::Roofline(roofline), roofline.block_picos(limits.block_size), limits)
            }
            file => {
                let (recorded, _) = read_recorded(file.as_ref()).with_context(|| {
                    format!("--hardware {file}: neither h100-8b nor a recording")
                })?;
                let cost = recorded.cost.ok_or_else(|| anyhow!("{file} has no steps"))?;
                (Cost::Fitted(cost), recorded.block_picos, recorded.terms.limits)
            }
        };
        self.sizes.apply(&mut limits);
        Ok((cost, block_picos, limits))
    }
}

pub fn run(args: &SimArgs) -> Result<ExitCode> {
    let (cost, block_picos, mut limits) = args.engine()?;
    let policies = args.policies.apply(&mut limits);
    let measures = Arc::new(Mutex::new(Measures::new(args.goals.slo())));
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(measures.clone())];
    let waits = Arc::new(Mutex::new(Following::default()));
    if args.waits.is_some() {
        sinks.push(Box::new(waits.clone()));
    }
    let mut written = None;
    if let Some(path) = &args.out {
        apart(path, args.workload.arrivals.as_deref().into_iter().chain([args.hardware.as_ref()]))?;
        let header = Header::simulated(block_picos);
        let sink = FileSink::patient(path, &header);
        let sink = Arc::new(Mutex::new(sink.with_context(|| format!("--out {}", path.display()))?));
        written = Some((path, sink.clone()));
        sinks.push(Box::new(sink));
    }
    let weights = args.policies.numbered_weights()?;
    let concurrency = args.workload.concurrency;
    let setup = Setup { limits, policies, weights, cost, block_picos, concurrency, sinks };
    let ran = simulate(args.workload.arrivals()?, setup)?;
    if let Some((path, sink)) = written
        && let Some(sink) = Arc::into_inner(sink)
    {
        let sink = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        sink.finish().with_context(|| format!("--out {}", path.display()))?;
    }
    let measures = measures.lock().unwrap_or_else(PoisonError::into_inner);
    report(args, &ran, &measures)?;
    if let Some(many) = args.waits.filter(|_| !args.json) {
        let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
        print(&format!("\n{}", waited(&waits.0, many as usize)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What requests wait for, while they run.
#[derive(Default)]
struct Following(Waits);

impl Sink for Following {
    fn push(&mut self, event: &Stamped) {
        self.0.push(event);
    }
}

fn report(args: &SimArgs, ran: &Ran, measures: &Measures) -> Result<()> {
    let summary = measures.summary();
    if args.json {
        let json = serde_json::json!({
            "hardware": args.hardware,
            "requests": ran.requests,
            "too_long": ran.too_long,
            "shortened": ran.shortened,
            "steps": ran.steps,
            "seconds": ran.micros as f64 / 1e6,
            "summary": summary,
        });
        return print(&(serde_json::to_string_pretty(&json)? + "\n"));
    }
    let mut out = summaries(&[("simulated", &summary)]).to_string();
    if args.hardware == "h100-8b" {
        let ridge = Roofline::H100_8B.ridge();
        out += &format!("h100-8b: memory bounds a step below {ridge:.0} operations a byte\n");
    }
    for (many, what) in [
        (ran.too_long, "are longer than the context or the KV cache and were left out"),
        (ran.shortened, "came to the end of the context or the KV cache before their last token"),
    ] {
        if many > 0 {
            let all = ran.requests;
            out += &format!(
                "{many} of {all} requests {what}: more --ctx-size or --kv-blocks takes them\n"
            );
        }
    }
    print(&out)
}
