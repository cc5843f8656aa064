//! The native driver: one named thread, and what is seen from outside when it ends.

use super::fake::{card, config, engine, hashed, limits};
use crate::support::Rows;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use tilewright::base::ManualClock;
use tilewright::engine::{
    Engine, EngineState, GenerateError, GenerateRequest, LoadError, RunFuture, Runner, Sampled,
    StepInput, SubmitError, SwapFuture, THREAD_NAME, spawn,
};
use tilewright::sched::BlockSwap;

pub fn rows(rows: &mut Rows) {
    rows.add("engine::runs_on_one_named_thread", runs_on_one_named_thread);
    rows.add("engine::panic_on_the_thread_is_told", panic_on_the_thread_is_told);
    rows.add("engine::load_error_is_handed_over", load_error_is_handed_over);
    rows.add("engine::panic_while_loading_is_a_load_error", panic_while_loading);
}

fn request() -> GenerateRequest {
    GenerateRequest { prompt: vec![300], max_tokens: Some(3), ..GenerateRequest::default() }
}

/// Answers only on the right thread.
struct Named;

impl Runner for Named {
    fn run<'a>(&'a mut self, input: StepInput<'a>) -> RunFuture<'a> {
        assert_eq!(std::thread::current().name(), Some(THREAD_NAME));
        let answers: Vec<_> = input.sampling().map(|_| Sampled::new(300)).collect();
        Box::pin(std::future::ready(Ok(answers.into())))
    }

    fn swap<'a>(&'a mut self, _: &'a [BlockSwap], _: &'a [BlockSwap]) -> SwapFuture<'a> {
        Box::pin(std::future::ready(Ok(0)))
    }
}

fn runs_on_one_named_thread() {
    let (tell, told) = mpsc::channel();
    let build = || {
        let clock = Arc::new(ManualClock::default());
        Ok::<_, LoadError>(Engine::new(Named, card(), config(limits(), &clock)))
    };
    let thread = spawn(build, move |ready| tell.send(ready).unwrap()).unwrap();
    let handle = told.recv().unwrap().unwrap();
    // The loop sleeps between the two and is woken by each.
    for _ in 0..2 {
        let generation = handle.submit(request()).unwrap();
        assert_eq!(pollster::block_on(generation.collect()).unwrap().ids(), [300; 3]);
    }
    handle.drain();
    thread.join().unwrap();
    assert_eq!(handle.status().state, EngineState::Stopped);
    assert_eq!(handle.submit(request()).unwrap_err(), SubmitError::Stopping);
}

fn panic_on_the_thread_is_told() {
    let (tell, told) = mpsc::channel();
    let build = || {
        let clock = Arc::new(ManualClock::default());
        let (engine, knobs) = engine(card(), config(limits(), &clock), hashed());
        knobs.panic_at.store(2, Ordering::SeqCst);
        Ok::<_, LoadError>(engine)
    };
    let thread = spawn(build, move |ready| tell.send(ready).unwrap()).unwrap();
    let handle = told.recv().unwrap().unwrap();
    let generation = handle.submit(request()).unwrap();
    let error = pollster::block_on(generation.collect()).unwrap_err();
    assert!(matches!(error, GenerateError::Engine(_)), "{error:?}");
    thread.join().unwrap_err();
    assert!(matches!(handle.status().state, EngineState::Failed(_)));
    assert!(matches!(handle.submit(request()), Err(SubmitError::Failed(_))));
}

fn load_error_is_handed_over() {
    let (tell, told) = mpsc::channel();
    let error = LoadError::NoTokenizer { file: "none".into() };
    let build = || Err::<Engine<Named>, _>(error);
    let thread = spawn(build, move |ready| tell.send(ready.err()).unwrap()).unwrap();
    assert!(matches!(told.recv().unwrap(), Some(LoadError::NoTokenizer { .. })));
    thread.join().unwrap();
}

/// Whoever waits for the model is told, and need not wait for the thread.
fn panic_while_loading() {
    let (tell, told) = mpsc::channel();
    let build = || -> Result<Engine<Named>, LoadError> { panic!("bad {}", "file") };
    let thread = spawn(build, move |ready| tell.send(ready.err()).unwrap()).unwrap();
    let error = told.recv().unwrap().expect("an error").to_string();
    assert!(error.contains("bad file"), "{error}");
    thread.join().unwrap();
}
