//! Benchmarks of speed and quality. Figures are printed and written down; no test asserts a time.

mod claim;
mod claims;
mod ground;
mod kernels;
mod model;
mod plot;
mod quality;
mod report;
#[cfg(feature = "cli")]
pub mod serve;
mod shape;
mod step;
mod summary;
mod table;

pub use claim::{Claim, ClaimError, Found, Outcome, Trial};
pub use claims::CLAIMS;
pub use ground::{Ground, Load, Seen};
#[cfg(feature = "gpu")]
pub use kernels::add_fma_shader;
pub use kernels::{Ceilings, KernelBench, KernelMeasured, Wanted, WayMeasured};
pub use model::{BenchModel, Measured};
pub use plot::{Axis, Plot, Series, Style, escape, figure};
pub use quality::{PIECE, Quality, Scores};
pub use report::report;
pub use shape::{SHAPES, Shape};
pub use step::{KernelShare, StepBench, StepMeasured, StepParts};
pub use summary::{summaries, waited};
pub use table::Table;
