//! `bench NAME` and `bench all`: claims of the literature, run on a device or on the simulator.

use crate::claim_args::{ClaimArgs, ReportArgs};
use crate::workload::read_arrivals;
use crate::{device, model, print};
use anyhow::{Context, Result, anyhow};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tilewright::base::MonotonicClock;
use tilewright::bench::{CLAIMS, Claim, Ground, Outcome, Trial, report};
use tilewright::engine::load;
use tilewright::sim::Arrival;

/// Claims of a report that a device runs, beside the simulator that runs all.
const ON_DEVICE: &[&str] = &[
    "padding",
    "stall",
    "budget",
    "prefill-is-free",
    "swap-or-recompute",
    "fairness",
    "knee",
    "prefix",
    "prediction",
];

/// Those that say nothing on the simulator alone.
const DEVICE_ONLY: &[&str] = &["prediction"];

/// The model at hand, with room for the claims.
fn real(args: &crate::cli::ModelArgs) -> Result<Ground> {
    let mut options = model::options(args)?;
    options.step_tokens = options.step_tokens.or(Some(2048));
    let weights = model::quantised(&args.model, args.quantize.as_deref())?;
    let device = device::open(&args.device)?;
    let sizes = model::sizes(&weights, device.as_ref(), &mut options)?;
    let clock = MonotonicClock::default();
    Ok(Ground::real(load(&weights, device, &sizes, &options, &clock, &mut |_, _| {})?))
}

fn run_one(claim: &'static Claim, trial: &Trial<'_>) -> Result<Outcome> {
    let start = Instant::now();
    let found = (claim.run)(trial).with_context(|| format!("bench {}", claim.name))?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Outcome { claim, ground: trial.ground.name(), seconds, found })
}

fn arrivals(path: Option<&PathBuf>) -> Result<Option<Vec<Arrival>>> {
    path.map(|path| read_arrivals(path, None)).transpose()
}

/// One claim: in words with a table, or as JSON, and its plots as SVG.
pub fn run(name: &str, args: &ClaimArgs) -> Result<ExitCode> {
    let claim = CLAIMS.iter().find(|claim| claim.name == name);
    let claim = claim.ok_or_else(|| anyhow!("there is no claim `{name}`"))?;
    let ground = if args.sim { Ground::h100() } else { real(&args.model)? };
    let arrivals = arrivals(args.arrivals.as_ref())?;
    let trial = Trial { ground: &ground, quick: args.quick, arrivals: arrivals.as_deref() };
    let outcome = run_one(claim, &trial)?;
    if let Some(path) = &args.svg {
        for (number, plot) in outcome.found.plots.iter().enumerate() {
            let path = match number {
                0 => path.clone(),
                _ => path.with_extension(format!("{}.svg", number + 1)),
            };
            std::fs::write(&path, plot.svg()).with_context(|| path.display().to_string())?;
        }
    }
    if args.json {
        print(&(serde_json::to_string_pretty(&outcome.to_json())? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = format!("{}\n{}\n", claim.title, claim.says);
    for table in &outcome.found.tables {
        out += &format!("\n{table}");
    }
    out += &format!("\n{}\n{} ({:.1} s)\n", outcome.found.told, outcome.ground, outcome.seconds);
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Every claim on the simulator, and those that a device is quick enough for on the device, as one
/// page.
pub fn run_all(args: &ReportArgs) -> Result<ExitCode> {
    let start = Instant::now();
    let (sim, device) = (Ground::h100(), real(&args.model)?);
    let arrivals = arrivals(args.arrivals.as_ref())?;
    let mut outcomes = Vec::new();
    for claim in CLAIMS {
        for ground in [&sim, &device] {
            let wanted = match ground.is_real() {
                true => ON_DEVICE.contains(&claim.name),
                false => !DEVICE_ONLY.contains(&claim.name),
            };
            if !wanted {
                continue;
            }
            let trial = Trial { ground, quick: args.quick, arrivals: arrivals.as_deref() };
            let outcome = run_one(claim, &trial)?;
            let (name, found) = (claim.name, &outcome.found.told);
            crate::log::line(format_args!("{name} on {}: {found}", outcome.ground));
            outcomes.push(outcome);
        }
    }
    let about = format!(
        "tilewright {}, {} runs on {} and on the simulator, {:.0} s in all.",
        env!("CARGO_PKG_VERSION"),
        outcomes.len(),
        device.name(),
        start.elapsed().as_secs_f64()
    );
    std::fs::write(&args.out, report(&outcomes, &about))
        .with_context(|| format!("--out {}", args.out.display()))?;
    let json: Vec<_> = outcomes.iter().map(Outcome::to_json).collect();
    if args.json {
        print(&(serde_json::to_string_pretty(&json)? + "\n"))?;
    } else {
        print(&format!("{} claims run; the report is {}\n", outcomes.len(), args.out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
