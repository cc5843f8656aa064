//! `convert`: a model as the other kind of file.

use crate::cli::ConvertArgs;
use crate::model;
use anyhow::Result;
use std::process::ExitCode;
use tilewright::engine::convert;

pub fn run(args: &ConvertArgs) -> Result<ExitCode> {
    let weights = model::quantised(&args.source, args.quantize.as_deref())?;
    convert(&weights, &args.target)?;
    crate::print(&format!("{} written\n", args.target.display()))?;
    Ok(ExitCode::SUCCESS)
}
