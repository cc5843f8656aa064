//! `bench serve`: loads any server of the OpenAI API and tells how it held.

use crate::cli::{count, switch};
use crate::workload::read_arrivals;
use crate::{log, print};
use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tilewright::bench::serve::{Endpoint, Goal, Load, Report, plot, run as send};
use tilewright::sim::{Arrival, Lengths, Workload, draw_gaps};
use tilewright::text::strftime;

#[derive(Args)]
pub struct BenchServeArgs {
    /// Address of the server, such as http://127.0.0.1:8421.
    pub url: String,
    /// Model to ask for [default: the first that the server lists].
    #[arg(short, long, value_name = "NAME", env = "TILEWRIGHT_BENCH_MODEL")]
    pub model: Option<String>,
    /// Key to bring [default: none].
    #[arg(long, value_name = "KEY", hide_env_values = true, env = "TILEWRIGHT_API_KEY")]
    pub api_key: Option<String>,
    /// Ask the chat route, not the one for plain completions [default: false].
    #[arg(long, env = "TILEWRIGHT_BENCH_CHAT", value_parser = switch())]
    pub chat: bool,
    /// Longest time for one request, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = count)]
    #[arg(env = "TILEWRIGHT_BENCH_TIMEOUT")]
    pub timeout: u32,
    /// Requests, or of a trace the first so many.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count)]
    #[arg(env = "TILEWRIGHT_BENCH_NUM_PROMPTS", help_heading = "Traffic")]
    pub num_prompts: u32,
    /// Requests per second; inf sends all at once, and leaves a trace its own times.
    #[arg(long, value_name = "RATE", default_value = "inf", value_parser = rate)]
    #[arg(env = "TILEWRIGHT_BENCH_REQUEST_RATE", help_heading = "Traffic")]
    pub request_rate: f64,
    /// Shape of the gamma distribution of the times between requests: 1 is Poisson, less is
    /// burstier, more is steadier.
    #[arg(long, value_name = "SHAPE", default_value = "1", value_parser = shape)]
    #[arg(env = "TILEWRIGHT_BENCH_BURSTINESS", help_heading = "Traffic")]
    pub burstiness: f64,
    /// Requests in flight at most [default: no limit].
    #[arg(long, value_name = "N", value_parser = count)]
    #[arg(env = "TILEWRIGHT_BENCH_MAX_CONCURRENCY", help_heading = "Traffic")]
    pub max_concurrency: Option<u32>,
    /// Arrivals and lengths from a file of a kind that `sim` reads, plain or gzip: a recording,
    /// Azure's lines, Mooncake's or ShareGPT's [default: drawn].
    #[arg(long, alias = "dataset-path", value_name = "FILE", env = "TILEWRIGHT_BENCH_TRACE")]
    #[arg(help_heading = "Traffic")]
    pub trace: Option<PathBuf>,
    /// Mean words per prompt.
    #[arg(long, alias = "random-input-len", value_name = "WORDS", default_value = "128")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_INPUT_LEN", help_heading = "Traffic")]
    pub input_len: u32,
    /// Mean tokens per answer.
    #[arg(long, alias = "random-output-len", value_name = "TOKENS", default_value = "64")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_OUTPUT_LEN", help_heading = "Traffic")]
    pub output_len: u32,
    /// Standard deviation of lengths as a share of their mean; 0 gives every request the mean.
    #[arg(long, value_name = "X", default_value = "0", value_parser = share)]
    #[arg(env = "TILEWRIGHT_BENCH_LENGTH_CV", help_heading = "Traffic")]
    pub length_cv: f64,
    /// Different beginnings that prompts share; each prompt has one of them.
    #[arg(long, value_name = "N", default_value_t = 0, env = "TILEWRIGHT_BENCH_PREFIXES")]
    #[arg(help_heading = "Traffic")]
    pub prefixes: u32,
    /// Words of each such beginning.
    #[arg(long, alias = "random-prefix-len", value_name = "WORDS", default_value_t = 0)]
    #[arg(env = "TILEWRIGHT_BENCH_PREFIX_LEN", help_heading = "Traffic")]
    pub prefix_len: u32,
    /// Go on to the wanted length after end tokens [default: false].
    #[arg(long, env = "TILEWRIGHT_BENCH_IGNORE_EOS", value_parser = switch())]
    #[arg(help_heading = "Traffic")]
    pub ignore_eos: bool,
    /// Randomness of the answers, 0 to 2 [default: the server's].
    #[arg(long, value_name = "T", env = "TILEWRIGHT_TEMPERATURE", help_heading = "Traffic")]
    pub temperature: Option<f32>,
    /// The same seed, the same traffic.
    #[arg(long, value_name = "SEED", default_value_t = 0, env = "TILEWRIGHT_SEED")]
    #[arg(help_heading = "Traffic")]
    pub seed: u64,
    /// Limits of a good request in ms: ttft:MS, tpot:MS, e2el:MS, separated by commas [default:
    /// none].
    #[arg(long, value_delimiter = ',', value_name = "LIMIT", value_parser = Goal::parse)]
    #[arg(env = "TILEWRIGHT_BENCH_GOODPUT", help_heading = "Result")]
    pub goodput: Vec<Goal>,
    /// Percentiles that are told, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "P", default_value = "99")]
    #[arg(env = "TILEWRIGHT_BENCH_METRIC_PERCENTILES", help_heading = "Result")]
    pub metric_percentiles: Vec<f64>,
    /// Write the result to this file, with the keys of `vllm bench serve` [default: not written].
    #[arg(long, alias = "result-filename", value_name = "FILE", env = "TILEWRIGHT_BENCH_RESULT")]
    #[arg(help_heading = "Result")]
    pub result: Option<PathBuf>,
    /// Put what every request took into the result too [default: false].
    #[arg(long, env = "TILEWRIGHT_BENCH_SAVE_DETAILED", value_parser = switch())]
    #[arg(help_heading = "Result")]
    pub save_detailed: bool,
    /// Draw the result to this SVG file [default: not drawn].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_BENCH_PLOT", help_heading = "Result")]
    pub plot: Option<PathBuf>,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch(), help_heading = "Result")]
    pub json: bool,
}

pub fn run(args: &BenchServeArgs) -> Result<ExitCode> {
    let load = Load {
        url: args.url.clone(),
        key: args.api_key.clone(),
        model: args.model.clone(),
        endpoint: if args.chat { Endpoint::Chat } else { Endpoint::Completions },
        arrivals: arrivals(args)?,
        concurrency: args.max_concurrency,
        ignore_eos: args.ignore_eos,
        temperature: args.temperature,
        patience: Duration::from_secs(u64::from(args.timeout)),
    };
    let count = load.arrivals.len() as u64;
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(count),
        false => ProgressBar::hidden(),
    };
    let measured = send(&load, &|ended, _| bar.set_position(ended as u64))?;
    bar.finish_and_clear();
    let report = Report::new(measured, &args.goodput, &args.metric_percentiles);
    for error in report.errors().iter().take(3) {
        log::line(format_args!("a request failed: {error}"));
    }
    let document = report.json(settings(args, count), args.save_detailed);
    if let Some(path) = &args.result {
        let text = serde_json::to_string_pretty(&document)? + "\n";
        std::fs::write(path, text).with_context(|| format!("--result {}", path.display()))?;
    }
    if let Some(path) = &args.plot {
        std::fs::write(path, plot(&report))
            .with_context(|| format!("--plot {}", path.display()))?;
    }
    match args.json {
        true => print(&(serde_json::to_string_pretty(&document)? + "\n"))?,
        false => print(&report.table())?,
    }
    if report.completed == 0 {
        bail!("none of {count} requests was answered");
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked for, before what was found.
fn settings(args: &BenchServeArgs, count: u64) -> Map<String, Value> {
    let rate = if args.request_rate.is_finite() { json!(args.request_rate) } else { json!("inf") };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let settings = json!({
        "date": strftime("%Y%m%d-%H%M%S", since.as_secs() as i64).unwrap_or_default(),
        "label": null,
        "endpoint_type": if args.chat { "openai-chat" } else { "openai" },
        "backend": "openai",
        "client": concat!("tilewright ", env!("CARGO_PKG_VERSION")),
        "num_prompts": count,
        "request_rate": rate,
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
        "seed": args.seed,
    });
    settings.as_object().cloned().unwrap_or_default()
}

fn arrivals(args: &BenchServeArgs) -> Result<Vec<Arrival>> {
    let count = u64::from(args.num_prompts);
    let Some(path) = &args.trace else {
        let workload = Workload {
            requests: count,
            prompt: lengths(args.input_len, args.length_cv),
            output: lengths(args.output_len, args.length_cv),
            prefixes: args.prefixes,
            prefix_tokens: args.prefix_len,
            ..timing(args)
        };
        return Ok(workload.generator()?.collect());
    };
    // How many tokens they are only the server knows; prompts are made of words.
    let words = |text: &str| text.split_whitespace().count() as u32;
    let mut found = read_arrivals(path, Some(words)).context("--trace")?;
    found.truncate(count as usize);
    if args.request_rate.is_finite() {
        draw_gaps(&mut found, &timing(args))?;
    }
    Ok(found)
}

fn timing(args: &BenchServeArgs) -> Workload {
    // As vLLM has it, the shape of the gamma distribution; the deviation is its root's inverse.
    let burstiness = 1.0 / args.burstiness.sqrt();
    Workload { rate: args.request_rate, burstiness, seed: args.seed, ..Workload::default() }
}

fn lengths(mean: u32, cv: f64) -> Lengths {
    Lengths { mean: f64::from(mean), cv, max: mean.saturating_mul(16) }
}

fn rate(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|v| *v > 0.0);
    value.ok_or_else(|| "expected requests per second above 0, or inf".into())
}

fn shape(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|v| (1e-4..=1e6).contains(v));
    value.ok_or_else(|| "expected a number above 0, such as 1 or 0.5".into())
}

fn share(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|v| (0.0..=100.0).contains(v));
    value.ok_or_else(|| "expected a number of 0 or more".into())
}
