//! Conversations, several at once, each in a column. What the model answers is read from the
//! events like all that is drawn here: the tokens of the request that the turn became.

use super::command::{Exchange, Submission, ViewCommand};
use super::stage::Stage;
use crate::base::RequestId;
use crate::trace::FinishReason;
use egui::{Label, RichText, ScrollArea, TextEdit, Ui};

/// Conversations side by side at most.
const PANES_MAX: usize = 8;
const ANSWER_TOKENS: u32 = 256;

/// What became of a turn.
enum State {
    /// On its way to the engine.
    Sent,
    Running(RequestId),
    Done,
    Refused(String),
}

struct Turn {
    asked: String,
    answer: String,
    ticket: u64,
    state: State,
}

#[derive(Default)]
struct Chat {
    draft: String,
    turns: Vec<Turn>,
}

impl Chat {
    fn waits(&self) -> bool {
        self.turns.last().is_some_and(|t| matches!(t.state, State::Sent | State::Running(_)))
    }
}

pub struct Chats {
    panes: Vec<Chat>,
    tickets: u64,
    /// What is typed goes to all.
    together: bool,
}

impl Default for Chats {
    fn default() -> Self {
        Self { panes: vec![Chat::default(), Chat::default()], tickets: 0, together: false }
    }
}

impl Chats {
    fn turn(&mut self, ticket: u64) -> Option<&mut Turn> {
        self.panes.iter_mut().flat_map(|pane| &mut pane.turns).find(|turn| turn.ticket == ticket)
    }

    /// The engine took the turn as a request.
    pub fn taken(&mut self, ticket: u64, request: RequestId) {
        if let Some(turn) = self.turn(ticket) {
            turn.state = State::Running(request);
        }
    }

    pub fn refused(&mut self, ticket: u64, why: String) {
        if let Some(turn) = self.turn(ticket) {
            turn.state = State::Refused(why);
        }
    }

    /// Another engine: nothing of the one before will be answered.
    pub fn source_changed(&mut self) {
        for turn in self.panes.iter_mut().flat_map(|pane| &mut pane.turns) {
            if matches!(turn.state, State::Sent | State::Running(_)) {
                turn.state = State::Refused("the engine was closed".to_string());
            }
        }
    }

    /// Reads on what runs.
    fn read(&mut self, stage: &Stage<'_>) {
        for turn in self.panes.iter_mut().flat_map(|pane| &mut pane.turns) {
            let State::Running(request) = turn.state else { continue };
            let Some((_, life)) = stage.lives.iter().rev().find(|(_, l)| l.request == request)
            else {
                continue;
            };
            let mut tokens = &life.tokens[..];
            // The end token ends the answer and is none of it.
            if let (Some((FinishReason::Stop, ..)), Some((_, all))) =
                (life.finished, tokens.split_last())
            {
                tokens = all;
            }
            turn.answer = tokens.iter().map(|mark| stage.word(mark.token)).collect();
            if life.finished.is_some() {
                turn.state = State::Done;
            }
        }
    }

    pub fn show(&mut self, ui: &mut Ui, stage: &mut Stage<'_>) {
        self.read(stage);
        ui.horizontal(|ui| {
            let more = self.panes.len() < PANES_MAX;
            if ui.add_enabled(more, egui::Button::new("Another chat")).clicked() {
                self.panes.push(Chat::default());
            }
            if ui.add_enabled(self.panes.len() > 1, egui::Button::new("One less")).clicked() {
                self.panes.pop();
            }
            ui.checkbox(&mut self.together, "ask all at once");
            if !stage.live {
                ui.weak("No engine here answers.");
            }
        });
        let mut asked = None;
        let count = self.panes.len();
        ui.columns(count, |columns| {
            for (at, (pane, ui)) in self.panes.iter_mut().zip(columns).enumerate() {
                ui.push_id(("chat", at), |ui| {
                    if column(ui, stage, pane, at) {
                        asked = Some(at);
                    }
                });
            }
        });
        let Some(from) = asked else { return };
        let text = std::mem::take(&mut self.panes[from].draft);
        for at in 0..count {
            if at == from || self.together && !self.panes[at].waits() {
                self.ask(at, text.clone(), stage);
            }
        }
    }

    fn ask(&mut self, at: usize, prompt: String, stage: &mut Stage<'_>) {
        let pane = &mut self.panes[at];
        let told = pane.turns.iter().filter(|turn| matches!(turn.state, State::Done));
        let before = told.map(|t| Exchange { asked: t.asked.clone(), answer: t.answer.clone() });
        let ticket = self.tickets;
        self.tickets += 1;
        stage.commands.push(ViewCommand::Submit(Submission {
            prompt: prompt.clone(),
            chat: true,
            before: before.collect(),
            max_tokens: Some(ANSWER_TOKENS),
            ticket: Some(ticket),
            ..Submission::default()
        }));
        let (asked, answer, state) = (prompt, String::new(), State::Sent);
        pane.turns.push(Turn { asked, answer, ticket, state });
    }
}

/// One conversation; true when its draft is to be sent.
fn column(ui: &mut Ui, stage: &mut Stage<'_>, pane: &mut Chat, at: usize) -> bool {
    let mut send = false;
    let usable = stage.live && !pane.waits();
    ui.horizontal(|ui| {
        let hint = format!("Ask in chat {}", at + 1);
        let edit = TextEdit::singleline(&mut pane.draft).hint_text(&hint);
        let edit = ui.add_enabled(usable, edit.desired_width(ui.available_width() - 52.0));
        edit.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, usable, &hint));
        send = edit.lost_focus() && ui.input(|i| i.key_pressed(egui::Key::Enter));
        if send {
            edit.request_focus();
        }
        if !pane.waits() {
            send |= ui.add_enabled(usable, egui::Button::new("Ask")).clicked();
        } else if ui.button("Stop").clicked()
            && let Some(State::Running(request)) = pane.turns.last().map(|turn| &turn.state)
        {
            stage.commands.push(ViewCommand::Cancel(*request));
        }
    });
    let area = ScrollArea::vertical().id_salt("turns").auto_shrink(false).stick_to_bottom(true);
    area.show(ui, |ui| {
        // Columns are justified, and so would the words be.
        let left = egui::Layout::top_down(egui::Align::LEFT);
        ui.with_layout(left, |ui| turns(ui, pane));
    });
    send && usable && !pane.draft.trim().is_empty()
}

fn turns(ui: &mut Ui, pane: &Chat) {
    for turn in &pane.turns {
        ui.add(Label::new(RichText::new(&turn.asked).strong()).wrap());
        match &turn.state {
            State::Refused(why) => {
                ui.colored_label(ui.visuals().error_fg_color, why);
            }
            State::Sent => {
                ui.weak("…");
            }
            State::Running(_) | State::Done => {
                ui.add(Label::new(turn.answer.trim()).selectable(true).wrap());
            }
        }
        ui.add_space(4.0);
    }
}
