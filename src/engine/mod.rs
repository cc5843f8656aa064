//! Requests, the step loop and the trait [`Runner`] that runs a step. Text in and out of ids,
//! sampling limits, stop rules and cancellation are decided here, once, for every face.
//!
//! A request goes in through an [`EngineHandle`] and comes back as a [`Generation`]; the
//! [`Engine`] owns scheduler and runner and lives on one thread (see `drive`).

mod card;
mod convert;
mod device_runner;
mod draft;
mod drive;
mod fable;
mod flight;
mod guided;
mod handle;
mod load;
mod output;
mod probe;
mod replay;
mod requests;
mod rows;
mod runner_api;
mod sampling;
mod status;
mod steps;
mod table;

pub use card::ModelCard;
pub use convert::{ConvertError, convert};
pub use device_runner::DeviceRunner;
pub use draft::draft;
#[cfg(not(target_arch = "wasm32"))]
pub use drive::{THREAD_NAME, spawn};
pub use fable::{fable, fable_tokenizer};
pub use handle::EngineHandle;
#[cfg(not(target_arch = "wasm32"))]
pub use load::load;
pub use load::{
    LoadError, LoadOptions, Loaded, Sizes, gguf_vocab, load_async, read_card, template_source,
};
pub use output::{
    Completion, CompletionToken, GenerateError, Generation, Output, SettingError, SubmitError,
    Usage,
};
pub use probe::{Pooling, Question};
pub use replay::{Difference, Known, ReplayError, Replayed, recorded_limits, replay};
pub use runner_api::{
    Capacity, KernelTime, NextIds, Probe, Probed, RunError, RunFuture, Runner, SampleInput,
    Sampled, StepInput, StepOutput, StepRow, SwapFuture, TokenLogprobs, Wanted,
};
pub use sampling::{
    CHOICES_MAX, GenerateRequest, InvalidField, LOGIT_BIAS_MAX, STOP_MAX, Sampling,
    SamplingDefaults, TOP_LOGPROBS_MAX, choice_seed,
};
pub use status::{Checked, EngineState, Status};
pub use steps::{Engine, EngineConfig, Stepped};
