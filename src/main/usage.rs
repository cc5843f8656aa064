//! What is wrong with flags that are right one by one: told before anything is opened, with clap's
//! exit code.

use crate::cli::{Cli, DeviceChoice};
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::collections::BTreeSet;
use std::ffi::OsString;

/// A value that a flag cannot have, found after the flags were read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The command line; ends the program where it asks for what cannot be.
pub fn parsed(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Cli {
    let matches = Cli::command().get_matches_from(args);
    let mut flags = &matches;
    while let Some((_, below)) = flags.subcommand() {
        flags = below;
    }
    if let Some(wrong) = adapter_of_none(flags).or_else(|| tenant_twice(flags)) {
        Cli::command().error(ErrorKind::ArgumentConflict, wrong).exit();
    }
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn adapter_of_none(flags: &ArgMatches) -> Option<String> {
    // A command without the flag has no value of it.
    let device = flags.try_get_one::<DeviceChoice>("device").ok()??;
    let adapter = flags.try_get_one::<String>("adapter").ok()??;
    // What the command line says goes before an adapter of the environment.
    let [of_device, of_adapter] = ["device", "adapter"].map(|flag| flags.value_source(flag));
    let aside = of_adapter < of_device;
    (*device == DeviceChoice::Cpu && !adapter.is_empty() && !aside).then(|| {
        format!(
            "--adapter {adapter} (TILEWRIGHT_ADAPTER) cannot be used with --device cpu \
             (TILEWRIGHT_DEVICE), which takes no adapter"
        )
    })
}

fn tenant_twice(flags: &ArgMatches) -> Option<String> {
    let weights = flags.try_get_many::<(String, u32)>("tenant_weight").ok()??;
    let mut seen = BTreeSet::new();
    let twice = weights.map(|(tenant, _)| tenant).find(|tenant| !seen.insert(*tenant))?;
    Some(format!("--tenant-weight: tenant `{twice}` has two weights"))
}
