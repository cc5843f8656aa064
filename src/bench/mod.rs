//! Benchmarks. Figures are printed and written down; no test asserts a time.

mod model;

pub use model::{BenchModel, Measured};
