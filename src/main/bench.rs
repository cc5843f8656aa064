//! `bench model`: the shape of llama-bench, as a table or as JSON.

use crate::cli::BenchModelArgs;
use crate::model::{mib, options, sizes, told};
use crate::{device, print};
use anyhow::{Result, bail};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use tilewright::base::{Clock, MonotonicClock};
use tilewright::bench::{BenchModel, Measured};
use tilewright::engine::{LoadOptions, Sizes};
use tilewright::model::{Model, Options};
use tilewright::record::{Device, Facts};
use tilewright::weights::Weights;

pub fn run(args: &BenchModelArgs) -> Result<ExitCode> {
    let mut options = options(&args.model)?;
    let most = |list: &[u32]| list.iter().copied().max().unwrap_or(1);
    let batch = most(&args.batch);
    let depth = most(&args.depth);
    let chunk = most(&args.prompt).max(batch);
    let longest = most(&args.prompt).max(args.generate).saturating_add(depth);
    options.sequences = Some(batch);
    let (weights, name) = args.shape.weights(&args.model)?;
    let mut device = device::open(&args.model.device)?;
    options.context = options.context.or(Some(longest));
    options.step_tokens = options.step_tokens.or(Some(chunk));
    let each = args.generate.saturating_add(depth);
    let blocks = room(&weights, device.as_ref(), &options, &[(1, longest), (batch, each)])?;
    options.kv_memory = options.kv_memory.or(Some(blocks));
    let sizes = sizes(&weights, device.as_ref(), &mut options)?;
    check(args, longest, batch, &sizes.options)?;
    let start = std::time::Instant::now();
    let model = Model::load(&weights, device.as_mut(), sizes.options, &mut |_, _| {})?;
    let load_seconds = start.elapsed().as_secs_f64();
    told(&model.activations(), args.model.activations);
    let mut bench = BenchModel::new(model, device, MonotonicClock::default());
    let mut rows = Vec::new();
    for &depth in &args.depth {
        for &tokens in &args.prompt {
            rows.push(bench.prompt(tokens, depth, args.runs)?);
        }
        for &batch in &args.batch {
            rows.push(bench.generate(args.generate, batch, depth, args.runs)?);
        }
    }
    report(args, &name, &bench, &rows, load_seconds)?;
    Ok(ExitCode::SUCCESS)
}

/// Bytes of KV cache that hold any one of `tests`: sequences, and positions of each.
pub fn room(
    weights: &Weights,
    device: &dyn Device,
    options: &LoadOptions,
    tests: &[(u32, u32)],
) -> Result<u64> {
    let sizes = Sizes::choose(weights, device.facts(), options)?;
    let blocks = |&(sequences, positions): &(u32, u32)| {
        positions.div_ceil(sizes.options.block_size).saturating_mul(sequences)
    };
    Ok(sizes.kv_bytes(tests.iter().map(blocks).max().unwrap_or(1)))
}

/// What every result begins with: who measured, on what, with which sizes.
pub fn described(model: &str, facts: &Facts, options: Option<&Options>) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("model".into(), model.into());
    out.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    if let Some(commit) = option_env!("TILEWRIGHT_COMMIT") {
        out.insert("commit".into(), commit.into());
    }
    out.insert("device".into(), json!(facts));
    let Some(options) = options else { return out };
    let limits = json!({
        "context": options.context_max,
        "sequences": options.sequences_max,
        "step_tokens": options.step_tokens_max,
        "kv": options.kv.to_string(),
        "activations": options.activations.to_string(),
        "kv_blocks": options.blocks,
        "block_size": options.block_size,
    });
    out.insert("limits".into(), limits);
    out
}

/// Every sequence must find its positions in the context and its share of the KV blocks.
fn check(args: &BenchModelArgs, longest: u32, batch: u32, options: &Options) -> Result<()> {
    if longest > options.context_max {
        let context = options.context_max;
        bail!(
            "--prompt, --generate and --depth go up to {longest} tokens, a sequence may have \
             {context}: ask for fewer, or give more --ctx-size and --kv-memory"
        );
    }
    let each = options.blocks / batch * options.block_size;
    let wanted = args.generate.saturating_add(args.depth.iter().copied().max().unwrap_or(0));
    if wanted > each {
        bail!(
            "{batch} sequences have {each} tokens of KV cache each, --generate and --depth ask \
             for {wanted}: give more --kv-memory, or a smaller --batch"
        );
    }
    Ok(())
}

fn report<C: Clock>(
    args: &BenchModelArgs,
    name: &str,
    bench: &BenchModel<C>,
    rows: &[Measured],
    load_seconds: f64,
) -> Result<()> {
    let resident = resident_bytes();
    if args.json {
        let mut out = described(name, bench.facts(), Some(bench.options()));
        out.insert("load_seconds".into(), load_seconds.into());
        out.insert("resident_bytes".into(), json!(resident));
        out.insert("tests".into(), json!(rows));
        return print(&(serde_json::to_string_pretty(&out)? + "\n"));
    }
    let mut out = format!("| {:<16} | {:>5} | {:>18} |\n", "test", "batch", "tokens/s");
    out += &format!("|{}|{}:|{}:|\n", "-".repeat(18), "-".repeat(6), "-".repeat(19));
    for row in rows {
        let speed = format!("{:.2} ± {:.2}", row.mean, row.deviation);
        writeln!(out, "| {:<16} | {:>5} | {speed:>18} |", row.test, row.batch)?;
    }
    let resident = resident.map_or("unknown".to_string(), mib);
    writeln!(out, "load {load_seconds:.2} s, resident {resident}")?;
    print(&out)
}

/// Resident memory of this process, where the system says.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}
