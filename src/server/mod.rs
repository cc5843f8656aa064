//! The OpenAI-compatible HTTP face of the engine: routes, SSE, error bodies. Every failure is
//! told in OpenAI's shape with all four keys, a client's mistake is never a 5xx, and a closed
//! connection drops its generation, which cancels it.
//!
//! The socket may open long before the model is loaded: the engine's handle arrives through a
//! watch channel of [`ModelState`].

mod access;
mod app;
mod body;
mod chat;
mod choice;
mod completions;
mod config;
mod control;
mod embeddings;
mod error;
mod fields;
mod listen;
mod logprobs;
mod messages;
mod page;
mod params;
mod prompt;
mod reply;
mod routes;
mod sse;
mod state;
mod structured;
mod telemetry;
mod timings;
mod tokens;
mod tools;

pub use app::ModelState;
pub use config::{OriginError, ServerConfig, WebOrigin};
pub use listen::serve;
pub use routes::router;
pub use telemetry::Telemetry;
