//! `tune`: measures which kernels serve the products of a model best on this device, and keeps that
//! for later starts.

use crate::bench::described;
use crate::cli::{DeviceArgs, DeviceChoice, ModelArgs, count, switch};
use crate::shape_args::ShapeArgs;
use crate::{device, folders, log, print};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use tilewright::base::{checksum, replace_file};
use tilewright::bench::{KernelBench, Table, WayMeasured};
use tilewright::kernels::mul;
use tilewright::kernels::tuned::TunedFile;
use tilewright::model::Model;
use tilewright::record::{DeviceKind, Facts};

#[derive(Args)]
pub struct TuneArgs {
    /// Rows of activations to measure with; what lies between goes like the smaller.
    #[arg(long, default_value = "1,2,3,4,5,8,12,16,32,64,128", value_delimiter = ',')]
    #[arg(value_name = "TOKENS", value_parser = count, env = "TILEWRIGHT_TUNE_TOKENS")]
    pub tokens: Vec<u32>,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    #[command(flatten)]
    pub shape: ShapeArgs,
    #[command(flatten)]
    pub model: ModelArgs,
}

pub fn run(args: &TuneArgs) -> Result<ExitCode> {
    let (weights, name) = args.shape.weights(&args.model)?;
    let mut wish = args.model.device.clone();
    if wish.device == DeviceChoice::Auto {
        // Of software, too, if it is all there is.
        wish.device = DeviceChoice::Gpu;
    }
    let mut device = device::open(&wish)?;
    let facts = device.facts().clone();
    if facts.kind == DeviceKind::Cpu {
        bail!("the processor has one way for every product: there is nothing to tune");
    }
    let Some(path) = place(&args.model.device, &facts) else {
        bail!("no place to keep what is measured: give --cache-dir a folder");
    };
    let mut tokens = args.tokens.clone();
    tokens.sort_unstable();
    tokens.dedup();
    let shapes = Model::products(&weights, device.as_mut())?;
    let mut bench = KernelBench::new(device, None)?;
    let (mut file, mut found) = (TunedFile::of(&facts), Vec::new());
    // Other models' products stay.
    let known = std::fs::read(&path).ok().and_then(|text| TunedFile::read(&text, &facts).ok());
    file.products = known.unwrap_or_default();
    for (number, (format, shape)) in (1..).zip(&shapes) {
        let [rows, cols] = shape;
        let all = shapes.len();
        log::line(format_args!("{number} of {all}: {} {rows}x{cols}", format.name()));
        let taken = mul::activations(*format, args.model.activations);
        let (product, measured) = bench.tune((*format, taken), *shape, &tokens)?;
        file.put(product);
        found.extend(measured);
    }
    replace_file(&path, &serde_json::to_vec_pretty(&file)?)
        .with_context(|| format!("{}", path.display()))?;
    if args.json {
        let mut out = described(&name, &facts, None);
        out.insert("file".into(), json!(path));
        out.insert("ways".into(), json!(found));
        print(&(serde_json::to_string_pretty(&out)? + "\n"))?;
    } else {
        print(&page(&found))?;
        log::line(format_args!("written to {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// What was measured on the device with `facts`, unless it is to be left aside.
#[cfg(feature = "gpu")]
pub fn found(args: &DeviceArgs, facts: &Facts) -> Vec<tilewright::record::Tuned> {
    let Some(path) = place(args, facts).filter(|_| !args.no_tune) else { return Vec::new() };
    let Ok(text) = std::fs::read(&path) else { return Vec::new() };
    match TunedFile::read(&text, facts) {
        Ok(products) => {
            let all = tilewright::base::counted(products.len() as u64, "shape");
            log::line(format_args!("tuned: {all} of products, {}", path.display()));
            products
        }
        Err(why) => {
            log::line(format_args!("{}: not used, {why}", path.display()));
            Vec::new()
        }
    }
}

/// Where it is kept: a file for every device, driver and version.
fn place(args: &DeviceArgs, facts: &Facts) -> Option<PathBuf> {
    let Facts { name, backend, driver, .. } = facts;
    let texts = [env!("CARGO_PKG_VERSION"), name, backend, driver];
    let number = checksum(texts.map(str::as_bytes));
    let folder = folders::own(args.cache_dir.as_deref(), "tuned")?;
    Some(folder.join(format!("{number:016x}.json")))
}

/// A row for every size: what the table takes, what is taken from now on, and the gain.
fn page(found: &[WayMeasured]) -> String {
    let head = ["format", "shape", "tokens", "by rule", "µs", "taken", "µs", "times as fast"];
    let mut table = Table::new(head);
    for rule in found.iter().filter(|way| way.rule) {
        let size = |w: &WayMeasured| (w.format, w.rows, w.cols, w.tokens);
        let taken = found.iter().find(|way| way.chosen && size(way) == size(rule));
        let taken = taken.unwrap_or(rule);
        table.row([
            rule.format.to_string(),
            format!("{}x{}", rule.rows, rule.cols),
            rule.tokens.to_string(),
            rule.variant.clone(),
            format!("{:.1}", rule.micros),
            if taken.rule { "the same".into() } else { taken.variant.clone() },
            format!("{:.1}", taken.micros),
            format!("{:.2}", rule.micros / taken.micros),
        ]);
    }
    table.to_string()
}
