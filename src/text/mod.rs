//! Text in, ids out, text back: tokenizer, streaming detokenizer, stop strings, chat templates.
//!
//! Invariants: text that came from a user never becomes a control token (`markers`, `shield`);
//! streamed text equals the decode of all ids and never holds half a character (`stream`). What an
//! answer is held to says which ids may come next (`guide`); its parts are told apart by `answer`.

mod added;
mod answer;
mod call;
mod choose;
#[cfg(feature = "grammar")]
mod deadline;
mod encoder;
mod error;
mod exchange;
#[cfg(feature = "grammar")]
mod grammar;
mod guide;
mod jinja;
mod pre;
mod pyjson;
mod sentence;
mod shield;
mod stop;
mod stream;
mod strftime;
mod template;
mod tokenizer;
mod vocab;

pub use added::Markers;
pub use answer::{AnswerParser, CallStyle, Calling, Piece};
pub use choose::{ChosenTemplate, TemplateSources};
pub use error::TextError;
#[cfg(feature = "grammar")]
pub use grammar::{GrammarSource, Grammars, JSON_OBJECT};
pub use guide::{Grammar, Guide, GuideError, Mask, Next};
pub use stop::{StopMatcher, StopStep, check_stops};
pub use stream::TextStream;
pub use strftime::strftime;
pub use template::{ChatTemplate, Message, RenderOptions, Rendered};
pub use tokenizer::{Tokenizer, TokenizerExtra, setting, token_ids};
pub use vocab::Vocab;
