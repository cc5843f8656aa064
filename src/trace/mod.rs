//! What happened, as past-tense facts with ids and counts.
//!
//! The scheduler and the engine push [`Event`]s; only the engine stamps them; [`Sink`]s take them;
//! [`fold`] is the single meaning of the stream. The enum is additive: variants are added, never
//! changed, and a reader skips those it does not know.

mod asked;
mod attribute;
mod codec;
mod event;
mod feed;
mod file;
mod fold;
mod histogram;
mod history;
mod list;
mod measure;
mod perfetto;
mod picture;
mod sentence;
mod sink;
mod step_time;
mod waits;

pub use asked::Asked;
pub use attribute::{Attribution, Gap, Parts};
#[cfg(any(feature = "viewer", feature = "cli"))]
pub use codec::unpacked;
pub use codec::{
    Header, Made, Reader, TRACE_VERSION, TraceError, read_lines, write_header, write_line,
};
pub use event::{
    DelayReason, Event, EvictReason, FinishReason, LimitsReason, PreemptMethod, PreemptReason,
    Refusal, Stamped,
};
pub use feed::{FeedReader, SNAPSHOT, Told, WITHHELD};
pub use file::{FileSink, Written};
pub use fold::fold;
pub use histogram::Histogram;
pub use history::{Cursor, History};
pub use list::{BlockList, HashList};
pub use measure::{Counts, Measures, Slo, Spread, Summary, jain};
pub use perfetto::write_perfetto;
pub use picture::{BlockPicture, Counters, Picture, RowPicture, SequencePicture, StepPicture};
pub use sentence::sentence;
pub use sink::{NullSink, RingSink, Sink};
pub use step_time::{Choice, StepCost, StepTime, Work};
pub use waits::{Waited, Waits};
