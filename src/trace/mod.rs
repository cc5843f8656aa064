//! What happened, as past-tense facts with ids and counts.
//!
//! The scheduler and the engine push [`Event`]s; only the engine stamps them; [`Sink`]s take them;
//! [`fold`] is the single meaning of the stream. The enum is additive: variants are added, never
//! changed, and a reader skips those it does not know.

mod attribute;
mod codec;
mod event;
mod feed;
mod file;
mod fold;
mod histogram;
mod history;
mod measure;
mod perfetto;
mod picture;
mod sentence;
mod sink;

pub use attribute::{Attribution, Gap, Parts, RowCost};
pub use codec::{Header, Reader, TRACE_VERSION, TraceError, read_lines, write_header, write_line};
pub use event::{
    BlockList, DelayReason, Event, EvictReason, FinishReason, LimitsReason, PreemptMethod,
    PreemptReason, Refusal, Stamped,
};
pub use feed::{FeedReader, SNAPSHOT, Told};
pub use file::{FileSink, Written};
pub use fold::fold;
pub use histogram::Histogram;
pub use history::{Cursor, History};
pub use measure::{Counts, Measures, Slo, Spread, Summary, jain};
pub use perfetto::write_perfetto;
pub use picture::{BlockPicture, Counters, Picture, RowPicture, SequencePicture, StepPicture};
pub use sentence::sentence;
pub use sink::{NullSink, RingSink, Sink};
