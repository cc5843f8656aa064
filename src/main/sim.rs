//! `sim`: a workload through the real scheduler and engine loop, over a runner that computes
//! nothing.

use crate::cli::{count, switch};
use crate::policies::PolicyArgs;
use crate::print;
use crate::workload::{GoalArgs, WorkloadArgs, read_recording};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use tilewright::base::Limits;
use tilewright::bench::{summaries, waited};
use tilewright::sim::{Cost, Ran, Recorded, Roofline, Setup, simulate};
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
    /// Sequences that run at once [default: 256, a recording's own].
    #[arg(long, visible_alias = "parallel", value_name = "N", value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_NUM_SEQS", help_heading = "Engine")]
    pub max_num_seqs: Option<u32>,
    /// Tokens computed per step [default: 2048, a recording's own].
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_NUM_BATCHED_TOKENS", help_heading = "Engine")]
    pub max_num_batched_tokens: Option<u32>,
    /// KV blocks of the pool [default: what is free of 80 GB, a recording's own].
    #[arg(long, value_name = "N", value_parser = count, env = "TILEWRIGHT_KV_BLOCKS")]
    #[arg(help_heading = "Engine")]
    pub kv_blocks: Option<u32>,
    /// Positions per sequence, prompt and output [default: 8192, a recording's own].
    #[arg(short, long, alias = "max-model-len", value_name = "TOKENS", value_parser = count)]
    #[arg(env = "TILEWRIGHT_CTX_SIZE", help_heading = "Engine")]
    pub ctx_size: Option<u32>,
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
                let (_, events) = read_recording(file.as_ref()).with_context(|| {
                    format!("--hardware {file}: neither h100-8b nor a recording")
                })?;
                let recorded = Recorded::read(&events).with_context(|| file.to_string())?;
                let cost = recorded.cost.ok_or_else(|| anyhow!("{file} has no steps"))?;
                (Cost::Fitted(cost), recorded.block_picos, recorded.limits)
            }
        };
        for (asked, field) in [
            (self.max_num_seqs, &mut limits.sequences_max),
            (self.max_num_batched_tokens, &mut limits.step_tokens_max),
            (self.kv_blocks, &mut limits.blocks),
            (self.ctx_size, &mut limits.context_max),
        ] {
            *field = asked.unwrap_or(*field);
        }
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
        let header = Header { model: "simulated".to_string(), ..Header::default() };
        let sink = FileSink::patient(path, &header);
        let sink = Arc::new(Mutex::new(sink.with_context(|| format!("--out {}", path.display()))?));
        written = Some((path, sink.clone()));
        sinks.push(Box::new(sink));
    }
    let tenant = |(name, weight): &(String, u32)| {
        let number = name.strip_prefix("tenant-").unwrap_or(name).parse().ok();
        Some((number?, *weight))
    };
    let weights = args.policies.tenant_weight.iter().map(tenant).collect::<Option<_>>();
    let weights = weights.context("--tenant-weight: tenants of a workload are tenant-1, …")?;
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
    if ran.too_long > 0 {
        let (many, all) = (ran.too_long, ran.requests);
        out += &format!(
            "{many} of {all} requests are longer than the context or the KV cache and were left \
             out: more --ctx-size or --kv-blocks takes them\n"
        );
    }
    print(&out)
}
