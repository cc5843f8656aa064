//! Panics as errors, at the borders where a file or a thread may bring one about.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns, or what its panic said. Its state is gone then, so what it was
/// changing must not be used after a panic.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        text.unwrap_or("it panicked").to_string()
    })
}

/// The same, where a panic is the word of a library on what it was given, and the message that
/// panics print would only hide the error that is made of it.
pub fn caught_quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    // Where a panic ends the program, its message is all there is.
    if cfg!(panic = "unwind") {
        HOOK.call_once(|| {
            let before = take_hook();
            set_hook(Box::new(move |panic| {
                if !QUIET.get() {
                    before(panic);
                }
            }));
        });
    }
    let outer = QUIET.replace(true);
    let done = caught(work);
    QUIET.set(outer);
    done
}
