//! Ctrl-C in a conversation: during an answer it ends the answer, at any other time the program.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the shell reports for a program that Ctrl-C ended.
pub const INTERRUPTED: i32 = 130;

#[derive(Default)]
struct State {
    answering: AtomicBool,
    pressed: AtomicBool,
}

/// Listens on a thread of its own for as long as the program runs.
pub struct Interrupt(Arc<State>);

impl Interrupt {
    pub fn listen() -> Result<Self> {
        let state = Arc::new(State::default());
        let seen = state.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listen = move || {
            while runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
                let again = seen.pressed.swap(true, Ordering::SeqCst);
                if again || !seen.answering.load(Ordering::SeqCst) {
                    std::process::exit(INTERRUPTED);
                }
            }
        };
        let thread = std::thread::Builder::new().name("ctrl-c".into()).spawn(listen);
        thread.context("a thread for Ctrl-C")?;
        Ok(Self(state))
    }

    /// Runs `answer`, which should end soon after the function it is given says true.
    pub fn during<T>(&self, answer: impl FnOnce(&dyn Fn() -> bool) -> T) -> T {
        self.0.pressed.store(false, Ordering::SeqCst);
        self.0.answering.store(true, Ordering::SeqCst);
        let done = answer(&|| self.0.pressed.load(Ordering::SeqCst));
        self.0.answering.store(false, Ordering::SeqCst);
        done
    }
}
