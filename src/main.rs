//! The composition root of the native program: chooses device, source and face.

#[path = "main/bench.rs"]
mod bench;
#[path = "main/bench_kernels.rs"]
mod bench_kernels;
#[path = "main/bench_serve.rs"]
mod bench_serve;
#[path = "main/bench_step.rs"]
mod bench_step;
#[path = "main/chat.rs"]
mod chat;
#[path = "main/claim_args.rs"]
mod claim_args;
#[path = "main/claims.rs"]
mod claims;
#[path = "main/cli.rs"]
mod cli;
#[path = "main/config.rs"]
mod config;
#[path = "main/convert.rs"]
mod convert;
#[path = "main/device.rs"]
mod device;
#[path = "main/dialect.rs"]
mod dialect;
#[cfg(feature = "window")]
#[path = "main/dialog.rs"]
mod dialog;
#[path = "main/doctor.rs"]
mod doctor;
#[path = "main/folders.rs"]
mod folders;
#[path = "main/generate.rs"]
mod generate;
#[path = "main/hub.rs"]
mod hub;
#[path = "main/inspect.rs"]
mod inspect;
#[path = "main/interrupt.rs"]
mod interrupt;
#[cfg(feature = "viewer")]
#[path = "main/live.rs"]
mod live;
#[path = "main/log.rs"]
mod log;
#[path = "main/model.rs"]
mod model;
#[path = "main/policies.rs"]
mod policies;
#[path = "main/quality.rs"]
mod quality;
#[cfg(feature = "window")]
#[path = "main/reading.rs"]
mod reading;
#[cfg(feature = "viewer")]
#[path = "main/recording.rs"]
mod recording;
#[path = "main/rehearsal.rs"]
mod rehearsal;
#[cfg(feature = "viewer")]
#[path = "main/remote.rs"]
mod remote;
#[path = "main/replay.rs"]
mod replay;
#[cfg(feature = "server")]
#[path = "main/serve.rs"]
mod serve;
#[path = "main/session.rs"]
mod session;
#[path = "main/shape_args.rs"]
mod shape_args;
#[path = "main/sim.rs"]
mod sim;
#[cfg(feature = "window")]
#[path = "main/simulated.rs"]
mod simulated;
#[path = "main/tune.rs"]
mod tune;
#[path = "main/usage.rs"]
mod usage;
#[path = "main/verify.rs"]
mod verify;
#[cfg(feature = "viewer")]
#[path = "main/view.rs"]
mod view;
#[cfg(feature = "viewer")]
#[path = "main/wake.rs"]
mod wake;
#[cfg(feature = "window")]
#[path = "main/watch.rs"]
mod watch;
#[path = "main/what_if.rs"]
mod what_if;
#[cfg(feature = "window")]
#[path = "main/window.rs"]
mod window;
#[path = "main/workload.rs"]
mod workload;

use clap::CommandFactory;
use cli::{Bench, Cli, Command};
use std::io::Write;
use std::process::ExitCode;

/// Exit codes: done, failed, asked wrongly (clap uses the same).
const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    without_display();
    let args = dialect::translate(std::env::args_os());
    let args = match config::filled_in(&Cli::command(), args) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: {}", told(&error));
            return ExitCode::from(USAGE);
        }
    };
    let cli = usage::parsed(args);
    if cli.list_adapters {
        return close(doctor::list_adapters());
    }
    close(match cli.command {
        #[cfg(feature = "server")]
        Some(Command::Serve(args)) => serve::run(args),
        Some(Command::Generate(args)) => generate::run(&args),
        Some(Command::Chat(args)) => chat::run(&args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Verify(args)) => verify::run(&args),
        Some(Command::Quality(args)) => quality::run(&args),
        Some(Command::Convert(args)) => convert::run(&args),
        Some(Command::Sim(args)) => sim::run(&args),
        Some(Command::Replay(args)) => replay::run(args),
        Some(Command::WhatIf(args)) => what_if::run(&args),
        Some(Command::Bench(Bench::Model(args))) => bench::run(&args),
        Some(Command::Bench(Bench::Kernels(args))) => bench_kernels::run(&args),
        Some(Command::Bench(Bench::Step(args))) => bench_step::run(&args),
        Some(Command::Bench(Bench::Serve(args))) => bench_serve::run(&args),
        Some(Command::Tune(args)) => tune::run(&args),
        Some(Command::Completions(args)) => completions(args.shell),
        Some(Command::Bench(Bench::All(args))) => claims::run_all(&args),
        Some(Command::Bench(Bench::Claim(claim))) => claims::run(claim.name(), claim.args()),
        #[cfg(feature = "viewer")]
        Some(Command::View(args)) => view::run(args),
        None => return alone(),
    })
}

/// Writes what makes a shell complete this program's commands and flags.
fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tilewright", &mut out);
    print(&String::from_utf8_lossy(&out))?;
    Ok(ExitCode::SUCCESS)
}

/// No command: the window, with the model compiled in.
#[cfg(feature = "window")]
fn alone() -> ExitCode {
    // The view's defaults, environment included.
    match usage::parsed(["tilewright", "view"]).command {
        Some(Command::View(args)) => close(view::run(args)),
        _ => ExitCode::from(USAGE),
    }
}

#[cfg(not(feature = "window"))]
fn alone() -> ExitCode {
    eprintln!("tilewright: no command given; `tilewright serve` starts the server");
    ExitCode::from(USAGE)
}

/// Some drivers look for a window system when they are opened, and print an error of their own
/// where XDG_RUNTIME_DIR is not set, as on most servers. Nothing is wrong then.
fn without_display() {
    if cfg!(target_os = "linux") && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: the first statement of `main`; there are no other threads yet.
        unsafe { std::env::set_var("XDG_RUNTIME_DIR", std::env::temp_dir()) };
    }
}

fn close(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        // Whoever read the output has had enough of it: `tilewright inspect | head`.
        Err(error) if broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", told(&error));
            let asked_wrongly = error.downcast_ref::<usage::Usage>().is_some();
            ExitCode::from(if asked_wrongly { USAGE } else { FAILED })
        }
    }
}

/// An error and its causes; one that an earlier line quotes already is not told twice.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text += if text.is_empty() { "" } else { ": " };
            text += &cause;
        }
    }
    text
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Writes to standard output; a reader that is gone is an error, not a panic.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
