//! Benchmarks of speed and quality. Figures are printed and written down; no test asserts a time.

mod model;
mod quality;
#[cfg(feature = "cli")]
pub mod serve;

pub use model::{BenchModel, Measured};
pub use quality::{PIECE, Quality, Scores};
