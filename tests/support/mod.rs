//! What rows share: the list of rows, skip reasons, and where test data lies.

#![allow(dead_code, reason = "which parts are used depends on the features built")]

mod allocations;
mod decoder;
#[cfg(feature = "gpu")]
mod device;
#[cfg(all(feature = "cli", feature = "server"))]
pub mod pages;
#[cfg(all(feature = "cli", feature = "server"))]
pub mod program;
mod watched;
mod world;
mod wrapped;

pub use allocations::{allocations, peak_bytes};
pub use decoder::{Decoder, On};
#[cfg(feature = "gpu")]
pub use device::{SharedGpu, gpu, open_gpu, options as gpu_options};
pub use watched::Watched;
pub use world::World;
pub use wrapped::Wrapped;

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::PathBuf;
use std::process::ExitCode;

/// The rows of the suite.
#[derive(Default)]
pub struct Rows(Vec<Trial>);

impl Rows {
    /// Adds a row; a panic fails it.
    pub fn add(&mut self, name: impl Into<String>, body: impl FnOnce() + Send + 'static) {
        self.0.push(Trial::test(name, move || {
            body();
            Ok(())
        }));
    }

    /// Adds a row that needs `need`. Without it the row is ignored with the reason shown, or
    /// fails when [`required`].
    pub fn add_if<T: Send + 'static>(
        &mut self,
        need: Result<T, String>,
        name: impl Into<String>,
        body: impl FnOnce(T) + Send + 'static,
    ) {
        match need {
            Ok(value) => self.add(name, move || body(value)),
            Err(reason) if required(&reason) => {
                self.0.push(Trial::test(name, move || Err(Failed::from(reason))));
            }
            Err(reason) => {
                let row = Trial::test(name, || Ok(())).with_kind(format!("skipped: {reason}"));
                self.0.push(row.with_ignored_flag(true));
            }
        }
    }

    pub fn run(self) -> ExitCode {
        libtest_mimic::run(&Arguments::from_args(), self.0).exit_code()
    }
}

const NO_SHARED: &str = "no ../shared/";
const NO_MODEL: &str = "not in the model cache: ";

/// Whether a row that cannot run for `reason` fails: under `TILEWRIGHT_REQUIRE=1` always, under
/// `TILEWRIGHT_REQUIRE=local` unless it needs files from outside the checkout.
fn required(reason: &str) -> bool {
    let outside = reason.starts_with(NO_SHARED) || reason.starts_with(NO_MODEL);
    match std::env::var("TILEWRIGHT_REQUIRE").as_deref() {
        Ok("local") => !outside,
        Ok(_) => true,
        Err(_) => false,
    }
}

/// How many steps engines may have in the air where a row does not say: 1, or what the variable of
/// the program's own flag says, so that any row can be run with 2.
pub fn steps_in_flight() -> u32 {
    let set = std::env::var("TILEWRIGHT_STEPS_IN_FLIGHT").ok();
    set.and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Whether `python3` has `package`.
pub fn python(package: &str) -> Result<(), String> {
    let import = format!("import {package}");
    let found = std::process::Command::new("python3").args(["-c", &import]).output();
    match found {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(format!("python3 has no package {package}")),
    }
}

/// A file or folder of the wider set of fixtures, which lies beside some checkouts only.
pub fn shared(path: &str) -> Result<PathBuf, String> {
    let base = std::env::var_os("TILEWRIGHT_SHARED")
        .map_or_else(|| root().join("..").join("shared"), PathBuf::from);
    let found = base.join(path);
    if found.exists() { Ok(found) } else { Err(format!("{NO_SHARED}{path}")) }
}

/// A real model that `shared/models/fetch` brings into the cache folder.
pub fn real_model(file: &str) -> Result<PathBuf, String> {
    let base = match std::env::var_os("TILEWRIGHT_MODELS") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or_default())
            .join(".cache/tilewright/models"),
    };
    let found = base.join(file);
    if found.exists() { Ok(found) } else { Err(format!("{NO_MODEL}{file}")) }
}
