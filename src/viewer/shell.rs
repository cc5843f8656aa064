//! The window's whole state, and one frame of it. Events come in, commands go out; nothing is drawn
//! that is not a function of the events and of what the person chose to look at.

use super::actions::{Action, Export, Zoom};
use super::chats::Chats;
use super::command::{Open, Preset, ViewCommand};
use super::drive::Drive;
use super::files::{to_csv, to_jsonl, to_perfetto};
use super::kernels::{self, Kernels};
use super::lives::Lives;
use super::paint;
use super::palette::Palette;
use super::shot::{self, Shot};
use super::source::{EngineState, Note, Source, Words};
use super::stage::{Focus, Stage, Window};
use super::steps::Steps;
use super::time::{Play, Time};
use super::view::{View, first_layout};
use super::what_if::{self, Comparison, WhatIf};
use super::why::{self, Decisions};
use super::{blocks, composition, counters, details, queue, scrub, slots, text, timeline, top};
use crate::base::RequestId;
use crate::trace::{Cursor, Header, History, Picture, Stamped};
use egui::{Color32, Context, Frame, Label, Margin, Panel, RichText, Ui, WidgetText};
use egui_tiles::{SimplificationOptions, TileId, Tree, UiResponse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a stream that are kept, about.
const HISTORY_BYTES: usize = if cfg!(target_arch = "wasm32") { 96 << 20 } else { 512 << 20 };
/// Width of the panels at both sides at least.
const SIDE_MIN: f32 = 150.0;
/// Width of the first run's hint: each of its three sentences takes one line.
const HINT: f32 = 520.0;
/// Complaints and answers shown at once.
const TOLD_MAX: usize = 3;

/// What outlives the program.
#[derive(Serialize, Deserialize)]
struct Saved {
    layout: Tree<View>,
    hint_seen: bool,
}

pub struct Viewer {
    source: Source,
    engine: EngineState,
    history: History,
    cursor: Cursor,
    steps: Steps,
    lives: Lives,
    decisions: Decisions,
    kernels: Kernels,
    what_if: WhatIf,
    words: Option<Words>,
    prompts: BTreeMap<RequestId, String>,
    /// What the person is told, and whether it is a complaint.
    told: Vec<(bool, String)>,
    /// What an export of the stream begins with.
    header: Header,
    focus: Focus,
    time: Time,
    window: Option<Window>,
    layout: Tree<View>,
    drive: Drive,
    chats: Chats,
    palette: Palette,
    hint: bool,
    commands: Vec<ViewCommand>,
}

impl Default for Viewer {
    fn default() -> Self {
        Self {
            source: Source::Nothing,
            engine: EngineState::Absent,
            history: History::new(HISTORY_BYTES),
            cursor: Cursor::default(),
            steps: Steps::default(),
            lives: Lives::default(),
            decisions: Decisions::default(),
            kernels: Kernels::default(),
            what_if: WhatIf::default(),
            words: None,
            prompts: BTreeMap::new(),
            told: Vec::new(),
            header: Header::default(),
            focus: Focus::default(),
            time: Time::default(),
            window: None,
            layout: first_layout(),
            drive: Drive::default(),
            chats: Chats::default(),
            palette: Palette::default(),
            hint: true,
            commands: Vec::new(),
        }
    }
}

impl Viewer {
    /// Fonts and styles; once per context.
    pub fn prepare(ctx: &Context) {
        ctx.all_styles_mut(|style| {
            style.spacing.item_spacing = egui::vec2(6.0, 4.0);
            style.interaction.tooltip_delay = 0.15;
            style.interaction.selectable_labels = false;
            // egui's own are too pale for the small letters here.
            let (text, weak) = if style.visuals.dark_mode { (190, 145) } else { (50, 100) };
            style.visuals.widgets.noninteractive.fg_stroke.color = Color32::from_gray(text);
            style.visuals.weak_text_color = Some(Color32::from_gray(weak));
            let back = style.visuals.panel_fill;
            for color in [&mut style.visuals.warn_fg_color, &mut style.visuals.error_fg_color] {
                *color = paint::readable(*color, back);
            }
        });
    }

    /// Looks at another source, from its beginning; what was typed and the layout stay.
    pub fn open(&mut self, source: Source, words: Option<Words>) {
        let fresh = Self::default();
        self.chats.source_changed();
        self.what_if.source_changed();
        // A run of a comparison is looked into from there, and back.
        let keep = matches!(source, Source::Simulation { .. });
        let header = match keep {
            true => Header::simulated(self.header.block_picos()),
            false => Header::default(),
        };
        *self = Self {
            header,
            what_if: if keep { std::mem::take(&mut self.what_if) } else { fresh.what_if },
            source,
            words,
            layout: std::mem::replace(&mut self.layout, fresh.layout),
            drive: std::mem::take(&mut self.drive),
            chats: std::mem::take(&mut self.chats),
            hint: self.hint,
            commands: std::mem::take(&mut self.commands),
            engine: self.engine.clone(),
            ..fresh
        };
    }

    /// Shows a simulated run, whole: one of the comparison at hand, which stays.
    pub fn show_run(&mut self, name: String, events: &[Stamped]) {
        self.engine = EngineState::Absent;
        self.open(Source::Simulation { name }, None);
        events.iter().for_each(|event| self.push(event));
    }

    /// Shows the made-up traffic to a large device, with nothing of what was shown before.
    pub fn show_scene(&mut self, events: &[Stamped]) {
        self.open(Source::Nothing, None);
        self.show_run("8B on an H100".to_string(), events);
    }

    /// What is known of how the source was made: for exports, and for [`ViewCommand::WhatIf`].
    pub fn set_header(&mut self, header: Header) {
        self.header = header;
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The answer to [`ViewCommand::WhatIf`]; `None` where it failed, which a note tells.
    pub fn compare(&mut self, comparison: Option<Comparison>) {
        self.what_if.done(comparison);
    }

    /// Joins the source's stream late, or again after a loss: `picture` is its state so far.
    pub fn resume(&mut self, picture: Picture) {
        self.open(self.source.clone(), self.words.clone());
        self.lives = Lives::resume(&picture);
        self.history = History::resume(picture, HISTORY_BYTES);
    }

    /// The next event of the source.
    pub fn push(&mut self, stamped: &Stamped) {
        self.steps.push(stamped);
        self.lives.push(stamped);
        self.decisions.push(stamped);
        self.kernels.push(stamped);
        if self.history.push(stamped) {
            let oldest = self.history.oldest_step();
            self.steps.forget_before(oldest);
            self.lives.forget_before(oldest);
            self.decisions.forget_before(oldest);
        }
    }

    /// Stream position of the next event.
    pub fn next_seq(&self) -> u64 {
        self.history.live().seq
    }

    pub fn set_words(&mut self, words: Words) {
        self.words = Some(words);
    }

    /// Says who the source is, once that is known; what was shown stays.
    pub fn introduce(&mut self, source: Source, words: Words) {
        self.source = source;
        self.words = Some(words);
    }

    pub fn set_engine(&mut self, engine: EngineState) {
        self.engine = engine;
    }

    pub fn engine(&self) -> &EngineState {
        &self.engine
    }

    pub fn note(&mut self, note: Note) {
        match note {
            Note::Prompt { request, text } => {
                self.prompts.insert(request, text);
            }
            Note::Taken { ticket, request } => self.chats.taken(ticket, request),
            Note::Refused { ticket, why } => self.chats.refused(ticket, why),
            Note::Problem(text) => self.tell(true, text),
            Note::Told(text) => self.tell(false, text),
        }
    }

    fn tell(&mut self, complaint: bool, text: String) {
        self.told.push((complaint, text));
        let over = self.told.len().saturating_sub(TOLD_MAX);
        self.told.drain(..over);
    }

    /// Stands at `step`.
    pub fn go(&mut self, step: u64) {
        self.time.go(step, &self.steps);
    }

    /// The shown step and how it moves.
    pub fn time(&self) -> (u64, Play) {
        (self.time.shown().unwrap_or(self.history.live().step), self.time.play)
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    pub fn lives(&self) -> &Lives {
        &self.lives
    }

    /// What the person asked for since the last call.
    pub fn take_commands(&mut self) -> Vec<ViewCommand> {
        std::mem::take(&mut self.commands)
    }

    /// Layout and what was learnt, as text for the program's settings.
    pub fn saved(&self) -> String {
        let saved = Saved { layout: self.layout.clone(), hint_seen: !self.hint };
        serde_json::to_string(&saved).unwrap_or_default()
    }

    /// Takes up what [`Self::saved`] gave; text of another version is left alone.
    pub fn restore(&mut self, text: &str) {
        if let Ok(saved) = serde_json::from_str::<Saved>(text) {
            // One that was saved before a view was added would hide it.
            if View::ALL.into_iter().all(|view| saved.layout.tiles.find_pane(&view).is_some()) {
                self.layout = saved.layout;
            }
            self.hint = !saved.hint_seen;
        }
    }

    /// Without the hint of the first run.
    pub fn without_hint(mut self) -> Self {
        self.hint = false;
        self
    }

    /// One view alone, as for a picture of it.
    pub fn show_one(&mut self, ui: &mut Ui, view: View) {
        let (mut stage, mut parts) = self.stage();
        Frame::central_panel(ui.style()).show(ui, |ui| {
            ui.set_min_size(ui.available_size());
            show_view(ui, &mut stage, &mut parts.rest, view);
        });
        self.focus.turn();
    }

    /// One frame of everything.
    pub fn show(&mut self, ui: &mut Ui) {
        let dt = ui.input(|i| f64::from(i.stable_dt)).min(0.1);
        self.time.advance(dt, &self.steps);
        self.show_moment(ui);
    }

    /// The same while time stands still, as for a picture.
    pub fn show_moment(&mut self, ui: &mut Ui) {
        let ctx = ui.ctx().clone();
        take_clicks_of_slow_frames(&ctx);
        let mut actions = Action::pressed(&ctx);
        actions.extend(self.palette.show(&ctx));
        self.dropped(&ctx);
        Panel::top("top").show(ui, |ui| {
            actions.extend(top::show(ui, &self.source, &self.engine));
        });
        self.notes(ui);
        let (mut stage, parts) = self.stage();
        Panel::bottom("time").show(ui, |ui| actions.extend(scrub::show(ui, &mut stage)));
        // In a narrow window the views come first.
        let width = ui.available_width();
        let sides = [0.22, 0.24].map(|part| (width * part).max(SIDE_MIN));
        let left = SIDE_MIN..=sides[0].min(420.0);
        Panel::left("drive").default_size(232.0).size_range(left).show(ui, |ui| {
            parts.drive.show(ui, &mut stage, parts.engine);
        });
        let right = SIDE_MIN..=sides[1].min(520.0);
        Panel::right("details").default_size(236.0).size_range(right).show(ui, |ui| {
            details::show(ui, &mut stage);
        });
        let fill = ui.visuals().panel_fill;
        let frame = Frame::new().fill(fill).inner_margin(Margin::same(2));
        egui::CentralPanel::no_frame().frame(frame).show(ui, |ui| {
            let mut behavior = Panes { stage: &mut stage, rest: parts.rest };
            parts.layout.ui(&mut behavior, ui);
        });
        self.show_hint(&ctx);
        for action in actions {
            self.act(action, &ctx);
        }
        if self.focus.turn() || self.time.play == Play::Playing {
            ctx.request_repaint();
        }
    }

    /// What views draw from, and what else of the window a frame needs.
    fn stage(&mut self) -> (Stage<'_>, Parts<'_>) {
        let picture = match self.time.shown() {
            Some(step) => self.history.picture_at(step, &mut self.cursor),
            None => self.history.live(),
        };
        let stage = Stage {
            picture,
            history: &self.history,
            steps: &self.steps,
            lives: &self.lives,
            decisions: &self.decisions,
            words: self.words.as_ref(),
            prompts: &self.prompts,
            focus: &mut self.focus,
            time: &mut self.time,
            window: &mut self.window,
            commands: &mut self.commands,
            live: self.source.is_live()
                && matches!(self.engine, EngineState::Running | EngineState::Paused),
        };
        let parts = Parts {
            drive: &mut self.drive,
            engine: &self.engine,
            layout: &mut self.layout,
            rest: Rest {
                kernels: &self.kernels,
                what_if: &mut self.what_if,
                block_picos: self.header.block_picos(),
                chats: &mut self.chats,
            },
        };
        (stage, parts)
    }

    /// Complaints, and why an engine failed: the window stays.
    fn notes(&mut self, ui: &mut Ui) {
        let failed = match &self.engine {
            EngineState::Failed(why) => Some(why.clone()),
            _ => None,
        };
        if failed.is_none() && self.told.is_empty() {
            return;
        }
        Panel::top("problems").show(ui, |ui| {
            let color = ui.visuals().error_fg_color;
            if let Some(why) = failed {
                let text = RichText::new(format!("The engine has failed: {why}")).color(color);
                ui.add(Label::new(text).wrap());
                ui.weak("What it did until then can still be looked at. Open a model to go on.");
            }
            for (complaint, text) in &self.told {
                let color = if *complaint { color } else { ui.visuals().text_color() };
                ui.add(Label::new(RichText::new(text).color(color)).wrap());
            }
            if !self.told.is_empty() && ui.small_button("Dismiss").clicked() {
                self.told.clear();
            }
        });
    }

    fn dropped(&mut self, ctx: &Context) {
        for file in ctx.input(|i| i.raw.dropped_files.clone()) {
            let path = file.path().to_path_buf();
            self.commands.push(ViewCommand::Open(Open::Path(path)));
        }
    }

    fn show_hint(&mut self, ctx: &Context) {
        if !self.hint {
            return;
        }
        let window = egui::Window::new("How to read the block map")
            .anchor(egui::Align2::CENTER_CENTER, [0.0, 0.0])
            .collapsible(false)
            .resizable(false)
            .default_width(HINT);
        window.show(ctx, |ui| {
            ui.label("Each cell is a block of KV cache; its colour and number name the sequence.");
            ui.label("It fills from below as positions are computed; hatched cells are shared.");
            ui.label("Hollow cells are free. Point at one to light up its sequence everywhere.");
            ui.add_space(4.0);
            if ui.button("Understood").clicked() {
                self.hint = false;
            }
        });
    }

    fn act(&mut self, action: Action, ctx: &Context) {
        match action {
            Action::TogglePlay => self.time.toggle(&self.steps),
            Action::Shift(by) => self.time.shift(by, &self.steps),
            Action::Home => self.time.home(&self.steps),
            Action::Follow => {
                self.time.follow();
                self.window = None;
            }
            Action::PauseEngine => {
                let pause = self.engine == EngineState::Running;
                if pause || self.engine == EngineState::Paused {
                    self.commands.push(ViewCommand::PauseEngine(pause));
                }
            }
            Action::StepEngine => self.commands.push(ViewCommand::StepEngine),
            Action::Palette => self.palette.toggle(),
            Action::Unpin => {
                self.focus.pinned = None;
                self.what_if.unpin();
            }
            Action::Show(view) => {
                self.layout
                    .make_active(|_, tile| matches!(tile, egui_tiles::Tile::Pane(v) if *v == view));
            }
            Action::Preset(name) => {
                self.commands.extend(Preset::find(name).map(ViewCommand::Preset));
            }
            Action::Export(export) => self.export(export, ctx),
            Action::Simulate => self.commands.push(ViewCommand::Simulate),
            Action::Open => self.commands.push(ViewCommand::Open(Open::Ask)),
            Action::ResetLayout => self.layout = first_layout(),
            Action::Theme => {
                let dark = ctx.theme() == egui::Theme::Dark;
                ctx.set_theme(if dark { egui::Theme::Light } else { egui::Theme::Dark });
            }
            Action::Zoom(Zoom::Percent100) => ctx.set_zoom_factor(1.0),
            Action::Zoom(Zoom::Percent150) => ctx.set_zoom_factor(1.5),
            Action::Hint => self.hint = true,
        }
        ctx.request_repaint();
    }

    fn export(&mut self, export: Export, ctx: &Context) {
        let (name, bytes) = match export {
            Export::Jsonl => ("run.jsonl".to_string(), to_jsonl(&self.header, &self.history)),
            Export::Csv => ("steps.csv".to_string(), to_csv(&self.steps)),
            Export::Perfetto => ("timeline.json".to_string(), to_perfetto(&self.history)),
            Export::Png(view) => {
                let dark = ctx.theme() == egui::Theme::Dark;
                let size = ctx.content_rect().size();
                let (width, height) = match view {
                    None => (size.x.round() as u32, size.y.round() as u32),
                    Some(_) => (Shot::default().width, Shot::default().height),
                };
                let shot = Shot { view, width, height, scale: ctx.pixels_per_point(), dark };
                match shot::render(self, &shot).to_png() {
                    Ok(bytes) => (format!("{}.png", view.map_or("window", View::name)), bytes),
                    Err(error) => return self.note(Note::Problem(error.to_string())),
                }
            }
        };
        self.commands.push(ViewCommand::Save { name, bytes });
    }
}

/// The rest of the window that a frame needs beside the stage.
struct Parts<'a> {
    drive: &'a mut Drive,
    engine: &'a EngineState,
    layout: &'a mut Tree<View>,
    rest: Rest<'a>,
}

/// What single views need beside the stage.
struct Rest<'a> {
    kernels: &'a Kernels,
    what_if: &'a mut WhatIf,
    /// What the source says that moving a block takes; 0 if nothing does.
    block_picos: u64,
    chats: &'a mut Chats,
}

struct Panes<'a, 'b> {
    stage: &'a mut Stage<'b>,
    rest: Rest<'a>,
}

impl egui_tiles::Behavior<View> for Panes<'_, '_> {
    fn pane_ui(&mut self, ui: &mut Ui, _: TileId, view: &mut View) -> UiResponse {
        Frame::new().inner_margin(Margin::symmetric(6, 4)).show(ui, |ui| {
            show_view(ui, self.stage, &mut self.rest, *view);
        });
        UiResponse::None
    }

    fn tab_title_for_pane(&mut self, view: &View) -> WidgetText {
        view.title().into()
    }

    fn simplification_options(&self) -> SimplificationOptions {
        SimplificationOptions { all_panes_must_have_tabs: true, ..SimplificationOptions::default() }
    }
}

fn show_view(ui: &mut Ui, stage: &mut Stage<'_>, rest: &mut Rest<'_>, view: View) {
    match view {
        View::Slots => slots::show(ui, stage),
        View::Blocks => blocks::show(ui, stage),
        View::Timeline => timeline::show(ui, stage),
        View::Steps => composition::show(ui, stage),
        View::Queue => queue::show(ui, stage),
        View::Counters => counters::show(ui, stage),
        View::Text => text::show(ui, stage),
        View::Kernels => kernels::show(ui, stage, rest.kernels),
        View::Why => why::show(ui, stage),
        View::Chats => rest.chats.show(ui, stage),
        View::WhatIf => what_if::show(ui, stage, rest.what_if, rest.block_picos),
    }
}

/// What is held for longer is no click; where a frame takes as long, nothing ever was one.
const CLICK_SECONDS: f64 = 0.8;

fn take_clicks_of_slow_frames(ctx: &Context) {
    let frame = ctx.input(|i| f64::from(i.unstable_dt));
    ctx.options_mut(|o| o.input_options.max_click_duration = CLICK_SECONDS.max(3.0 * frame));
}
