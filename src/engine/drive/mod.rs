//! What turns the loop: a thread natively. The loop itself is async and knows no thread.

#[cfg(not(target_arch = "wasm32"))]
mod native;

#[cfg(not(target_arch = "wasm32"))]
pub use native::{THREAD_NAME, spawn};
