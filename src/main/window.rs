//! The window on the desktop: feeds the viewer, executes its commands.

use crate::cli::ModelArgs;
use crate::dialog;
use crate::live::Live;
use crate::reading::Reading;
use crate::recording;
use crate::remote::Server;
use crate::session::RecordArgs;
use crate::simulated::compare;
use crate::wake::Wake;
use crate::watch::Remote;
use anyhow::{Result, anyhow};
use eframe::egui;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tilewright::base::{Limits, Policies};
use tilewright::sim::scene;
use tilewright::trace::Stamped;
use tilewright::viewer::{
    Comparison, EngineState, Note, Open, Preset, Setup, Source, ViewCommand, Viewer,
};

/// Where the layout is kept.
const SETTINGS: &str = "tilewright window";

/// What the window begins with.
pub enum Begin {
    Model,
    Preset(Preset),
    Recording(PathBuf),
    Server(Server),
}

/// Opens the window and returns when it is closed.
pub fn run(model: ModelArgs, record: RecordArgs, begin: Begin) -> Result<ExitCode> {
    if !has_display() {
        return Err(no_window("there is no display"));
    }
    let options = eframe::NativeOptions {
        viewport: egui::ViewportBuilder::default()
            .with_title("tilewright")
            .with_app_id("tilewright")
            .with_inner_size([1280.0, 720.0])
            .with_min_inner_size([900.0, 560.0])
            .with_drag_and_drop(true),
        renderer: eframe::Renderer::Glow,
        ..Default::default()
    };
    let made = eframe::run_native(
        "tilewright",
        options,
        Box::new(|creation| Ok(Box::new(App::new(creation, model, record, begin)))),
    );
    made.map_err(|error| no_window(&error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

fn no_window(why: &str) -> anyhow::Error {
    let why = why.trim_end_matches('.');
    anyhow!("the window cannot be opened: {why}; `tilewright serve` works without one")
}

/// Elsewhere the system always has one, or says itself that it has not.
fn has_display() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !cfg!(target_os = "linux") || set("DISPLAY") || set("WAYLAND_DISPLAY")
}

/// What a dialog's or a simulation's thread sends back.
enum Done {
    Open(PathBuf),
    Problem(String),
    Told(String),
    /// Of what was looked at then.
    Compared(u64, Result<Box<Comparison>>),
    Simulated(u64, Result<Vec<Stamped>>),
}

struct App {
    viewer: Viewer,
    live: Option<Live>,
    remote: Option<Remote>,
    reading: Option<Reading>,
    /// Counts what was looked at: a simulation of something else has nobody to tell.
    looks: u64,
    model: ModelArgs,
    record: RecordArgs,
    wake: Wake,
    done: (Sender<Done>, Receiver<Done>),
    /// The source's title and words were given to the viewer.
    introduced: bool,
}

impl App {
    fn new(
        creation: &eframe::CreationContext<'_>,
        model: ModelArgs,
        record: RecordArgs,
        begin: Begin,
    ) -> Self {
        Viewer::prepare(&creation.egui_ctx);
        let ctx = creation.egui_ctx.clone();
        let mut app = Self {
            viewer: Viewer::default(),
            live: None,
            remote: None,
            reading: None,
            looks: 0,
            model,
            record,
            wake: Arc::new(move || ctx.request_repaint()),
            done: channel(),
            introduced: false,
        };
        if let Some(text) = creation.storage.and_then(|s| s.get_string(SETTINGS)) {
            app.viewer.restore(&text);
        }
        match begin {
            Begin::Model => app.start(Setup::default(), Policies::default()),
            Begin::Preset(preset) => app.preset(preset),
            Begin::Recording(path) => app.open(&path),
            Begin::Server(server) => app.watch(server),
        }
        app
    }

    fn problem(&mut self, text: String) {
        self.viewer.note(Note::Problem(text));
    }

    /// Looks at a server elsewhere.
    fn watch(&mut self, server: Server) {
        self.leave();
        self.viewer.open(Source::Remote { url: server.url().to_string() }, None);
        match Remote::start(server, self.wake.clone()) {
            Ok(remote) => self.remote = Some(remote),
            Err(error) => self.problem(crate::told(&error)),
        }
    }

    /// A fresh engine; the one before ends.
    fn start(&mut self, setup: Setup, policies: Policies) {
        self.leave();
        self.introduced = false;
        let source = Source::Engine { model: self.model.model.clone(), device: "…".to_string() };
        self.viewer.open(source, None);
        match Live::start(&self.model, &self.record, (setup, policies), self.wake.clone()) {
            Ok(live) => self.live = Some(live),
            Err(error) => self.problem(crate::told(&error)),
        }
    }

    fn preset(&mut self, preset: Preset) {
        self.start(preset.setup, preset.policies);
        if let Some(live) = &mut self.live {
            preset.traffic.into_iter().for_each(|one| live.submit(one));
        }
    }

    /// Takes what the threads have, before a frame.
    fn pump(&mut self) {
        while let Ok(done) = self.done.1.try_recv() {
            match done {
                Done::Open(path) => self.open(&path),
                Done::Problem(text) => self.problem(text),
                Done::Told(text) => self.viewer.note(Note::Told(text)),
                Done::Compared(look, _) | Done::Simulated(look, _) if look != self.looks => {}
                Done::Compared(_, Ok(comparison)) => self.viewer.compare(Some(*comparison)),
                Done::Compared(_, Err(error)) => {
                    self.viewer.compare(None);
                    self.problem(crate::told(&error));
                }
                Done::Simulated(_, Ok(events)) => {
                    self.leave();
                    self.viewer.show_scene(&events);
                }
                Done::Simulated(_, Err(error)) => self.problem(crate::told(&error)),
            }
        }
        self.read_on();
        if let Some(remote) = &self.remote {
            remote.pump(&mut self.viewer);
        }
        let Some(live) = &mut self.live else { return };
        let mut events = Vec::new();
        let notes = live.take(self.viewer.next_seq(), &mut events);
        if let (false, Some((handle, device))) = (self.introduced, live.ready()) {
            self.introduced = true;
            self.viewer.set_header(live.header());
            let card = handle.card().clone();
            self.viewer.introduce(
                Source::Engine { model: card.name.clone(), device },
                Rc::new(move |token| Some(card.tokenizer.token_text(token))),
            );
        }
        let state = live.state();
        events.iter().for_each(|event| self.viewer.push(event));
        notes.into_iter().for_each(|note| self.viewer.note(note));
        self.viewer.set_engine(state);
    }

    fn open(&mut self, path: &Path) {
        if !recording::is_recording(path) {
            self.model.model = path.display().to_string();
            return self.start(Setup::default(), Policies::default());
        }
        self.leave();
        self.viewer.open(recording::source(path), None);
        self.viewer.set_engine(EngineState::Loading("the recording".to_string()));
        let (path, model) = (path.to_path_buf(), self.model.clone());
        match Reading::start(path, model, self.wake.clone()) {
            Ok(reading) => self.reading = Some(reading),
            Err(error) => {
                self.viewer.set_engine(EngineState::Absent);
                self.problem(crate::told(&error));
            }
        }
    }

    /// Shows what was read meanwhile of a recording.
    fn read_on(&mut self) {
        let ended = self.reading.as_ref().and_then(|reading| reading.pump(&mut self.viewer));
        let Some(ended) = ended else { return };
        self.reading = None;
        self.viewer.set_engine(EngineState::Absent);
        if let Err(error) = ended {
            self.problem(crate::told(&error));
        }
    }

    /// Looks away from what there is; an engine here ends.
    fn leave(&mut self) {
        (self.live, self.remote, self.reading) = (None, None, None);
        self.looks += 1;
    }

    /// Does `work` on a thread of its own and takes its answer before a frame.
    fn background(&self, work: impl FnOnce() -> Option<Done> + Send + 'static) {
        let (to, wake) = (self.done.0.clone(), self.wake.clone());
        std::thread::spawn(move || {
            if let Some(done) = work() {
                // The window may be gone by now.
                let _ = to.send(done);
                wake();
            }
        });
    }

    fn execute(&mut self, command: ViewCommand) {
        let handle = self.live.as_ref().and_then(Live::ready).map(|ready| ready.0);
        match (command, handle) {
            (ViewCommand::Submit(submission), _) => match (&mut self.live, &self.remote) {
                (Some(live), _) => live.submit(submission),
                (None, Some(remote)) => remote.submit(submission),
                _ => self.problem("A recording takes no requests: open a model.".to_string()),
            },
            (ViewCommand::Cancel(id), Some(handle)) => handle.cancel(id),
            (ViewCommand::PauseEngine(hold), Some(handle)) => handle.hold(hold),
            (ViewCommand::StepEngine, Some(handle)) => handle.step_once(),
            (ViewCommand::SetLimits(limits), Some(handle)) => {
                if let Err(error) = handle.set_limits(limits) {
                    self.problem(error.to_string());
                }
            }
            (ViewCommand::SetPolicies(policies), Some(handle)) => {
                if let Err(error) = handle.set_policies(policies) {
                    self.problem(error.to_string());
                }
            }
            (ViewCommand::Preset(preset), _) => self.preset(preset),
            (ViewCommand::Open(Open::Path(path)), _) => self.open(&path),
            (ViewCommand::Open(Open::Ask), _) => self.ask(),
            (ViewCommand::Open(Open::Run { name, events }), _) => {
                self.leave();
                self.viewer.show_run(name, &events);
            }
            (ViewCommand::WhatIf { policies, limits, block_picos }, _) => {
                self.what_if(policies, limits, block_picos);
            }
            (ViewCommand::Simulate, _) => {
                let look = self.looks;
                self.background(move || Some(Done::Simulated(look, scene().map_err(Into::into))))
            }
            (ViewCommand::Save { name, bytes }, _) => self.save_as(name, bytes),
            (command, None) => match (&self.remote, command) {
                (Some(remote), ViewCommand::SetLimits(limits)) => remote.set(Some(limits), None),
                (Some(remote), ViewCommand::SetPolicies(to)) => remote.set(None, Some(to)),
                (Some(_), _) => {
                    let text = "A server elsewhere takes requests, limits and policies from here; \
                                it is not paused, stepped or told to cancel.";
                    self.problem(text.to_string());
                }
                (None, _) => self.problem("No engine is here to be driven.".to_string()),
            },
        }
    }

    fn what_if(&self, policies: Policies, limits: Limits, block_picos: u64) {
        let events: Vec<Stamped> = self.viewer.history().events().cloned().collect();
        let look = self.looks;
        self.background(move || {
            let compared = compare(&events, policies, limits, block_picos);
            Some(Done::Compared(look, compared.map(Box::new)))
        });
    }

    fn ask(&mut self) {
        if dialog::is_there() {
            return self.background(|| dialog::open().map(Done::Open));
        }
        let text = "No file dialog is installed here: drop a file on the window, or name it, as in \
                    `tilewright view FILE` and `tilewright view -m MODEL`.";
        self.problem(text.to_string());
    }

    fn save_as(&self, name: String, bytes: Vec<u8>) {
        self.background(move || {
            let named = dialog::is_there();
            let path = if named { dialog::save(&name)? } else { dialog::fresh(&name) };
            Some(match std::fs::write(&path, bytes) {
                Ok(()) => Done::Told(format!("{} was written.", dialog::whole(&path).display())),
                Err(error) => Done::Problem(format!("{} was not written: {error}", path.display())),
            })
        });
    }
}

impl eframe::App for App {
    fn logic(&mut self, _: &egui::Context, _: &mut eframe::Frame) {
        self.pump();
    }

    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        self.viewer.show(ui);
        for command in self.viewer.take_commands() {
            self.execute(command);
        }
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        storage.set_string(SETTINGS, self.viewer.saved());
    }
}
