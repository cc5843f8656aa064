//! What a person asks for in the window, as values. The composition root executes them; the window
//! itself touches no engine, no file and no clock.

use crate::base::{Limits, Policies, RequestId};
use crate::trace::Stamped;
use std::path::PathBuf;

/// One wish. Those to an engine are ignored where there is none to drive.
#[derive(Clone, PartialEq, Debug)]
pub enum ViewCommand {
    Submit(Submission),
    Cancel(RequestId),
    /// Holds the engine between two steps, or lets it go on.
    PauseEngine(bool),
    /// Exactly one step of a paused engine.
    StepEngine,
    SetLimits(Limits),
    SetPolicies(Policies),
    /// Runs the shown run's arrivals again, in a simulation, under these. `block_picos` is what its
    /// source says that moving a block takes, 0 if nothing does.
    WhatIf {
        policies: Policies,
        limits: Limits,
        block_picos: u64,
    },
    /// Runs a workload on a simulated device, and shows it.
    Simulate,
    /// A fresh engine of the preset's sizes, then its traffic.
    Preset(Preset),
    Open(Open),
    /// Puts `bytes` into a file that the person names; `name` is the suggestion.
    Save {
        name: String,
        bytes: Vec<u8>,
    },
}

/// What to look at next.
#[derive(Clone, PartialEq, Debug)]
pub enum Open {
    /// Asks the person for a model or a recording.
    Ask,
    /// A recording (`.jsonl`, `.jsonl.gz`) or a model, as it was dropped on the window.
    Path(PathBuf),
    /// A simulated run, whole.
    Run { name: String, events: Vec<Stamped> },
}

/// A request as the prompt box makes it. `None` is the model's default.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Submission {
    pub prompt: String,
    /// Through the model's chat template; else the text is continued as it is.
    pub chat: bool,
    /// What was said in this chat before.
    pub before: Vec<Exchange>,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub seed: Option<u64>,
    /// Go on past end tokens, up to `max_tokens`.
    pub ignore_eos: bool,
    /// Whoever asked wants to be told what became of it: [`super::Note::Taken`].
    pub ticket: Option<u64>,
}

impl Submission {
    /// The whole chat: role and text of every turn, the prompt's last.
    pub fn turns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let said = self
            .before
            .iter()
            .flat_map(|said| [("user", said.asked.as_str()), ("assistant", said.answer.as_str())]);
        said.chain([("user", self.prompt.as_str())])
    }
}

/// A question and its answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exchange {
    pub asked: String,
    pub answer: String,
}

/// The sizes of a fresh engine; `None` is the program's own choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setup {
    pub blocks: Option<u32>,
    pub sequences: Option<u32>,
    pub step_tokens: Option<u32>,
}

/// A scene worth watching.
#[derive(Clone, PartialEq, Debug)]
pub struct Preset {
    pub name: &'static str,
    /// What there is to see.
    pub about: &'static str,
    pub setup: Setup,
    pub policies: Policies,
    pub traffic: Vec<Submission>,
}

impl Preset {
    /// The one called `name`.
    pub fn find(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|p| p.name == name)
    }

    pub fn all() -> Vec<Self> {
        vec![
            four_users(),
            shared_prefix(),
            overload(),
            long_prompt(),
            batching(true),
            batching(false),
        ]
    }
}

const QUESTIONS: [&str; 8] = [
    "What is the capital of France?",
    "Count from one to ten.",
    "Tell me a story about a fox.",
    "What is 3 plus 4?",
    "Spell the word river.",
    "Tell me a story about a lighthouse.",
    "What is the capital of Japan?",
    "Count from five to twelve.",
];

/// How the prompts of the overload begin.
const LEAD: &str = "You are a friendly teacher. Answer the question of the pupil in a few words. ";

fn question(at: usize, max_tokens: u32) -> Submission {
    Submission {
        prompt: QUESTIONS[at % QUESTIONS.len()].to_string(),
        chat: true,
        max_tokens: Some(max_tokens),
        temperature: Some(0.8),
        seed: Some(at as u64),
        ignore_eos: true,
        ..Submission::default()
    }
}

fn four_users() -> Preset {
    Preset {
        name: "four-users",
        about: "Four requests share every step: continuous batching with room for all.",
        setup: Setup { blocks: Some(64), sequences: Some(8), step_tokens: Some(64) },
        policies: Policies::default(),
        traffic: (0..4).map(|at| question(at, 48)).collect(),
    }
}

fn shared_prefix() -> Preset {
    let lead = "You are a patient teacher who answers in short sentences, never guesses, and \
                explains every number step by step before the answer is given to the pupil. ";
    let traffic = (0..6).map(|at| {
        let own = question(at, 32);
        Submission { prompt: format!("{lead}{}", own.prompt), chat: false, ..own }
    });
    Preset {
        name: "shared-prefix",
        about: "Six prompts begin alike: where the prefix cache is on, their first blocks are one.",
        setup: Setup { blocks: Some(96), sequences: Some(8), step_tokens: Some(64) },
        policies: Policies::default(),
        traffic: traffic.collect(),
    }
}

fn overload() -> Preset {
    Preset {
        name: "overload",
        about: "Twelve long answers in a pool for four: the queue ages and the youngest lose \
                their blocks. All begin alike, so their first blocks are one.",
        setup: Setup { blocks: Some(28), sequences: Some(6), step_tokens: Some(48) },
        policies: Policies::default(),
        traffic: (0..12)
            .map(|at| {
                let own = question(at, 72 + 8 * (at as u32 % 5));
                Submission { prompt: format!("{LEAD}{}", own.prompt), ..own }
            })
            .collect(),
    }
}

fn long_prompt() -> Preset {
    let mut traffic: Vec<_> = (0..3).map(|at| question(at, 96)).collect();
    let long = QUESTIONS.join(" ").repeat(3);
    traffic.push(Submission { prompt: long, chat: false, ..question(3, 16) });
    Preset {
        name: "long-prompt-stall",
        about: "A long prompt goes first and alone: everyone's next token waits for it. Choose \
                `chunked` in the policies and run it again.",
        setup: Setup { blocks: Some(96), sequences: Some(6), step_tokens: Some(256) },
        policies: Policies { prefill: crate::base::Prefill::PrefillFirst, ..Policies::default() },
        traffic,
    }
}

/// The same traffic in fixed batches, and as places become free.
fn batching(fixed: bool) -> Preset {
    let lengths = [20, 35, 40, 60, 16, 24, 48, 90];
    let traffic = lengths.iter().enumerate().map(|(at, &length)| question(at, length)).collect();
    let (name, about, batching) = if fixed {
        let about = "Batches of four wait for their longest answer: padding fills the places of \
                     those that are done.";
        ("static-batches", about, crate::base::Batching::Static { size: 4 })
    } else {
        let about = "The traffic of static-batches, each place filled as soon as it is free.";
        ("continuous-batches", about, crate::base::Batching::Continuous)
    };
    Preset {
        name,
        about,
        setup: Setup { blocks: Some(96), sequences: Some(4), step_tokens: Some(64) },
        policies: Policies { batching, ..Policies::default() },
        traffic,
    }
}
