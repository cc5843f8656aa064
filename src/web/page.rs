//! The page: the viewer on a canvas, fed by the worker's trace, its commands sent there. Drawn with
//! WebGL, so that it is there where WebGPU is not.

use super::io;
use super::link::{Hear, Link};
use super::remote::{self, Remote, Server};
use super::simulation::{self, Done};
use super::wire::{Asked, Load, Phase, Ready, Simulation, Told, Wish};
use crate::base::TokenId;
use crate::trace::{Stamped, Told as Frame, read_lines};
use crate::viewer::{
    EngineState, Note, Open, Preset, Source, Submission, ViewCommand, Viewer, Words, drawn,
    read_recording,
};
use eframe::egui;
use js_sys::{Array, Uint8Array};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::HtmlCanvasElement;

/// Where the layout is kept.
const SETTINGS: &str = "tilewright page";
/// The model that comes with the page.
const FABLE: &str = "fable/";

/// What the address asks for.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Options {
    model: Option<String>,
    device: Wish,
    preset: Option<String>,
    /// A recording to show.
    trace: Option<String>,
    /// A server to watch in place of an engine here, and its key.
    remote: Option<String>,
    key: String,
}

/// The page as JavaScript holds it.
#[wasm_bindgen]
pub struct Page {
    face: Rc<RefCell<Face>>,
    runner: eframe::WebRunner,
}

/// Draws on `canvas` until the page is closed. `options` is JSON with what the page's address takes
/// (`web/README.md`): `model`, `device`, `preset`, `trace`, `remote` and `key`, each optional.
#[wasm_bindgen]
pub async fn start(canvas: HtmlCanvasElement, options: String) -> Result<Page, JsValue> {
    let options: Options = serde_json::from_str(&options).map_err(|e| e.to_string())?;
    let face = Rc::new(RefCell::new(Face::default()));
    let (shown, own) = (face.clone(), face.clone());
    let runner = eframe::WebRunner::new();
    let made = Box::new(move |creation: &eframe::CreationContext<'_>| {
        Viewer::prepare(&creation.egui_ctx);
        let mut now = shown.borrow_mut();
        now.ctx = creation.egui_ctx.clone();
        now.own = Rc::downgrade(&own);
        if let Some(text) = creation.storage.and_then(|s| s.get_string(SETTINGS)) {
            now.viewer.restore(&text);
        }
        now.begin(options);
        drop(now);
        Ok(Box::new(App(shown)) as Box<dyn eframe::App>)
    });
    runner.start(canvas, eframe::WebOptions::default(), made).await?;
    Ok(Page { face, runner })
}

#[wasm_bindgen]
impl Page {
    /// Opens files of the person's machine, as an array: a model or a recording.
    pub fn open(&self, files: Array) {
        self.face.borrow_mut().open_files(&files);
    }

    /// What is shown, as JSON: engine, source, steps and running sequences.
    pub fn summary(&self) -> String {
        self.face.borrow().summary()
    }

    /// Every control and mark that is drawn, as JSON: `[{role, name, value, box}]`. The first call
    /// only begins to keep it.
    pub fn drawn(&self) -> String {
        drawn(&self.face.borrow().ctx)
    }

    /// The reason, if the page has failed and draws no more.
    pub fn failure(&self) -> Option<String> {
        self.runner.panic_summary().map(|panic| panic.message())
    }
}

struct App(Rc<RefCell<Face>>);

impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        self.0.borrow_mut().show(ui);
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        storage.set_string(SETTINGS, self.0.borrow().viewer.saved());
    }
}

/// What is typed into the window that opens models.
struct Opening {
    shown: bool,
    url: String,
    device: Wish,
    store: bool,
}

impl Default for Opening {
    fn default() -> Self {
        Self { shown: false, url: String::new(), device: Wish::Auto, store: true }
    }
}

/// The viewer and the engine it looks at.
#[derive(Default)]
struct Face {
    viewer: Viewer,
    link: Option<Link>,
    remote: Option<Remote>,
    /// How the engine was made, to make it again.
    load: Load,
    files: Array,
    ready: Option<Ready>,
    words: Rc<RefCell<BTreeMap<TokenId, String>>>,
    opening: Opening,
    /// Counts what was looked at: a simulation of something else has nobody to tell.
    looks: u32,
    /// Counts what was asked to be opened: a file that comes later than the next one is not shown.
    opens: u32,
    ctx: egui::Context,
    own: std::rc::Weak<RefCell<Face>>,
}

impl Face {
    fn begin(&mut self, options: Options) {
        self.opening.device = options.device;
        self.load = Load {
            url: Some(io::absolute(options.model.as_deref().unwrap_or(FABLE))),
            device: options.device,
            store: true,
            ..Load::default()
        };
        if let Some(trace) = options.trace {
            return self.fetch_recording(trace);
        }
        if let Some(remote) = options.remote.filter(|_| options.model.is_none()) {
            let url = format!("{}/", io::absolute(&remote).trim_end_matches('/'));
            self.viewer.open(Source::Remote { url: url.clone() }, None);
            self.viewer.set_engine(EngineState::Loading(format!("asking {url}")));
            return self.watch(Server { url, key: options.key });
        }
        match options.preset.as_deref().map(|name| (name, Preset::find(name))) {
            Some((_, Some(preset))) => self.preset(preset),
            Some((name, None)) => {
                self.problem(format!("there is no preset {name:?}"));
                self.start();
            }
            None => self.start(),
        }
    }

    fn problem(&mut self, text: String) {
        self.viewer.note(Note::Problem(text));
        self.ctx.request_repaint();
    }

    /// Looks away from what there is; the worker of an engine ends.
    fn leave(&mut self) {
        self.link = None;
        self.remote = None;
        self.looks += 1;
        self.opens += 1;
    }

    /// A fresh engine.
    fn start(&mut self) {
        self.leave();
        self.ready = None;
        self.words = Rc::default();
        let model = match &self.load.url {
            Some(url) => url.trim_end_matches('/').rsplit('/').next().unwrap_or(url).to_string(),
            None => io::name_of(&self.files.get(0)),
        };
        let source = Source::Engine { model, device: "…".to_string() };
        let words = self.words.clone();
        let words: Words = Rc::new(move |token| words.borrow().get(&token).cloned());
        self.viewer.open(source, Some(words));
        self.viewer.set_engine(EngineState::Loading("the program".to_string()));
        self.load.events = true;
        let own = self.own.clone();
        let hear = || -> Hear {
            let own = own.clone();
            Box::new(move |told| {
                if let Some(face) = own.upgrade() {
                    face.borrow_mut().hear(told);
                }
            })
        };
        self.link = Some(Link::start(&self.load, &self.files, hear));
    }

    fn watch(&mut self, server: Server) {
        let own = self.own.clone();
        let hear: remote::Hear = Rc::new(move |told| {
            if let Some(face) = own.upgrade() {
                face.borrow_mut().hear_server(told);
            }
        });
        let (own, again) = (self.own.clone(), server.clone());
        let again = Box::new(move || {
            if let Some(face) = own.upgrade() {
                let mut face = face.borrow_mut();
                // Unless something else was opened meanwhile.
                if face.remote.is_some() {
                    face.watch(again.clone());
                }
            }
        });
        self.remote = Some(Remote::start(server, &hear, again));
    }

    fn hear_server(&mut self, told: Result<Frame, String>) {
        self.ctx.request_repaint();
        match told {
            Ok(Frame::Snapshot(picture)) => {
                self.viewer.resume(*picture);
                self.viewer.set_engine(EngineState::Running);
            }
            Ok(Frame::Event(event)) => self.viewer.push(&event),
            Err(why) => self.viewer.set_engine(EngineState::Failed(why)),
        }
    }

    fn preset(&mut self, preset: Preset) {
        let (setup, policies) = (preset.setup, preset.policies);
        self.load = Load {
            blocks: setup.blocks,
            sequences: setup.sequences,
            step_tokens: setup.step_tokens,
            policies,
            ..self.load.clone()
        };
        self.start();
        preset.traffic.into_iter().for_each(|one| self.submit(one));
    }

    /// Another model, of the default sizes.
    fn model(&mut self, url: Option<String>, files: Array) {
        let (device, store) = (self.opening.device, self.opening.store);
        self.load = Load { url, device, store, ..Load::default() };
        self.files = files;
        self.start();
    }

    fn submit(&mut self, submission: Submission) {
        match (&mut self.link, &self.remote) {
            (Some(link), _) => link.submit(submission),
            (None, Some(remote)) => {
                let (own, server) = (self.own.clone(), remote.server.clone());
                spawn_local(async move {
                    let sent = remote::submit(server, submission).await;
                    if let (Err(why), Some(face)) = (sent, own.upgrade()) {
                        face.borrow_mut().problem(why);
                    }
                });
            }
            (None, None) => {
                self.problem("A recording takes no requests: open a model.".to_string());
            }
        }
    }

    fn hear(&mut self, told: Result<(Told, Vec<u8>), String>) {
        self.ctx.request_repaint();
        match told {
            Ok((told, bytes)) => self.take(told, &bytes),
            Err(why) => {
                self.link = None;
                self.viewer.set_engine(EngineState::Failed(why));
            }
        }
    }

    fn take(&mut self, told: Told, bytes: &[u8]) {
        let Some(link) = &mut self.link else { return };
        match told {
            Told::Events => {
                for event in read_lines(bytes) {
                    match event {
                        Ok(event) => self.viewer.push(&event),
                        Err(error) => self.viewer.note(Note::Problem(error.to_string())),
                    }
                }
            }
            Told::Words { words } => self.words.borrow_mut().extend(words),
            Told::Progress { phase, file, loaded, total } => {
                let word = match phase {
                    Phase::Download => "fetching",
                    Phase::Upload => "to the device",
                };
                let stage = format!("{word}: {file}, {:.1} of {:.1} MB", loaded / 1e6, total / 1e6);
                self.viewer.set_engine(EngineState::Loading(stage));
            }
            Told::Ready(ready) => {
                link.ready();
                self.introduce(*ready);
            }
            Told::Failed { message, .. } => {
                self.link = None;
                self.viewer.set_engine(EngineState::Failed(message));
            }
            Told::Problem { message } => self.viewer.note(Note::Problem(message)),
            Told::Started { id, request, .. } => {
                if let Some((text, ticket)) = link.started(id, request) {
                    self.viewer.note(Note::Prompt { request, text });
                    if let Some(ticket) = ticket {
                        self.viewer.note(Note::Taken { ticket, request });
                    }
                }
            }
            Told::Finished { id, .. } => {
                link.ended(id);
            }
            Told::Refused { id, message, .. } => {
                self.viewer.note(match link.ended(id) {
                    Some(ticket) => Note::Refused { ticket, why: message },
                    None => Note::Problem(message),
                });
            }
            Told::Held { held } => {
                let state = if held { EngineState::Paused } else { EngineState::Running };
                self.viewer.set_engine(state);
            }
            Told::Token { .. }
            | Told::Status(_)
            | Told::Simulated { .. }
            | Told::SimulationDone => {}
        }
    }

    fn introduce(&mut self, ready: Ready) {
        if let Some(why) = &ready.fallback {
            self.viewer.note(Note::Problem(format!("The processor does the work: {why}")));
        }
        let words = self.words.clone();
        self.viewer.set_header(ready.header.clone());
        self.viewer.introduce(
            Source::Engine { model: ready.model.clone(), device: ready.device.clone() },
            Rc::new(move |token| words.borrow().get(&token).cloned()),
        );
        self.viewer.set_engine(EngineState::Running);
        self.ready = Some(ready);
    }

    fn execute(&mut self, command: ViewCommand) {
        let asked = match command {
            ViewCommand::Submit(submission) => return self.submit(submission),
            ViewCommand::Preset(preset) => return self.preset(preset),
            ViewCommand::Open(Open::Ask) => {
                self.opening.shown = true;
                return;
            }
            // A browser tells no paths; what is dropped comes through `Page::open`.
            ViewCommand::Open(Open::Path(_)) => return,
            ViewCommand::Open(Open::Run { name, events }) => {
                self.leave();
                return self.viewer.show_run(name, &events);
            }
            ViewCommand::WhatIf { policies, limits, block_picos } => {
                let events = self.viewer.history().events().cloned().collect();
                let wished = Simulation::WhatIf { policies, limits, block_picos };
                return self.simulate(wished, events);
            }
            ViewCommand::Simulate => return self.simulate(Simulation::Scene, Vec::new()),
            ViewCommand::Save { name, bytes } => return io::save_as(&name, &bytes),
            ViewCommand::Cancel(request) => {
                return match &mut self.link {
                    Some(link) => link.cancel(request),
                    None => {}
                };
            }
            ViewCommand::PauseEngine(hold) => Asked::Hold { hold },
            ViewCommand::StepEngine => Asked::StepOnce,
            ViewCommand::SetLimits(limits) => Asked::Limits { limits },
            ViewCommand::SetPolicies(policies) => Asked::Policies { policies },
        };
        match &mut self.link {
            Some(link) => link.ask(asked),
            None if self.remote.is_some() => {
                self.problem("A server elsewhere is watched, not driven.".to_string());
            }
            None => self.problem("No engine is here to be driven.".to_string()),
        }
    }

    fn show(&mut self, ui: &mut egui::Ui) {
        if self.remote.is_none() && matches!(self.viewer.engine(), EngineState::Failed(_)) {
            egui::Panel::top("restart").show(ui, |ui| {
                if ui.button("Restart the engine").clicked() {
                    self.start();
                }
            });
        }
        self.viewer.show(ui);
        let ctx = ui.ctx().clone();
        self.show_opening(&ctx);
        for command in self.viewer.take_commands() {
            self.execute(command);
        }
    }

    fn show_opening(&mut self, ctx: &egui::Context) {
        if !self.opening.shown {
            return;
        }
        let (mut shown, mut load, mut pick, mut forget) = (true, false, false, false);
        let opening = &mut self.opening;
        egui::Window::new("Open").open(&mut shown).resizable(false).show(ctx, |ui| {
            let label = ui.label("Address of a .gguf file, or of a checkpoint's folder");
            let edit = egui::TextEdit::singleline(&mut opening.url).desired_width(360.0);
            ui.add(edit.hint_text("https://…/model.gguf")).labelled_by(label.id);
            ui.checkbox(&mut opening.store, "keep it in this browser for the next time");
            ui.horizontal(|ui| {
                ui.label("on");
                ui.selectable_value(&mut opening.device, Wish::Auto, "WebGPU if there is one");
                ui.selectable_value(&mut opening.device, Wish::Cpu, "the processor");
            });
            ui.horizontal(|ui| {
                let url = !opening.url.trim().is_empty();
                load = ui.add_enabled(url, egui::Button::new("Load")).clicked();
                pick = ui.button("A file of this machine…").clicked();
                forget = ui.button("Forget all that is kept").clicked();
            });
            ui.weak("A model, or a recording (.jsonl, .jsonl.gz). Files can be dropped anywhere.");
        });
        self.opening.shown = shown && !load && !pick;
        if load {
            let url = io::absolute(self.opening.url.trim());
            self.model(Some(url), Array::new());
        }
        let own = self.own.clone();
        if pick {
            spawn_local(async move {
                let files: Array = io::pick_files().await.into();
                if let Some(face) = own.upgrade() {
                    face.borrow_mut().open_files(&files);
                }
            });
        } else if forget {
            // Files that are open cannot be deleted.
            self.link = None;
            self.viewer.set_engine(EngineState::Absent);
            spawn_local(async move {
                let told = match io::forget_all().await {
                    Ok(bytes) => {
                        format!("{:.1} MB were freed.", bytes.as_f64().unwrap_or_default() / 1e6)
                    }
                    Err(error) => format!("Nothing was freed: {}", io::thrown(&error)),
                };
                if let Some(face) = own.upgrade() {
                    let mut face = face.borrow_mut();
                    face.viewer.note(Note::Told(told));
                    face.ctx.request_repaint();
                }
            });
        }
    }

    fn open_files(&mut self, files: &Array) {
        let Some(first) = files.iter().next() else { return };
        let name = io::name_of(&first);
        if !(name.ends_with(".jsonl") || name.ends_with(".gz")) {
            return self.model(None, files.clone());
        }
        self.read(name, async move { io::bytes_of(&first).await });
    }

    fn fetch_recording(&mut self, url: String) {
        let from = io::absolute(&url);
        self.read(url, async move { io::fetch_bytes(&from).await });
    }

    /// Shows a recording once its bytes are here, unless something else was opened meanwhile.
    fn read(
        &mut self,
        name: String,
        bytes: impl Future<Output = Result<JsValue, JsValue>> + 'static,
    ) {
        self.opens += 1;
        let (own, this) = (self.own.clone(), self.opens);
        spawn_local(async move {
            let bytes = bytes.await;
            if let Some(face) = own.upgrade() {
                let mut face = face.borrow_mut();
                if face.opens == this {
                    face.recording(name, bytes);
                }
            }
        });
    }

    fn recording(&mut self, name: String, bytes: Result<JsValue, JsValue>) {
        self.ctx.request_repaint();
        let bytes = match bytes {
            Ok(bytes) => Uint8Array::new(&bytes).to_vec(),
            Err(error) => return self.problem(io::thrown(&error)),
        };
        self.leave();
        self.viewer.set_engine(EngineState::Absent);
        self.viewer.open(Source::Recording { name: name.clone() }, None);
        let viewer = &mut self.viewer;
        match read_recording(&bytes[..], &mut |event| viewer.push(&event)) {
            Ok(header) => self.viewer.set_header(header),
            Err(error) => self.problem(format!("{name}: {error}")),
        }
    }

    /// Has a simulation run; `events` are the run that it asks about.
    fn simulate(&mut self, wished: Simulation, events: Vec<Stamped>) {
        let (own, look) = (self.own.clone(), self.looks);
        spawn_local(async move {
            let done = simulation::run(wished, events).await;
            if let Some(face) = own.upgrade() {
                let mut face = face.borrow_mut();
                if face.looks == look {
                    face.simulated(&wished, done);
                }
            }
        });
    }

    fn simulated(&mut self, wished: &Simulation, done: Result<Done, String>) {
        self.ctx.request_repaint();
        match done {
            Ok(Done::Scene(events)) => {
                self.leave();
                self.viewer.show_scene(&events);
            }
            Ok(Done::Compared(comparison)) => self.viewer.compare(Some(*comparison)),
            Err(why) => {
                if matches!(wished, Simulation::WhatIf { .. }) {
                    self.viewer.compare(None);
                }
                self.problem(why);
            }
        }
    }

    fn summary(&self) -> String {
        let picture = self.viewer.history().live();
        let (word, why) = match self.viewer.engine() {
            EngineState::Absent => ("absent", None),
            EngineState::Loading(stage) => ("loading", Some(stage)),
            EngineState::Running => ("running", None),
            EngineState::Paused => ("paused", None),
            EngineState::Failed(why) => ("failed", Some(why)),
        };
        let ready = self.ready.as_ref();
        serde_json::json!({
            "engine": word,
            "why": why,
            "model": ready.map(|ready| &ready.model),
            "device": ready.map(|ready| &ready.device),
            "backend": ready.map(|ready| &ready.backend),
            "fallback": ready.and_then(|ready| ready.fallback.as_ref()),
            "step": picture.step,
            "events": picture.seq,
            "running": picture.running(),
            "memory_bytes": io::memory_bytes(),
        })
        .to_string()
    }
}
