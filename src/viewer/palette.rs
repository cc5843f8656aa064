//! The command palette: every action by name, found by typing.

use super::actions::Action;
use egui::{Context, Key, Modal, Modifiers, ScrollArea, TextEdit};

/// Height of the list at most.
const HEIGHT: f32 = 320.0;

#[derive(Default)]
pub struct Palette {
    pub open: bool,
    text: String,
    chosen: usize,
}

impl Palette {
    pub fn toggle(&mut self) {
        *self = Self { open: !self.open, ..Self::default() };
    }

    /// Shows it while it is open; returns what was chosen.
    pub fn show(&mut self, ctx: &Context) -> Option<Action> {
        if !self.open {
            return None;
        }
        let found: Vec<(Action, String)> =
            Action::all().into_iter().filter(|(_, name)| matches(name, &self.text)).collect();
        let mut moved = false;
        ctx.input_mut(|i| {
            if i.consume_key(Modifiers::NONE, Key::ArrowDown) {
                (self.chosen, moved) = (self.chosen + 1, true);
            }
            if i.consume_key(Modifiers::NONE, Key::ArrowUp) {
                (self.chosen, moved) = (self.chosen.saturating_sub(1), true);
            }
        });
        self.chosen = self.chosen.min(found.len().saturating_sub(1));
        let entered = ctx.input_mut(|i| i.consume_key(Modifiers::NONE, Key::Enter));
        let mut done = entered.then(|| found.get(self.chosen).map(|f| f.0)).flatten();
        let modal = Modal::new(egui::Id::unique("palette")).show(ctx, |ui| {
            ui.set_width(420.0);
            let label = ui.weak("Find an action");
            let edit = TextEdit::singleline(&mut self.text).desired_width(f32::INFINITY);
            let edit = ui.add(edit).labelled_by(label.id);
            edit.request_focus();
            if edit.changed() {
                self.chosen = 0;
            }
            // As high as what was found, whatever was found before.
            let area = ScrollArea::vertical().max_height(HEIGHT).min_scrolled_height(HEIGHT);
            area.show(ui, |ui| {
                for (at, (action, name)) in found.iter().enumerate() {
                    let button = egui::Button::selectable(at == self.chosen, name.as_str())
                        .shortcut_text(action.key_text());
                    let button = ui.add_sized([ui.available_width(), 20.0], button);
                    if at == self.chosen && moved {
                        button.scroll_to_me(None);
                    }
                    if button.clicked() {
                        done = Some(*action);
                    }
                }
            });
        });
        if modal.should_close() || done.is_some() {
            self.open = false;
        }
        done
    }
}

/// Every word that was typed is somewhere in the name.
fn matches(name: &str, typed: &str) -> bool {
    let name = name.to_lowercase();
    typed.to_lowercase().split_whitespace().all(|word| name.contains(word))
}
