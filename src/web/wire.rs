//! What page and worker say to each other, as JSON with a list of files or bytes beside it. The
//! JavaScript API (`web/tilewright.js`) speaks the same.

use crate::base::{Limits, Policies, RequestId, TokenId};
use crate::trace::{FinishReason, Header};
use serde::{Deserialize, Serialize};

/// To the worker.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Asked {
    /// Makes the engine; the first message, and the only one of its kind.
    Load(Load),
    /// `id` is the caller's own; every answer bears it. The request is an [`Ask`], read later so
    /// that what is wrong with it can be told to its caller.
    Submit {
        id: u32,
        request: serde_json::Value,
    },
    Cancel {
        id: u32,
    },
    Hold {
        hold: bool,
    },
    StepOnce,
    Limits {
        limits: Limits,
    },
    Policies {
        policies: Policies,
    },
    /// Asks for a [`Told::Status`].
    Status,
    /// Runs a simulation, for which no engine is needed. The lines of a recorded run come along, in
    /// as many parts as there are files.
    Simulate {
        wished: Simulation,
    },
}

/// What is simulated.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Simulation {
    /// Made-up traffic to a large model on a large device.
    Scene,
    /// A recorded run under other terms. `block_picos` is what its source says that moving a block
    /// takes, 0 if nothing does.
    WhatIf { policies: Policies, limits: Limits, block_picos: u64 },
}

/// How the engine is made.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// A `.gguf` file or a folder of a Hugging Face checkpoint, absolute. `None`: the files that
    /// come with the message.
    pub url: Option<String>,
    /// The name of the model; from the address if not given.
    pub name: Option<String>,
    pub device: Wish,
    /// Keep downloaded files for the next time, where the browser allows it.
    pub store: bool,
    /// Send the trace.
    pub events: bool,
    pub blocks: Option<u32>,
    pub sequences: Option<u32>,
    pub step_tokens: Option<u32>,
    pub context: Option<u32>,
    pub policies: Policies,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// WebGPU, or the processor with the reason told.
    #[default]
    Auto,
    Webgpu,
    Cpu,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Turn {
    pub role: String,
    pub content: String,
}

/// One or several.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Texts {
    One(String),
    Several(Vec<String>),
}

/// A request in OpenAI's words.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ask {
    pub messages: Option<Vec<Turn>>,
    /// Text to continue, in place of `messages`.
    pub prompt: Option<String>,
    pub max_tokens: Option<u32>,
    pub max_completion_tokens: Option<u32>,
    pub n: Option<u32>,
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub seed: Option<u64>,
    pub stop: Option<Texts>,
    pub logprobs: bool,
    pub top_logprobs: Option<u32>,
    pub ignore_eos: bool,
    pub user: Option<String>,
}

/// From the worker. Bytes of the trace's lines come beside [`Told::Events`].
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Told {
    /// Bytes of `file` that are here, of how many.
    Progress {
        phase: Phase,
        file: String,
        loaded: f64,
        total: f64,
    },
    Ready(Box<Ready>),
    /// The engine could not be made, or cannot go on.
    Failed {
        code: Code,
        message: String,
    },
    /// Worth telling the person.
    Problem {
        message: String,
    },
    Events,
    /// The text of tokens that the trace names from here on.
    Words {
        words: Vec<(TokenId, String)>,
    },
    Started {
        id: u32,
        request: RequestId,
        prompt_tokens: u32,
    },
    Token {
        id: u32,
        index: u32,
        token: TokenId,
        text: String,
        end: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprob: Option<f32>,
        /// The most likely tokens with their texts, best first.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        top: Vec<(TokenId, String, f32)>,
    },
    Finished {
        id: u32,
        index: u32,
        reason: FinishReason,
        prompt_tokens: u32,
        completion_tokens: u32,
        cached_tokens: u32,
    },
    /// A request was not taken, or did not finish.
    Refused {
        id: u32,
        message: String,
        param: Option<String>,
    },
    Held {
        held: bool,
    },
    Status(Status),
    /// A part of a simulated run, as lines of the trace.
    Simulated {
        run: Simulated,
        policies: Policies,
    },
    /// Every part was told.
    SimulationDone,
}

/// The runs of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Simulated {
    /// A recorded run under its own terms.
    Same,
    /// Under those that were asked for.
    Wished,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Download,
    Upload,
}

/// Why there is no engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// WebGPU was asked for and there is none.
    NoWebgpu,
    /// The model could not be fetched.
    Network,
    /// The files are no model that can be run.
    Model,
    /// The device has not the memory.
    Memory,
    /// The device was lost, or the engine failed on the way.
    Engine,
    /// A fault of this program.
    Internal,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Ready {
    pub model: String,
    pub device: String,
    pub backend: String,
    /// Why the processor does the work although WebGPU was wished for.
    pub fallback: Option<String>,
    pub chat: bool,
    pub context: u32,
    pub limits: Limits,
    /// What an export begins with.
    pub header: Header,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Status {
    pub open: u32,
    pub running: u32,
    pub waiting: u32,
    pub blocks_used: u32,
    pub blocks_cached: u32,
    pub blocks_total: u32,
    pub steps: f64,
    pub tokens_generated: f64,
    /// The first invariant that does not hold.
    pub fault: Option<String>,
    /// Bytes of the module's linear memory, which never shrinks.
    pub memory_bytes: f64,
}
