//! The window: what an engine does, every step of it, and why. A [`Viewer`] takes a stream of
//! events (live or recorded), draws pictures of it with egui, and gives back [`ViewCommand`]s; who
//! runs it opens the window, feeds it and executes them. No threads, no clock, no files: it runs
//! in a browser as it does on a desktop, and [`render`] draws it with no display at all.

mod actions;
mod blocks;
mod chats;
mod command;
mod composition;
mod counters;
mod details;
mod drawn;
mod drive;
mod files;
mod gaps;
mod kernels;
mod lives;
mod paint;
mod palette;
mod queue;
mod raster;
mod scrub;
mod shell;
mod shot;
mod slots;
mod source;
mod stage;
mod steps;
mod text;
mod time;
mod timeline;
mod top;
mod view;
mod what_if;
mod why;

pub use blocks::Grid;
pub use command::{Exchange, Open, Preset, Setup, Submission, ViewCommand};
pub use drawn::drawn;
pub use files::{read_recording, to_csv, to_jsonl, to_perfetto};
pub use gaps::sentence as gap_sentence;
pub use lives::{Life, Lives, Phase, Slice, TokenMark};
pub use paint::{ink_on, owner as owner_color};
pub use raster::Image;
pub use shell::Viewer;
pub use shot::{Shot, render};
pub use source::{EngineState, Note, Source, Words};
pub use steps::{Marks, StepRow, Steps};
pub use time::{Play, Time};
pub use view::View;
pub use what_if::{Comparison, Rerun};
