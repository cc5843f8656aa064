//! Counts heap allocations of the current thread, and the bytes they hold: for rows that promise
//! none, or few.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes held now; below 0 where another thread's were freed here.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Allocations and growths that this thread has made.
pub fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

/// The result of `body`, and the most bytes that this thread held meanwhile beyond those before.
pub fn peak_bytes<T>(body: impl FnOnce() -> T) -> (T, u64) {
    let before = HELD.get();
    PEAK.set(before);
    let out = body();
    (out, (PEAK.get() - before).unsigned_abs())
}

fn note() {
    // A thread that is ending has no counter any more.
    let _ = COUNT.try_with(|c| c.set(c.get() + 1));
}

fn hold(bytes: i64) {
    let held = HELD.try_with(|h| {
        h.set(h.get() + bytes);
        h.get()
    });
    if let Ok(held) = held {
        let _ = PEAK.try_with(|p| p.set(p.get().max(held)));
    }
}

// SAFETY: every call is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        hold(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        hold(size as i64 - layout.size() as i64);
        // SAFETY: `at` came from `System` with this layout; the caller vouches for `size`.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
