//! What can be wrong with a tokenizer file, a template or its input.

/// Every message names the field or file and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("{file}: {reason}")]
    File { file: &'static str, reason: String },
    #[error(
        "tokenizer.json: decoder `{kind}` is not supported; ByteLevel, Metaspace and sequences of \
         Replace, ByteFallback, Fuse, Strip are"
    )]
    Decoder { kind: String },
    #[error(
        "tokenizer.ggml.model = `{found}` is not supported; `gpt2` (byte-level BPE) and `llama` \
         (SentencePiece) are"
    )]
    Model { found: String },
    #[error(
        "tokenizer.ggml.pre is missing, so how to split text before BPE is unknown; set one of: \
         {known}"
    )]
    PreMissing { known: String },
    #[error(
        "tokenizer.ggml.pre = `{found}` is not known, and a guess would change every prompt; \
         known: {known}"
    )]
    PreUnknown { found: String, known: String },
    #[error("tokenizer.ggml.{field}: {reason}")]
    Vocab { field: &'static str, reason: String },
    #[error("{field} = {id} lies outside the vocabulary of {vocab_size} tokens")]
    TokenId { field: &'static str, id: u32, vocab_size: u32 },
    #[error("the model's tokenizer fails at this text: {0}")]
    Encode(String),
    #[error("chat template, line {line}: {reason}")]
    TemplateSyntax { line: usize, reason: String },
    /// The template called `raise_exception`: the messages do not fit it.
    #[error("{0}")]
    Raised(String),
    #[error("chat template, line {line}: {reason}")]
    Render { line: usize, reason: String },
    #[error(
        "the chat template ran for too long and was stopped; shorten the conversation or use \
         another template"
    )]
    Fuel,
    #[error(
        "the chat template wrote more than {max} bytes; shorten the conversation or use another \
         template"
    )]
    OutputTooLong { max: usize },
    #[error("chat_template_kwargs.{0} is reserved; choose another name")]
    ReservedKwarg(String),
    #[error("the conversation uses every private character there is; remove some")]
    NoMark,
    #[error(
        "chat template list has no entry `default` (found: {found}); name one with --chat-template"
    )]
    NoDefaultTemplate { found: String },
    #[error("the grammar is not usable: {0}")]
    Grammar(String),
    #[error("stop[{index}] is empty; remove it")]
    EmptyStop { index: usize },
    #[error("stop has {count} entries; at most {max} are allowed")]
    TooManyStops { count: usize, max: usize },
}

impl TextError {
    /// Whether the request, not the server or the model's files, is at fault.
    pub fn is_from_request(&self) -> bool {
        matches!(
            self,
            Self::Raised(_)
                | Self::Render { .. }
                | Self::Fuel
                | Self::OutputTooLong { .. }
                | Self::ReservedKwarg(_)
                | Self::NoMark
                | Self::Grammar(_)
                | Self::EmptyStop { .. }
                | Self::TooManyStops { .. }
        )
    }
}
