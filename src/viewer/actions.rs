//! Everything a key, a button or the palette can do, once: names, keys and groups.

use super::command::Preset;
use super::view::View;
use egui::{Context, Key, Modifiers};

/// What is saved by an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Export {
    Jsonl,
    Csv,
    Perfetto,
    /// A picture of one view, or of the whole window.
    Png(Option<View>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    TogglePlay,
    Shift(i64),
    Home,
    Follow,
    PauseEngine,
    StepEngine,
    Palette,
    Unpin,
    Show(View),
    Preset(&'static str),
    Simulate,
    Export(Export),
    Open,
    ResetLayout,
    Theme,
    Zoom(Zoom),
    Hint,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zoom {
    Percent100,
    Percent150,
}

impl Action {
    /// Every action with its name, as the palette lists them.
    pub fn all() -> Vec<(Self, String)> {
        let mut all: Vec<(Self, String)> = [
            (Self::TogglePlay, "Time: play or pause the view"),
            (Self::Shift(-1), "Time: one step back"),
            (Self::Shift(1), "Time: one step forward"),
            (Self::Shift(-10), "Time: ten steps back"),
            (Self::Shift(10), "Time: ten steps forward"),
            (Self::Home, "Time: to the oldest kept step"),
            (Self::Follow, "Time: to the newest step, and follow"),
            (Self::PauseEngine, "Engine: pause or go on"),
            (Self::StepEngine, "Engine: one step"),
            (Self::Unpin, "Selection: let go"),
            (Self::Open, "Open a model or a recording…"),
            (Self::Simulate, "Simulate an 8B model on an H100"),
            (Self::Export(Export::Jsonl), "Export: events as JSON lines"),
            (Self::Export(Export::Csv), "Export: steps as CSV"),
            (Self::Export(Export::Perfetto), "Export: timeline for ui.perfetto.dev"),
            (Self::Export(Export::Png(None)), "Export: picture of the window"),
            (Self::ResetLayout, "Window: reset the layout"),
            (Self::Theme, "Window: light or dark"),
            (Self::Zoom(Zoom::Percent100), "Window: 100 %"),
            (Self::Zoom(Zoom::Percent150), "Window: 150 %"),
            (Self::Hint, "Help: how to read the block map"),
        ]
        .map(|(action, name)| (action, name.to_string()))
        .into();
        for view in View::ALL {
            all.push((Self::Show(view), format!("Show: {}", view.name())));
            let name = format!("Export: picture of {}", view.name());
            all.push((Self::Export(Export::Png(Some(view))), name));
        }
        let presets = Preset::all().into_iter();
        all.extend(presets.map(|p| (Self::Preset(p.name), format!("Preset: {}", p.name))));
        all
    }

    /// The keys that do it.
    pub fn keys(self) -> Option<(Modifiers, Key)> {
        Some(match self {
            Self::TogglePlay => (Modifiers::NONE, Key::Space),
            Self::Shift(-1) => (Modifiers::NONE, Key::ArrowLeft),
            Self::Shift(1) => (Modifiers::NONE, Key::ArrowRight),
            Self::Shift(-10) => (Modifiers::SHIFT, Key::ArrowLeft),
            Self::Shift(10) => (Modifiers::SHIFT, Key::ArrowRight),
            Self::Home => (Modifiers::NONE, Key::Home),
            Self::Follow => (Modifiers::NONE, Key::End),
            Self::PauseEngine => (Modifiers::NONE, Key::P),
            Self::StepEngine => (Modifiers::NONE, Key::N),
            Self::Palette => (Modifiers::COMMAND, Key::P),
            Self::Unpin => (Modifiers::NONE, Key::Escape),
            Self::Open => (Modifiers::COMMAND, Key::O),
            _ => return None,
        })
    }

    /// The keys in words.
    pub fn key_text(self) -> String {
        let Some((modifiers, key)) = self.keys() else { return String::new() };
        let name = match key {
            Key::ArrowLeft => "Left",
            Key::ArrowRight => "Right",
            Key::Escape => "Esc",
            other => other.name(),
        };
        match modifiers {
            Modifiers::SHIFT => format!("Shift+{name}"),
            Modifiers::COMMAND => format!("Ctrl+{name}"),
            _ => name.to_string(),
        }
    }

    /// Actions whose keys were pressed. A text field keeps plain keys for itself.
    pub fn pressed(ctx: &Context) -> Vec<Self> {
        let typing = ctx.egui_wants_keyboard_input();
        let mut out = Vec::new();
        // Keys with a modifier first: a plain key also matches with Shift held.
        for shifted in [true, false] {
            for action in [
                Self::TogglePlay,
                Self::Shift(-1),
                Self::Shift(1),
                Self::Shift(-10),
                Self::Shift(10),
                Self::Home,
                Self::Follow,
                Self::PauseEngine,
                Self::StepEngine,
                Self::Palette,
                Self::Unpin,
                Self::Open,
            ] {
                let Some((modifiers, key)) = action.keys() else { continue };
                let plain = modifiers == Modifiers::NONE;
                if plain == shifted || (plain || modifiers == Modifiers::SHIFT) && typing {
                    continue;
                }
                if ctx.input_mut(|i| i.consume_key(modifiers, key)) {
                    out.push(action);
                }
            }
        }
        out
    }
}
