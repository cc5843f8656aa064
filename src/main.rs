//! The composition root of the native program: chooses device, source and face.

#[path = "main/cli.rs"]
mod cli;
#[path = "main/device.rs"]
mod device;
#[path = "main/doctor.rs"]
mod doctor;
#[path = "main/generate.rs"]
mod generate;
#[path = "main/model.rs"]
mod model;
#[cfg(feature = "server")]
#[path = "main/serve.rs"]
mod serve;
#[path = "main/verify.rs"]
mod verify;

use clap::Parser;
use cli::{Bench, Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        #[cfg(feature = "server")]
        Some(Command::Serve(args)) => serve::run(args),
        Some(Command::Generate(args)) => generate::run(args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Verify(args)) => verify::run(&args),
        Some(Command::Bench(Bench::Model(args))) => model::bench(&args),
        None => {
            eprintln!("tilewright: no subcommand; `tilewright serve` starts the server");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}
