//! Where the pictures come from, and what is known of it beside the events.

use crate::base::{RequestId, TokenId};
use std::rc::Rc;

/// The text of a token, where a vocabulary is at hand.
pub type Words = Rc<dyn Fn(TokenId) -> Option<String>>;

/// Everything drawn is a function of the events of one of these.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Source {
    #[default]
    Nothing,
    /// An engine in this process, with its model and device by name.
    Engine { model: String, device: String },
    /// A server elsewhere, watched through its event feed.
    Remote { url: String },
    /// A file written by `--record`.
    Recording { name: String },
    /// A simulated run.
    Simulation { name: String },
}

impl Source {
    /// Requests can be sent to it and its engine can be driven.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Engine { .. })
    }

    pub fn title(&self) -> String {
        match self {
            Self::Nothing => "nothing open".to_string(),
            Self::Engine { model, device } => format!("{model} on {device}"),
            Self::Remote { url } => format!("server {url}"),
            Self::Recording { name } => format!("recording {name}"),
            Self::Simulation { name } => format!("simulation: {name}"),
        }
    }
}

/// What the engine is doing, whatever the view shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum EngineState {
    #[default]
    Absent,
    /// Being made, with the stage it is at.
    Loading(String),
    Running,
    /// Held between two steps.
    Paused,
    /// It cannot go on; the window stays up with the reason.
    Failed(String),
}

/// What the events do not tell: the prompts that were typed here, complaints, and what is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// The text of a request's prompt.
    Prompt { request: RequestId, text: String },
    /// The submission with this ticket became a request.
    Taken { ticket: u64, request: RequestId },
    /// It did not.
    Refused { ticket: u64, why: String },
    /// Something went wrong, in words for the person.
    Problem(String),
    /// Something that was asked for is done.
    Told(String),
}
