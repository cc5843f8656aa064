//! The same scheduler and engine loop over a runner that computes nothing: a step takes as long
//! as a model of step time says, on a clock that only the simulation moves. Arrivals come from a
//! trace, a recording or a seeded generator. The same seed gives the same events, to the byte.

mod arrivals;
mod cost;
mod generate;
mod recorded;
mod run;
mod runner;
mod scene;
mod traces;

pub use arrivals::{Arrival, Prompt};
pub use cost::{Cost, ModelShape, Roofline};
pub use generate::{Generator, Lengths, Workload, WorkloadError, at_rate, draw_gaps};
pub use recorded::{Compared, Recorded, RecordedError, Run, Terms, compare, what_if};
pub use run::{Ran, Setup, SimError, drive, request, simulate};
pub use scene::scene;
pub use traces::{TraceFileError, azure_csv, mooncake_jsonl, share_gpt};
