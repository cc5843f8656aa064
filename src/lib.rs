//! tilewright: a portable LLM inference runtime on wgpu.
//!
//! One package, kept in floors: a module imports only from the floors listed for it in
//! `ARCHITECTURE.md`; `tests/tidy.rs` reads the sources and fails on anything else.

pub mod base;
pub mod bench;
pub mod cpu;
pub mod engine;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod kernels;
pub mod model;
pub mod record;
pub mod sched;
#[cfg(feature = "server")]
pub mod server;
pub mod sim;
pub mod text;
pub mod trace;
#[cfg(feature = "viewer")]
pub mod viewer;
#[cfg(all(target_arch = "wasm32", feature = "web"))]
pub mod web;
pub mod weights;
