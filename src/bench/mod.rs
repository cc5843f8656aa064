//! Benchmarks of speed and quality. Figures are printed and written down; no test asserts a time.

mod model;
mod quality;

pub use model::{BenchModel, Measured};
pub use quality::{PIECE, Quality, Scores};
