//! The top: what is looked at, what its engine does and how to hold it, and what concerns the whole
//! window. Where it is narrow, the source's name gives way.

use super::actions::{Action, Export};
use super::source::{EngineState, Source};
use super::view::View;
use egui::{Label, RichText, Sides, Ui};

/// Returns what was asked for.
pub fn show(ui: &mut Ui, source: &Source, engine: &EngineState) -> Vec<Action> {
    let sides = Sides::new().shrink_left();
    let (mut wishes, more) = sides.show(ui, |ui| left(ui, source, engine), right);
    wishes.extend(more);
    wishes
}

fn left(ui: &mut Ui, source: &Source, engine: &EngineState) -> Vec<Action> {
    let mut wishes = Vec::new();
    ui.strong("tilewright");
    ui.separator();
    let visuals = ui.visuals();
    let (word, color) = match engine {
        EngineState::Absent => ("no engine".to_string(), visuals.weak_text_color()),
        EngineState::Loading(stage) => (format!("loading: {stage}"), visuals.text_color()),
        EngineState::Running => ("engine runs".to_string(), visuals.text_color()),
        EngineState::Paused => ("engine paused".to_string(), visuals.warn_fg_color),
        EngineState::Failed(_) => ("engine failed".to_string(), visuals.error_fg_color),
    };
    ui.colored_label(color, RichText::new(word).strong());
    if source.is_live() {
        let paused = *engine == EngineState::Paused;
        let usable = paused || *engine == EngineState::Running;
        let text = if paused { "Let the engine go on" } else { "Pause the engine" };
        wishes.extend(button(ui, text, Action::PauseEngine, usable));
        wishes.extend(button(ui, "One step", Action::StepEngine, paused));
    }
    ui.separator();
    let title = source.title();
    ui.add(Label::new(&title).truncate()).on_hover_text(title);
    wishes
}

fn right(ui: &mut Ui) -> Vec<Action> {
    let mut wishes = Vec::new();
    wishes.extend(button(ui, "All actions", Action::Palette, true));
    wishes.extend(button(ui, "Light / dark", Action::Theme, true));
    ui.menu_button("Export", |ui| {
        for (text, export) in [
            ("Events as JSON lines", Export::Jsonl),
            ("Steps as CSV", Export::Csv),
            ("Timeline for ui.perfetto.dev", Export::Perfetto),
            ("Picture of the window", Export::Png(None)),
        ] {
            wishes.extend(button(ui, text, Action::Export(export), true));
        }
        ui.menu_button("Picture of a view", |ui| {
            for view in View::ALL {
                let export = Export::Png(Some(view));
                wishes.extend(button(ui, view.title(), Action::Export(export), true));
            }
        });
    });
    wishes.extend(button(ui, "Open…", Action::Open, true));
    wishes
}

/// The action, when its button was clicked.
fn button(ui: &mut Ui, text: &str, action: Action, enabled: bool) -> Option<Action> {
    let button = ui.add_enabled(enabled, egui::Button::new(text));
    let keys = action.key_text();
    let button = if keys.is_empty() { button } else { button.on_hover_text(keys) };
    button.clicked().then_some(action)
}
