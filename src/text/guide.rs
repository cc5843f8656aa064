//! What an answer is held to: a [`Grammar`] says for every place of it which ids may come next.
//! The engine knows only these traits; what makes grammars is behind the feature `grammar`.

use crate::base::TokenId;
use std::fmt::Debug;
use std::sync::Arc;

/// One bit for each id of the vocabulary, id `i` at bit `i % 32` of word `i / 32`: set where it
/// may come next. End ids are set where the answer may end.
pub type Mask = Arc<[u32]>;

/// Whether anything may follow a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    More,
    /// The answer is complete and nothing can be added to it.
    Complete,
}

/// A guide could not go on; why, for the caller who brought the grammar.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the grammar could not be followed: {0}")]
pub struct GuideError(pub String);

/// A form that answers can be held to. Shared by all answers of a request.
pub trait Grammar: Debug + Send + Sync {
    /// A guide through one answer, at its beginning.
    fn start(&self) -> Box<dyn Guide>;
}

/// A place in one answer. Used on one thread at a time, not always the same.
pub trait Guide: Send {
    /// The ids that may come next. May take a millisecond or more: never on the engine's thread.
    fn mask(&mut self) -> Result<Mask, GuideError>;

    /// Goes on by `id`, which the mask allowed and which is no end id. Quick.
    fn accept(&mut self, id: TokenId) -> Result<Next, GuideError>;
}
