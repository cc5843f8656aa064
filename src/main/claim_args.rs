//! The arguments of the claims' commands.

use crate::cli::{ModelArgs, switch};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The literature's claims, one command each.
#[derive(Subcommand)]
pub enum ClaimCommand {
    /// Places of a batch that give wanted tokens: static against continuous.
    Utilization(ClaimArgs),
    /// Positions that static batches compute for nothing.
    Padding(ClaimArgs),
    /// What a long prompt does to running streams: whole, in pieces, under a target.
    Stall(ClaimArgs),
    /// First tokens against the ones that follow, over the token budget.
    Budget(ClaimArgs),
    /// A piece of a prompt beside sequences that decode, and alone.
    PrefillIsFree(ClaimArgs),
    /// A victim's blocks moved to host memory and back, or computed again.
    SwapOrRecompute(ClaimArgs),
    /// Shares of two tenants, one of which asks for more.
    Fairness(ClaimArgs),
    /// Long requests under shortest first, with and without aging.
    Starvation(ClaimArgs),
    /// Throughput and latency over batch, between the bounds of the roofline.
    Knee(ClaimArgs),
    /// Prompts that begin alike, with and without the prefix cache.
    Prefix(ClaimArgs),
    /// Throughput at equal median latency: static against continuous.
    Orca(ClaimArgs),
    /// A real run beside the simulator's prediction of it.
    Prediction(ClaimArgs),
}

impl ClaimCommand {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Utilization(_) => "utilization",
            Self::Padding(_) => "padding",
            Self::Stall(_) => "stall",
            Self::Budget(_) => "budget",
            Self::PrefillIsFree(_) => "prefill-is-free",
            Self::SwapOrRecompute(_) => "swap-or-recompute",
            Self::Fairness(_) => "fairness",
            Self::Starvation(_) => "starvation",
            Self::Knee(_) => "knee",
            Self::Prefix(_) => "prefix",
            Self::Orca(_) => "orca",
            Self::Prediction(_) => "prediction",
        }
    }

    pub fn args(&self) -> &ClaimArgs {
        match self {
            Self::Utilization(args)
            | Self::Padding(args)
            | Self::Stall(args)
            | Self::Budget(args)
            | Self::PrefillIsFree(args)
            | Self::SwapOrRecompute(args)
            | Self::Fairness(args)
            | Self::Starvation(args)
            | Self::Knee(args)
            | Self::Prefix(args)
            | Self::Orca(args)
            | Self::Prediction(args) => args,
        }
    }
}

#[derive(Args)]
pub struct ClaimArgs {
    /// Run on the simulator, as an H100 with a model of 8 billion weights [default: the device].
    #[arg(long, env = "TILEWRIGHT_SIM", value_parser = switch())]
    pub sim: bool,
    /// Fewer and shorter requests [default: false].
    #[arg(long, env = "TILEWRIGHT_QUICK", value_parser = switch())]
    pub quick: bool,
    /// Recorded arrivals for claims about real traffic, of the kinds that `sim` reads [default:
    /// generated].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_ARRIVALS")]
    pub arrivals: Option<PathBuf>,
    /// Write the plot to this file; a second one beside it [default: not written].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_SVG")]
    pub svg: Option<PathBuf>,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

#[derive(Args)]
pub struct ReportArgs {
    /// Fewer and shorter requests [default: false].
    #[arg(long, env = "TILEWRIGHT_QUICK", value_parser = switch())]
    pub quick: bool,
    /// Recorded arrivals for claims about real traffic, of the kinds that `sim` reads [default:
    /// generated].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_ARRIVALS")]
    pub arrivals: Option<PathBuf>,
    /// File of the page.
    #[arg(long, value_name = "FILE", default_value = "report.html", env = "TILEWRIGHT_OUT")]
    pub out: PathBuf,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}
