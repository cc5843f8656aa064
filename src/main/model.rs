//! Loading a model for any face, with what a person wants to see of it.

use crate::cli::ModelArgs;
use crate::device;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use tilewright::base::{Activations, Format, MonotonicClock};
use tilewright::engine::{LoadOptions, Loaded, Sizes, fable, load};
use tilewright::record::Device;
use tilewright::weights::Weights;

/// Opens the weights called `model`.
pub fn weights(model: &str) -> Result<Weights> {
    if model == "fable" {
        return Ok(fable()?);
    }
    if let Some(name) = model.strip_prefix("hf:") {
        return Ok(Weights::open(&crate::hub::get(name)?)?);
    }
    let path = Path::new(model);
    if !path.exists() {
        bail!(
            "there is no file or folder `{model}`: -m takes `fable`, a .gguf file, a Hugging Face \
             folder, a .safetensors file, or hf:USER/REPO to fetch one"
        );
    }
    Ok(Weights::open(path)?)
}

/// Opens the weights, to be quantised as they are read if `quantize` says so.
pub fn quantised(model: &str, quantize: Option<&str>) -> Result<Weights> {
    let mut weights = weights(model)?;
    let format = Format::ALL.into_iter().find(|f| Some(f.name()) == quantize);
    if let Some(format) = format {
        weights.quantise(format);
    }
    Ok(weights)
}

pub fn options(args: &ModelArgs) -> Result<LoadOptions> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("--chat-template {}", path.display()))
    };
    Ok(LoadOptions {
        context: args.ctx_size,
        sequences: args.max_num_seqs,
        step_tokens: args.max_num_batched_tokens,
        kv_memory: args.kv_memory,
        swap_memory: args.swap_memory,
        kv: args.kv_dtype,
        activations: args.activations,
        steps_in_flight: Some(args.steps_in_flight),
        block_size: args.block_size.parse().ok(),
        name: args.served_model_name.clone(),
        template: args.chat_template.as_ref().map(read).transpose()?,
        memory: memory(),
    })
}

/// Memory this process could still use, where the system says.
fn memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The sizes, printed before anything is uploaded.
pub fn sizes(weights: &Weights, device: &dyn Device, options: &mut LoadOptions) -> Result<Sizes> {
    if !device.facts().software() {
        options.memory = device.facts().memory_bytes;
    }
    let sizes = Sizes::choose(weights, device.facts(), options)?;
    let (budget, o) = (&sizes.budget, &sizes.options);
    crate::log::line(format_args!(
        "model: {} ({}), weights {}, KV {} ({}, {} blocks x {} tokens), scratch {}",
        weights.name(),
        sizes.spec.architecture,
        mib(budget.weights),
        mib(budget.kv),
        o.kv,
        o.blocks,
        o.block_size,
        mib(budget.scratch),
    ));
    Ok(sizes)
}

/// How products take their activations, if any takes them as bytes or should.
pub fn told(products: &BTreeMap<String, Activations>, wanted: Activations) {
    if wanted == Activations::F32 {
        return;
    }
    let each = products.iter().map(|(format, taken)| format!("{format} {taken}"));
    let each = each.collect::<Vec<_>>().join(", ");
    crate::log::line(format_args!("activations {wanted}; taken by products of: {each}"));
}

pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// A bar on a terminal, nothing elsewhere.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let style = "loading [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// Device, weights, sizes, upload: everything up to a model that is ready.
pub fn ready(args: &ModelArgs) -> Result<Loaded> {
    let mut options = options(args)?;
    let weights = quantised(&args.model, args.quantize.as_deref())?;
    let device = device::open(&args.device)?;
    let sizes = sizes(&weights, device.as_ref(), &mut options)?;
    let bar = bar();
    let mut progress = |done, total| {
        // Setting the same length again would draw the bar again.
        if bar.length() != Some(total) {
            bar.set_length(total);
        }
        bar.set_position(done);
    };
    let clock = MonotonicClock::default();
    let loaded = load(&weights, device, &sizes, &options, &clock, &mut progress)?;
    bar.finish_and_clear();
    told(&loaded.card.products, args.activations);
    for warning in &loaded.warnings {
        crate::log::line(format_args!("warning: {warning}"));
    }
    let limits = &loaded.limits;
    crate::log::line(format_args!(
        "ready: {} tokens per step, {} sequences, context {}",
        limits.step_tokens_max, limits.sequences_max, limits.context_max
    ));
    Ok(loaded)
}
