//! Time is an argument: floors below `engine` never read a clock, and tests inject their own.

use std::sync::atomic::{AtomicU64, Ordering};

/// Microseconds since some fixed start.
pub trait Clock: Send + Sync {
    fn now_micros(&self) -> u64;
}

/// The process's monotonic clock. On wasm32 `web.rs` supplies its own.
pub struct MonotonicClock(std::time::Instant);

impl Default for MonotonicClock {
    fn default() -> Self {
        Self(std::time::Instant::now())
    }
}

impl Clock for MonotonicClock {
    fn now_micros(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that moves only when told to.
#[derive(Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn advance(&self, micros: u64) {
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
