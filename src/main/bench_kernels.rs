//! `bench kernels`: single kernels beside the ceilings of the device, as a table or as JSON.

use crate::bench::described;
use crate::cli::{DeviceArgs, count, switch};
use crate::shape_args::{format, shape};
use crate::{device, print};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use tilewright::base::{Activations, Format, KvType};
use tilewright::bench::{Ceilings, KernelBench, KernelMeasured, Shape, Table, Wanted};

#[derive(Args)]
pub struct BenchKernelsArgs {
    /// Every kernel of a model of this shape: llama-3-8b, llama-3.2-1b, qwen3-0.6b, qwen3-8b,
    /// smollm2-135m or tiny.
    #[arg(long, value_name = "SHAPE", default_value = "smollm2-135m", value_parser = shape)]
    #[arg(env = "TILEWRIGHT_BENCH_SHAPE")]
    pub shape: Shape,
    /// One matrix of so many rows in place of a shape, with --cols [default: none].
    #[arg(long, value_name = "N", value_parser = count, requires = "cols")]
    #[arg(env = "TILEWRIGHT_BENCH_ROWS")]
    pub rows: Option<u32>,
    /// Its columns, a multiple of 32, or of 256 for k-quants [default: none].
    #[arg(long, value_name = "N", value_parser = count, requires = "rows")]
    #[arg(env = "TILEWRIGHT_BENCH_COLS")]
    pub cols: Option<u32>,
    /// How matrices are stored; rows that are no whole blocks are q8_0.
    #[arg(long, default_value = "q4_1,q8_0", value_delimiter = ',', value_name = "FORMAT")]
    #[arg(value_parser = format, env = "TILEWRIGHT_BENCH_FORMAT")]
    pub format: Vec<Format>,
    /// How products take their activations, by turns: f32, or int8 where the format has such a
    /// product.
    #[arg(long, default_value = "f32", value_delimiter = ',', value_name = "TYPE")]
    #[arg(env = "TILEWRIGHT_BENCH_ACTIVATIONS")]
    pub activations: Vec<Activations>,
    /// Rows of activations; to attention, sequences that decode, or tokens of one prompt.
    #[arg(long, default_value = "1,8,32,128", value_delimiter = ',', value_name = "TOKENS")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_TOKENS")]
    pub tokens: Vec<u32>,
    /// Keys that a decoding sequence has.
    #[arg(long, default_value = "1024", value_name = "N", value_parser = count)]
    #[arg(env = "TILEWRIGHT_BENCH_KEYS")]
    pub keys: u32,
    /// How keys and values are stored: f32, f16 or q8 [default: f16, f32 on software adapters and
    /// on the processor].
    #[arg(long, value_name = "TYPE", env = "TILEWRIGHT_KV_DTYPE")]
    pub kv_dtype: Option<KvType>,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

pub fn run(args: &BenchKernelsArgs) -> Result<ExitCode> {
    let (device, fma) = device::open_with_fma(&args.device)?;
    let software = device.facts().software();
    let default = if software { KvType::F32 } else { KvType::F16 };
    let kv = args.kv_dtype.unwrap_or(default);
    let (formats, tokens) = (args.format.clone(), args.tokens.clone());
    let activations = args.activations.clone();
    let wanted = Wanted { formats, activations, tokens, depth: args.keys, kv };
    let mut bench = KernelBench::new(device, fma)?;
    let (name, found) = match (args.rows, args.cols) {
        (Some(rows), Some(cols)) => {
            if !cols.is_multiple_of(32) {
                bail!("--cols {cols} is no multiple of 32");
            }
            (format!("{rows}x{cols}"), bench.matrix("mul", [rows, cols], &wanted)?)
        }
        _ => (args.shape.name.to_string(), bench.shape(&args.shape, &wanted)?),
    };
    let ceilings = bench.ceilings();
    if args.json {
        let mut out = described(&name, bench.facts(), None);
        out.insert("ceilings".into(), json!(ceilings));
        out.insert("kernels".into(), json!(found));
        print(&(serde_json::to_string_pretty(&out)? + "\n"))?;
    } else {
        print(&page(ceilings, &found))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(ceilings: Ceilings, found: &[KernelMeasured]) -> String {
    let mut out = format!("copies {:.1} GB/s", ceilings.copy_gb_per_second);
    if let Some(most) = ceilings.fma_gop_per_second {
        out += &format!(", multiply-adds {most:.1} Gop/s");
    }
    let head = ["kernel", "shape", "format", "tokens", "µs", "Gop/s", "GB/s", "of copy", "of fma"];
    let mut table = Table::new(head.into_iter().chain(["variant"]));
    for m in found {
        table.row([
            m.kernel.clone(),
            m.shape.clone(),
            m.format.unwrap_or("-").to_string(),
            m.tokens.to_string(),
            format!("{:.1}", m.micros),
            format!("{:.1}", m.gop_per_second),
            format!("{:.1}", m.gb_per_second),
            format!("{:.0} %", m.bandwidth_percent),
            m.fma_percent.map_or("-".into(), |percent| format!("{percent:.0} %")),
            m.variant.clone(),
        ]);
    }
    let by = found.first().map_or("", |m| m.by);
    out + &format!("; times by {by}\n\n{table}")
}
