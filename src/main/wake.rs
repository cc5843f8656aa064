//! How threads beside the window tell it that there is something new: one wake-up until it looks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Called from any thread when there is something new to draw.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Wakes the window, once for all that it has not seen yet.
pub struct Waker {
    woken: AtomicBool,
    wake: Wake,
}

impl Waker {
    pub fn new(wake: Wake) -> Self {
        Self { woken: AtomicBool::new(false), wake }
    }

    pub fn tell(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    /// The window looks now; what comes in from here on wakes it again.
    pub fn looked(&self) {
        self.woken.store(false, Ordering::Release);
    }
}

/// A lock whose holder panicked still guards whole values.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
