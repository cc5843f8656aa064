//! Conversations side by side: what is typed leaves as requests with their past, what the events
//! say comes back as answers.

use super::scene::Stream;
use crate::support::Rows;
use egui::vec2;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use std::rc::Rc;
use tilewright::base::{RequestId, SequenceId};
use tilewright::trace::{Event, FinishReason, Stamped};
use tilewright::viewer::{
    EngineState, Exchange, Note, Source, Submission, View, ViewCommand, Viewer,
};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::chats_answer_from_the_events", answers);
    rows.add("viewer::chats_ask_all_at_once", all_at_once);
}

type Driven = Harness<'static, Viewer>;

fn chats() -> Driven {
    let mut viewer = Viewer::default().without_hint();
    let (model, device) = ("fable".to_string(), "nothing".to_string());
    let words = Rc::new(|token: u32| Some(format!("word{token} ")));
    viewer.open(Source::Engine { model, device }, Some(words));
    viewer.set_engine(EngineState::Running);
    let show = |ui: &mut egui::Ui, viewer: &mut Viewer| viewer.show_one(ui, View::Chats);
    let mut harness = Harness::builder().with_size(vec2(900.0, 500.0)).build_ui_state(show, viewer);
    harness.run();
    harness
}

/// Types a question into the first chat and sends it; what leaves.
fn ask(harness: &mut Driven, text: &str) -> Vec<Submission> {
    harness.get_by_label("Ask in chat 1").focus();
    harness.run();
    harness.get_by_label("Ask in chat 1").type_text(text);
    harness.run();
    harness.get_all_by_label("Ask").next().expect("a button").click();
    harness.run();
    let one = |command| match command {
        ViewCommand::Submit(submission) => submission,
        other => panic!("{other:?}"),
    };
    harness.state_mut().take_commands().into_iter().map(one).collect()
}

/// The request runs to its end token.
fn run(harness: &mut Driven) {
    let mut stream = Stream::of(1, 4);
    stream.step(1, 0, 8);
    stream.step(1, 8, 1);
    let finished = Event::SequenceFinished {
        sequence: SequenceId(0),
        request: RequestId(0),
        reason: FinishReason::Stop,
        prompt: 8,
        generated: 2,
    };
    let last: Stamped = stream.events.last().expect("events").clone();
    stream.events.push(Stamped { seq: last.seq + 1, event: finished, ..last });
    stream.events.iter().for_each(|event| harness.state_mut().push(event));
}

fn answers() {
    let mut harness = chats();
    let sent = ask(&mut harness, "Who?");
    let [Submission { prompt, chat: true, before, ticket: Some(ticket), .. }] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!((prompt.as_str(), &before[..]), ("Who?", &[][..]));
    let note = Note::Taken { ticket: *ticket, request: RequestId(0) };
    harness.state_mut().note(note);
    harness.run();
    assert!(harness.query_by_label("Stop").is_some());
    run(&mut harness);
    harness.run();
    // Two tokens came; the last one is the end.
    assert!(harness.query_by_label("word300").is_some());
    assert!(harness.query_by_label("Stop").is_none());
    let sent = ask(&mut harness, "Why?");
    let past = Exchange { asked: "Who?".to_string(), answer: "word300 ".to_string() };
    assert_eq!(sent[0].before, [past]);
    let turns = [("user", "Who?"), ("assistant", "word300 "), ("user", "Why?")];
    assert!(sent[0].turns().eq(turns));
    let why = "the queue is full".to_string();
    harness.state_mut().note(Note::Refused { ticket: sent[0].ticket.expect("a ticket"), why });
    harness.run();
    assert!(harness.query_by_label("the queue is full").is_some());
}

fn all_at_once() {
    let mut harness = chats();
    for _ in 0..6 {
        harness.get_by_label("Another chat").click();
        harness.run();
    }
    harness.get_by_label("ask all at once").click();
    harness.run();
    let sent = ask(&mut harness, "Who?");
    assert_eq!(sent.len(), 8);
    let mut tickets: Vec<_> = sent.iter().map(|one| one.ticket).collect();
    tickets.dedup();
    assert_eq!(tickets.len(), 8, "each is told apart");
}
