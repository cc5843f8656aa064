//! `bench step`: where the time of a decode step goes, as a table or as JSON.

use crate::bench::{described, room};
use crate::cli::{ModelArgs, count, switch};
use crate::model::{options, sizes, told};
use crate::shape_args::ShapeArgs;
use crate::{device, print};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use tilewright::bench::{StepBench, StepMeasured, Table};
use tilewright::model::{Model, Spec};
use tilewright::weights::Weights;

#[derive(Args)]
pub struct BenchStepArgs {
    /// Sequences that decode together.
    #[arg(long, default_value = "1,8,32", value_delimiter = ',', value_name = "N")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_BATCH")]
    pub batch: Vec<u32>,
    /// Tokens of each sequence in the cache before.
    #[arg(long, default_value_t = 0, value_name = "TOKENS", env = "TILEWRIGHT_BENCH_STEP_DEPTH")]
    pub depth: u32,
    /// Counted steps, after two that are not counted.
    #[arg(long, default_value = "16", value_name = "N")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_STEPS")]
    pub steps: u32,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    #[command(flatten)]
    pub shape: ShapeArgs,
    #[command(flatten)]
    pub model: ModelArgs,
}

pub fn run(args: &BenchStepArgs) -> Result<ExitCode> {
    let mut options = options(&args.model)?;
    let batch = args.batch.iter().copied().max().unwrap_or(1);
    let positions = StepBench::positions(args.depth, args.steps);
    options.sequences = Some(batch);
    options.step_tokens = Some(batch);
    options.context = options.context.or(Some(positions));
    let (weights, name) = args.shape.weights(&args.model)?;
    let mut device = device::open(&args.model.device)?;
    let kv = room(&weights, device.as_ref(), &options, &[(batch, positions)])?;
    options.kv_memory = options.kv_memory.or(Some(kv));
    let sizes = sizes(&weights, device.as_ref(), &mut options)?;
    let read_by_step = read_by_step(&weights, &sizes.spec);
    let model = Model::load(&weights, device.as_mut(), sizes.options, &mut |_, _| {})?;
    told(&model.activations(), args.model.activations);
    let mut bench = StepBench::new(model, device);
    let mut found = Vec::new();
    for &batch in &args.batch {
        found.push(bench.measure(batch, args.depth, args.steps)?);
    }
    if args.json {
        let mut out = described(&name, bench.facts(), Some(bench.options()));
        out.insert("weight_bytes_per_step".into(), json!(read_by_step));
        out.insert("steps".into(), json!(found));
        print(&(serde_json::to_string_pretty(&out)? + "\n"))?;
    } else {
        print(&page(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes of the weights that a step reads, whatever its batch: all but an embedding that is not the
/// head too. With experts it depends on what they are asked.
fn read_by_step(weights: &Weights, spec: &Spec) -> Option<u64> {
    let embedding = |name: &str| name.contains("token_embd") || name.contains("embed_tokens");
    let read = weights.tensors().values().filter(|t| spec.tied_head || !embedding(&t.name));
    spec.moe.is_none().then(|| read.map(|tensor| tensor.bytes).sum())
}

fn page(found: &[StepMeasured]) -> String {
    let head = [
        "µs",
        "plan",
        "record",
        "submit",
        "device",
        "readback",
        "step",
        "outside",
        "tok/s",
        "two in flight",
    ];
    let mut table = Table::new(head);
    for m in found {
        let p = &m.parts;
        let mut row = vec![format!("batch {} depth {}", m.batch, m.depth)];
        let parts = [p.plan, p.record, p.submit, p.device, p.readback, m.micros];
        row.extend(parts.map(|micros| format!("{micros:.1}")));
        row.push(format!("{:.1} %", m.outside_percent));
        row.push(format!("{:.1}", m.tokens_per_second));
        row.push(format!("{:.1}", m.micros_in_flight));
        table.row(row);
    }
    let mut out = table.to_string();
    for m in found.iter().filter(|m| !m.kernels.is_empty()) {
        let mut table = Table::new(["kernel", "launches", "µs", "share"]);
        for k in &m.kernels {
            let (micros, share) = (format!("{:.1}", k.micros), format!("{:.1} %", k.percent));
            table.row([k.kernel.to_string(), k.launches.to_string(), micros, share]);
        }
        out += &format!("\nbatch {}, launches timed one by one:\n{table}", m.batch);
    }
    out
}
