//! Grammars made by the `llguidance` crate: from JSON schemas, regular expressions and its Lark
//! dialect, over this vocabulary. Compiling and following run with fuel and against the clock, for
//! clients bring grammars whose every token takes longer than the one before; a schema that names
//! another document is refused, for nothing is ever fetched.

use super::deadline::{Deadline, watching};
use super::guide::{Grammar, Guide, GuideError, Mask, Next};
use super::{TextError, Tokenizer};
use crate::base::TokenId;
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie,
};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Any JSON object, as a schema.
pub const JSON_OBJECT: &str = r#"{"type":"object"}"#;

/// Space between the tokens of JSON: one line's indent at most, because a small model that may
/// write space for ever sometimes does.
const JSON_SPACE: &str = r"[ \t]{1,32}|\r?\n[ \t]{0,64}";

/// Longest reason that is told; they quote the grammar.
const REASON_MAX: usize = 500;

/// Bytes of the longest token that a grammar may use.
const WORD_MAX: usize = 1000;

/// Lexer states of one grammar, a kilobyte or two each.
const LEXER_STATES_MAX: usize = 50_000;

/// What following a grammar may take at once, and what it may take again with every token: the
/// engine waits for it. Masks take some tenths of a millisecond, the first ones some dozen. The
/// crate's own limits count items, not time: an ambiguous grammar has more of them with every
/// token, each of which takes longer, and a schema with many fields may have as many.
const TIME_MAX: Duration = Duration::from_secs(1);
const TOKEN_TIME: Duration = Duration::from_millis(20);

/// What to hold an answer to.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSource {
    JsonSchema(Value),
    /// In the syntax of the `regex` crate; the whole answer matches.
    Regex(String),
    /// llguidance's dialect of Lark, from rule `start`.
    Lark(String),
}

impl GrammarSource {
    /// A schema with this module's rule about space, unless it brings its own.
    pub fn spaced(mut schema: Value) -> Value {
        if let Value::Object(map) = &mut schema {
            let space = || json!({"whitespace_pattern": JSON_SPACE});
            map.entry("x-guidance").or_insert_with(space);
        }
        schema
    }

    fn grammar(&self, name: &str) -> GrammarWithLexer {
        let mut grammar = match self {
            Self::JsonSchema(schema) => {
                GrammarWithLexer::from_json_schema(Self::spaced(schema.clone()))
            }
            Self::Regex(regex) => GrammarWithLexer::from_regex(regex),
            Self::Lark(lark) => GrammarWithLexer::from_lark(lark.clone()),
        };
        grammar.name = Some(name.to_string());
        grammar
    }
}

/// Makes grammars for one vocabulary.
pub struct Grammars {
    factory: ParserFactory,
    rows: u32,
}

impl Grammars {
    /// `stop_ids` end an answer; `rows` is how many ids the logits have. Takes a moment.
    pub fn new(tokenizer: &Tokenizer, stop_ids: &[TokenId], rows: u32) -> Result<Self, TextError> {
        if !watching() {
            return Err(TextError::Grammar("no thread can be had to watch over it".to_string()));
        }
        let words: Vec<Vec<u8>> = (0..rows).map(|id| word(tokenizer, stop_ids, id)).collect();
        let stop_ids: Vec<_> = stop_ids.iter().copied().filter(|id| *id < rows).collect();
        let end = stop_ids.first().copied().unwrap_or(INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(rows, end), &words);
        if !stop_ids.is_empty() {
            trie = trie.with_eos_tokens(&stop_ids);
        }
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| TextError::Grammar(error.to_string()))?;
        factory.quiet();
        let limits = factory.limits_mut();
        let own = ParserLimits {
            max_lexer_states: LEXER_STATES_MAX,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        *limits = own;
        Ok(Self { factory, rows })
    }

    /// Compiles `source`, which may name `form` as `@form`. With `lead`, rules of Lark, the answer
    /// is what the rule `lead` says and then `source`.
    pub fn compile(
        &self,
        source: &GrammarSource,
        form: Option<&GrammarSource>,
        lead: Option<&str>,
    ) -> Result<Arc<dyn Grammar>, TextError> {
        let main = |lead| GrammarSource::Lark(format!("start: lead @answer\n{lead}\n"));
        let mut grammars: Vec<_> = lead.into_iter().map(|l| main(l).grammar("main")).collect();
        grammars.push(source.grammar("answer"));
        grammars.extend(form.map(|form| form.grammar("form")));
        let parser = self.factory.create_parser(TopLevelGrammar { grammars, max_tokens: None });
        let matcher = Matcher::new(parser).into_cancellable();
        // The first mask shows what compiling alone does not: that nothing can ever match.
        let first = Place::new(matcher.deep_clone(), self.rows).mask();
        first.map_err(|GuideError(why)| TextError::Grammar(why))?;
        Ok(Arc::new(Compiled { matcher: Mutex::new(matcher), rows: self.rows }))
    }
}

/// What `id` spells, with the mark of llguidance before what is no text.
fn word(tokenizer: &Tokenizer, stop_ids: &[TokenId], id: TokenId) -> Vec<u8> {
    let text = tokenizer.inner_bytes(id).filter(|_| !stop_ids.contains(&id));
    let word = text.unwrap_or_else(|| {
        let name = tokenizer.token_text(id);
        let mark: &[u8] = if name.is_empty() { &[] } else { &[TokTrie::SPECIAL_TOKEN_MARKER] };
        [mark, name.as_bytes()].concat()
    });
    // What spells nothing, or more than the trie takes, is never allowed.
    if word.len() > WORD_MAX { Vec::new() } else { word }
}

fn reason(why: &str) -> String {
    let why = why.trim_end().trim_end_matches("<non-verbose/>").trim_end();
    // A caught panic brings its backtrace.
    let why = why.split("<backtrace>").next().unwrap_or(why).trim_end();
    match why.char_indices().nth(REASON_MAX) {
        Some((end, _)) => format!("{}…", &why[..end]),
        None => why.to_string(),
    }
}

struct Compiled {
    /// At the beginning; answers get copies.
    matcher: Mutex<Matcher>,
    rows: u32,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compiled grammar")
    }
}

impl Grammar for Compiled {
    fn start(&self) -> Box<dyn Guide> {
        let matcher = self.matcher.lock().unwrap_or_else(PoisonError::into_inner);
        Box::new(Place::new(matcher.deep_clone(), self.rows))
    }
}

struct Place {
    matcher: Matcher,
    rows: u32,
    /// What following may still take.
    left: Duration,
}

impl Place {
    fn new(matcher: Matcher, rows: u32) -> Self {
        Self { matcher, rows, left: TIME_MAX }
    }

    /// Does `work` in the time that is left, or not to its end.
    fn timed<T, E: Display>(
        &mut self,
        work: impl FnOnce(&mut Matcher) -> Result<T, E>,
    ) -> Result<T, GuideError> {
        let began = Instant::now();
        let handle = self.matcher.cancellation_handle();
        let deadline = handle.map(|handle| Deadline::set(began + self.left, handle));
        let done = work(&mut self.matcher);
        drop(deadline);
        self.left = self.left.saturating_sub(began.elapsed());
        if self.matcher.is_cancelled() {
            let (most, each) = (TIME_MAX.as_millis(), TOKEN_TIME.as_millis());
            return Err(GuideError(format!(
                "it takes too long: the limit is {most} ms, and {each} ms more for every token; \
                 an ambiguous grammar may be written without the ambiguity"
            )));
        }
        done.map_err(|error| wrong(&error.to_string()))
    }
}

impl Guide for Place {
    fn mask(&mut self) -> Result<Mask, GuideError> {
        let set = self.timed(Matcher::compute_mask_or_eos)?;
        let words = self.rows.div_ceil(32) as usize;
        let mut mask: Vec<u32> = set.as_slice().iter().copied().take(words).collect();
        mask.resize(words, 0);
        if let Some(last) = mask.last_mut()
            && !self.rows.is_multiple_of(32)
        {
            *last &= (1 << (self.rows % 32)) - 1;
        }
        if mask.iter().all(|word| *word == 0) {
            return Err(wrong("no token of this vocabulary can come next"));
        }
        Ok(mask.into())
    }

    fn accept(&mut self, id: TokenId) -> Result<Next, GuideError> {
        self.left = TIME_MAX.min(self.left + TOKEN_TIME);
        self.timed(|matcher| matcher.consume_token(id))?;
        Ok(if self.matcher.is_stopped() { Next::Complete } else { Next::More })
    }
}

fn wrong(why: &str) -> GuideError {
    GuideError(reason(why))
}
