//! The engine's own thread. Everything that is not `Send` (device, runner, sinks) is made on
//! it and dies on it; the rest of the program holds an [`EngineHandle`].

use crate::engine::{Engine, EngineHandle, Runner};
use std::thread::{Builder, JoinHandle};

/// The thread's name.
pub const THREAD_NAME: &str = "tilewright-engine";

/// Starts the thread. `build` loads the model there; `ready` gets the handle, or the error that
/// kept the model from loading. The thread ends when the engine is stopped, drained or failed.
pub fn spawn<R, E>(
    build: impl FnOnce() -> Result<Engine<R>, E> + Send + 'static,
    ready: impl FnOnce(Result<EngineHandle, E>) + Send + 'static,
) -> std::io::Result<JoinHandle<()>>
where
    R: Runner + 'static,
    E: 'static,
{
    Builder::new().name(THREAD_NAME.to_string()).spawn(move || match build() {
        Ok(mut engine) => {
            ready(Ok(engine.handle()));
            pollster::block_on(engine.run());
        }
        Err(error) => ready(Err(error)),
    })
}
