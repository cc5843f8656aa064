//! The engine's own thread. Everything that is not `Send` (device, runner, sinks) is made on
//! it and dies on it; the rest of the program holds an [`EngineHandle`].

use crate::base::caught;
use crate::engine::{Engine, EngineHandle, LoadError, Runner};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;

/// The thread's name.
pub const THREAD_NAME: &str = "tilewright-engine";

/// Starts the thread. `build` loads the model there; `ready` gets the handle, or the error that
/// kept the model from loading. The thread ends when the engine is stopped, drained or failed.
/// A panic of `build` is such an error too: whoever waits for the model must not wait for ever.
pub fn spawn<R, E>(
    build: impl FnOnce() -> Result<Engine<R>, E> + Send + 'static,
    ready: impl FnOnce(Result<EngineHandle, E>) + Send + 'static,
) -> std::io::Result<JoinHandle<()>>
where
    R: Runner + 'static,
    E: From<LoadError> + 'static,
{
    Builder::new().name(THREAD_NAME.to_string()).spawn(move || {
        match caught(build).unwrap_or_else(|said| Err(LoadError::Panicked(said).into())) {
            Ok(mut engine) => {
                ready(Ok(engine.handle()));
                pollster::block_on(engine.run(sleep));
            }
            Err(error) => ready(Err(error)),
        }
    })
}

/// Ends after `micros`. A thread for each: sleeps are rare, and no runtime is needed.
async fn sleep(micros: u64) {
    let (done, slept) = oneshot::channel();
    let sleeper = move || {
        std::thread::sleep(Duration::from_micros(micros));
        // Nobody listens any more when something came first.
        let _ = done.send(());
    };
    match Builder::new().name("tilewright-sleep".to_string()).spawn(sleeper) {
        // An error means that the sleeper is gone, which cannot be before it has slept.
        Ok(_) => drop(slept.await),
        // No thread to be had: asleep with the rest of the loop.
        Err(_) => std::thread::sleep(Duration::from_micros(micros)),
    }
}
