//! An engine for the window: made on a thread of its own, its events kept in a ring that the window
//! empties, its answers read so that no request waits for a frame.

use crate::cli::ModelArgs;
use crate::wake::{Wake, Waker, locked};
use crate::{device, model, session};
use anyhow::Result;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tilewright::base::{MonotonicClock, Policies};
use tilewright::engine::{
    DeviceRunner, Engine, EngineHandle, GenerateError, GenerateRequest, Generation, Output, Sizes,
    SubmitError, load, spawn,
};
use tilewright::text::Message;
use tilewright::trace::{Header, RingSink, Sink, Stamped};
use tilewright::viewer::{EngineState, Note, Setup, Submission};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Events that may wait for a frame; older ones are then missing, and the stream says so.
const EVENTS: usize = 1 << 17;

/// What the threads tell the window.
struct Shared {
    ring: Mutex<RingSink>,
    waker: Waker,
    /// The window looks at something else by now.
    left: AtomicBool,
    notes: Mutex<VecDeque<Note>>,
    engine: Mutex<Loading>,
    /// What a recording of the engine begins with, once it is loaded.
    header: Mutex<Header>,
}

/// Where the making of the engine is.
enum Loading {
    Stage(String),
    Ready { handle: EngineHandle, device: String },
    Failed(String),
}

impl Shared {
    fn note(&self, note: Note) {
        locked(&self.notes).push_back(note);
        self.waker.tell();
    }
}

/// Puts events into the ring and wakes the window.
struct Tell(Arc<Shared>);

impl Sink for Tell {
    fn push(&mut self, event: &Stamped) {
        locked(&self.0.ring).push(event);
        self.0.waker.tell();
    }
}

pub struct Live {
    shared: Arc<Shared>,
    readers: UnboundedSender<Generation>,
    /// Sent as soon as the engine is there.
    early: Vec<Submission>,
}

impl Live {
    /// Begins to make an engine; returns at once.
    pub fn start(
        args: &ModelArgs,
        record: &session::RecordArgs,
        (setup, policies): (Setup, Policies),
        wake: Wake,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            ring: Mutex::new(RingSink::new(EVENTS)),
            waker: Waker::new(wake),
            left: AtomicBool::new(false),
            notes: Mutex::default(),
            engine: Mutex::new(Loading::Stage("opening the device".to_string())),
            header: Mutex::default(),
        });
        let (to, from) = (shared.clone(), shared.clone());
        let (args, record) = (args.clone(), record.clone());
        spawn(
            move || build(&args, &record, (setup, policies), &from),
            move |made| {
                let mut engine = locked(&to.engine);
                // The last stage that `build` told is the device's name.
                let device = match &*engine {
                    Loading::Stage(device) => device.clone(),
                    _ => String::new(),
                };
                *engine = match made {
                    Ok(handle) if to.left.load(Ordering::Acquire) => return handle.stop(),
                    Ok(handle) => Loading::Ready { handle, device },
                    Err(error) => Loading::Failed(crate::told(&error)),
                };
                drop(engine);
                to.waker.tell();
            },
        )?;
        let readers = read_answers(shared.clone())?;
        Ok(Self { shared, readers, early: Vec::new() })
    }

    /// The engine's way in, once it is there, with its device's name.
    pub fn ready(&self) -> Option<(EngineHandle, String)> {
        match &*locked(&self.shared.engine) {
            Loading::Ready { handle, device } => Some((handle.clone(), device.clone())),
            _ => None,
        }
    }

    /// What a recording of the engine begins with.
    pub fn header(&self) -> Header {
        locked(&self.shared.header).clone()
    }

    pub fn state(&self) -> EngineState {
        use tilewright::engine::EngineState as Now;
        match &*locked(&self.shared.engine) {
            Loading::Stage(stage) => EngineState::Loading(stage.clone()),
            Loading::Failed(why) => EngineState::Failed(why.clone()),
            Loading::Ready { handle, .. } => {
                let status = handle.status();
                match status.state {
                    Now::Failed(why) => EngineState::Failed(why.to_string()),
                    Now::Stopped => EngineState::Failed("it was stopped".to_string()),
                    Now::Serving | Now::Draining if status.held => EngineState::Paused,
                    Now::Serving | Now::Draining => EngineState::Running,
                }
            }
        }
    }

    /// Events from stream position `seq` on, and what else was told. What comes in from now on
    /// wakes the window again.
    pub fn take(&mut self, seq: u64, events: &mut Vec<Stamped>) -> Vec<Note> {
        self.shared.waker.looked();
        locked(&self.shared.ring).since(seq, events);
        if self.ready().is_some() {
            for submission in std::mem::take(&mut self.early) {
                self.submit(submission);
            }
        }
        locked(&self.shared.notes).drain(..).collect()
    }

    pub fn submit(&mut self, submission: Submission) {
        let Some((handle, _)) = self.ready() else {
            self.early.push(submission);
            return;
        };
        match send(&handle, &submission) {
            Ok(generation) => {
                let (request, text) = (generation.id(), submission.prompt);
                if let Some(ticket) = submission.ticket {
                    self.shared.note(Note::Taken { ticket, request });
                }
                self.shared.note(Note::Prompt { request, text });
                // The reader lives as long as this.
                let _ = self.readers.send(generation);
            }
            Err(error) => self.shared.note(match submission.ticket {
                Some(ticket) => Note::Refused { ticket, why: crate::told(&error) },
                None => Note::Problem(crate::told(&error)),
            }),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shared.left.store(true, Ordering::Release);
        if let Some((handle, _)) = self.ready() {
            handle.stop();
        }
    }
}

fn send(handle: &EngineHandle, submission: &Submission) -> Result<Generation> {
    let card = handle.card();
    let prompt = match (&card.template, submission.chat) {
        (Some(template), true) => {
            let turns = submission.turns().map(|(role, text)| Message::new(role, text));
            session::render(card, template, &turns.collect::<Vec<_>>())?
        }
        _ => card.tokenizer.encode_prompt(&submission.prompt)?,
    };
    let request = GenerateRequest {
        prompt,
        max_tokens: submission.max_tokens,
        temperature: submission.temperature,
        top_k: submission.top_k,
        top_p: submission.top_p,
        seed: submission.seed,
        ignore_eos: submission.ignore_eos,
        ..GenerateRequest::default()
    };
    Ok(handle.submit(request)?)
}

/// Loads the model; runs on the engine's thread.
fn build(
    args: &ModelArgs,
    record: &session::RecordArgs,
    (setup, policies): (Setup, Policies),
    shared: &Arc<Shared>,
) -> Result<Engine<DeviceRunner>> {
    let stage = |text: String| {
        *locked(&shared.engine) = Loading::Stage(text);
        shared.waker.tell();
    };
    let mut options = model::options(args)?;
    let weights = model::weights(&args.model)?;
    let device = device::open(&args.device)?;
    let name = device.facts().name.clone();
    options.sequences = setup.sequences.or(options.sequences);
    options.step_tokens = setup.step_tokens.or(options.step_tokens);
    if let Some(blocks) = setup.blocks {
        let sizes = Sizes::choose(&weights, device.facts(), &options)?;
        options.kv_memory = Some(sizes.kv_bytes(blocks));
    }
    let sizes = model::sizes(&weights, device.as_ref(), &mut options)?;
    let mut progress = |done: u64, total: u64| {
        stage(format!("{} % of {}", done * 100 / total.max(1), model::mib(total)));
    };
    let clock = MonotonicClock::default();
    let loaded = load(&weights, device, &sizes, &options, &clock, &mut progress)?;
    for warning in &loaded.warnings {
        shared.note(Note::Problem(warning.clone()));
    }
    stage(name);
    *locked(&shared.header) = loaded.header();
    session::engine(loaded, record, |config| {
        config.policies = policies;
        // Blocks show their text, and what is exported can be run again.
        config.record_requests = true;
        config.sinks.push(Box::new(Tell(shared.clone())));
    })
}

/// A thread that takes every answer as it comes: the text is drawn from the events, but an answer
/// that nobody reads would be cancelled. Failures are told.
fn read_answers(shared: Arc<Shared>) -> Result<UnboundedSender<Generation>> {
    let (to, from) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let thread = std::thread::Builder::new().name("tilewright-readers".to_string());
    thread.spawn(move || runtime.block_on(each(from, shared)))?;
    Ok(to)
}

async fn each(mut from: UnboundedReceiver<Generation>, shared: Arc<Shared>) {
    while let Some(generation) = from.recv().await {
        tokio::spawn(read(generation, shared.clone()));
    }
}

async fn read(mut generation: Generation, shared: Arc<Shared>) {
    let request = generation.id();
    while let Some(output) = generation.next().await {
        match output {
            Output::Failed(
                GenerateError::Cancelled
                | GenerateError::Stopped
                | GenerateError::Refused(SubmitError::Stopping),
            ) => {}
            Output::Failed(error) => {
                shared.note(Note::Problem(format!("request {request}: {error}")));
            }
            _ => {}
        }
    }
    shared.waker.tell();
}
