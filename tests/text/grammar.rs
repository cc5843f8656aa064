//! Rows of `text`: grammars over Fable's vocabulary. Whatever an arbitrary sampler chooses among
//! the ids that the masks allow is whole and right when it ends.

use crate::engine::fake::card;
use crate::support::Rows;
use crate::text::schemas::{Draw, generate, valid};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tilewright::engine::ModelCard;
use tilewright::text::{GrammarSource, Grammars, Next, TextError};

pub fn rows(rows: &mut Rows) {
    rows.add("text::a_thousand_random_schemas", thousand);
    rows.add("text::schema_checker_sees_faults", checker);
    rows.add("text::grammars_of_every_kind", kinds);
    rows.add("text::bad_grammars_are_refused", refused);
    rows.add("text::masks_are_exact", masks);
    rows.add("text::ambiguous_grammars_end", ambiguous);
    rows.add("text::large_schemas_stay_below_the_limits", large);
}

fn grammars() -> Grammars {
    let card = card();
    Grammars::new(&card.tokenizer, &card.stop_ids, card.logit_rows).unwrap()
}

/// Texts that bring an answer to its end, wanted first by a sampler in a hurry.
const CLOSING: [&str; 12] = ["}", "]", "\"", "e", "l", "1", "0", ":", ",", "t", "r", "a"];

/// An answer drawn from the masks: text and whether it ended.
fn answer(
    (grammars, card): (&Grammars, &ModelCard),
    source: &GrammarSource,
    draw: &mut Draw,
    max: usize,
) -> (String, bool) {
    let grammar =
        grammars.compile(source, None, None).unwrap_or_else(|e| panic!("{e}: {source:?}"));
    let mut guide = grammar.start();
    let closing: Vec<u32> = CLOSING.iter().filter_map(|t| card.tokenizer.token_id(t)).collect();
    let mut ids = Vec::new();
    while ids.len() < max {
        let mask = guide.mask().unwrap_or_else(|e| panic!("{e}: {source:?}"));
        let allowed = |id: u32| mask[id as usize / 32] >> (id % 32) & 1 == 1;
        if card.stop_ids.iter().any(|id| allowed(*id)) && draw.below(2) == 0 {
            return (card.tokenizer.decode(&ids), true);
        }
        let all: Vec<u32> =
            (0..card.logit_rows).filter(|id| allowed(*id) && !card.stop_ids.contains(id)).collect();
        let hurried = closing.iter().copied().find(|id| allowed(*id)).filter(|_| draw.below(4) > 0);
        let Some(id) = hurried.or(all.get(draw.below(all.len().max(1))).copied()) else {
            return (card.tokenizer.decode(&ids), true);
        };
        ids.push(id);
        if guide.accept(id).unwrap_or_else(|e| panic!("{e}: {source:?}")) == Next::Complete {
            return (card.tokenizer.decode(&ids), true);
        }
    }
    (card.tokenizer.decode(&ids), false)
}

/// Every schema of the generator compiles, and what is drawn under it is JSON of that schema.
fn thousand() {
    let (grammars, card) = (grammars(), card());
    let mut ended = 0;
    for seed in 0..1000 {
        let mut draw = Draw::new(seed);
        let schema = generate(&mut draw);
        let source = GrammarSource::JsonSchema(schema.clone());
        let (text, whole) = answer((&grammars, &card), &source, &mut draw, 200);
        if !whole {
            continue;
        }
        ended += 1;
        let value: Value = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}: {text}\n{schema}"));
        valid(&schema, &schema, &value)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}: {text}\n{schema}"));
    }
    assert!(ended > 800, "most answers end within 200 tokens, {ended} did");
}

/// The checker of the row above finds what is wrong.
fn checker() {
    let schema = json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {
            "a": {"type": "integer", "minimum": 3}, "b": {"type": "array", "maxItems": 1},
        },
    });
    let check = |value: Value| valid(&schema, &schema, &value);
    assert_eq!(check(json!({"a": 3, "b": [1]})), Ok(()));
    for wrong in [
        json!({}),
        json!({"a": 2}),
        json!({"a": 3.5}),
        json!({"a": 3, "c": 1}),
        json!({"a": 3, "b": [1, 2]}),
        json!([]),
    ] {
        assert!(check(wrong.clone()).is_err(), "{wrong}");
    }
}

fn kinds() {
    let (grammars, card) = (grammars(), card());
    for seed in 0..20 {
        let mut draw = Draw::new(seed);
        let regex = GrammarSource::Regex("(ab|cd){2,3}-[0-9]{4}".to_string());
        let (text, ended) = answer((&grammars, &card), &regex, &mut draw, 50);
        assert!(ended && text.len() >= 9 && text.contains('-'), "{text}");
        let lark =
            GrammarSource::Lark("start: \"yes\" | \"no\" tail\ntail: /[!]{1,3}/".to_string());
        let (text, ended) = answer((&grammars, &card), &lark, &mut draw, 50);
        assert!(ended && (text == "yes" || text.trim_end_matches('!') == "no"), "{text}");
        let object = GrammarSource::JsonSchema(json!({"type": "object"}));
        let (text, ended) = answer((&grammars, &card), &object, &mut draw, 200);
        assert!(!ended || serde_json::from_str::<Value>(&text).unwrap().is_object(), "{text}");
    }
}

fn refused() {
    let grammars = grammars();
    let deep = |n: usize| {
        (0..n).fold(json!({"type": "integer"}), |inner, _| json!({"type": "array", "items": inner}))
    };
    for source in [
        GrammarSource::JsonSchema(json!({"type": "no such type"})),
        GrammarSource::JsonSchema(json!({"$ref": "https://example.org/schema.json"})),
        GrammarSource::JsonSchema(json!({"$ref": "#/$defs/none"})),
        GrammarSource::JsonSchema(json!({"type": "integer", "minimum": 3, "maximum": 1})),
        GrammarSource::JsonSchema(json!({"type": "string", "pattern": "("})),
        GrammarSource::JsonSchema(json!(false)),
        GrammarSource::Regex("(".to_string()),
        GrammarSource::Lark("rule: \"x\"".to_string()),
        GrammarSource::Lark("start: other".to_string()),
        GrammarSource::Lark(String::new()),
    ] {
        match grammars.compile(&source, None, None) {
            Err(TextError::Grammar(why)) => {
                assert!(why.len() < 3000 && !why.contains("backtrace"), "{why}");
            }
            other => panic!("{source:?}: {other:?}"),
        }
    }
    // Heavy is no fault by itself, but it ends.
    for source in [
        GrammarSource::JsonSchema(deep(120)),
        GrammarSource::Regex("((a{1000}){1000}){1000}".to_string()),
        GrammarSource::Regex("(a|b|ab|ba|aab)*".repeat(200)),
    ] {
        let grammar = grammars.compile(&source, None, None);
        assert!(matches!(grammar, Ok(_) | Err(TextError::Grammar(_))), "{grammar:?}");
    }
}

/// A grammar of one text allows its beginnings and nothing else, then only end ids.
fn masks() {
    let card = card();
    let grammar =
        grammars().compile(&GrammarSource::Regex("the end".to_string()), None, None).unwrap();
    let (mut guide, mut twin) = (grammar.start(), grammar.start());
    let mask = guide.mask().unwrap();
    assert_eq!(mask.len(), card.logit_rows.div_ceil(32) as usize);
    for id in 0..mask.len() as u32 * 32 {
        let allowed = mask[id as usize / 32] >> (id % 32) & 1 == 1;
        let text = card.tokenizer.inner_bytes(id).filter(|_| id < card.logit_rows);
        let begins = text.is_some_and(|t| !t.is_empty() && b"the end".starts_with(&t));
        assert_eq!(allowed, begins, "id {id}, {:?}", card.tokenizer.token_text(id));
    }
    let ids = card.tokenizer.encode("the end").unwrap();
    let mut next = Next::More;
    for id in &ids {
        assert_eq!(next, Next::More);
        next = guide.accept(*id).unwrap();
    }
    assert_eq!(next, Next::Complete, "nothing can follow");
    // The other answer is still at its beginning, and a token that is not allowed is an error.
    assert_eq!(twin.mask().unwrap(), mask);
    assert!(twin.accept(card.tokenizer.encode("x").unwrap()[0]).is_err());
}

/// What has more readings with every token is ended by a limit that is told, long before it takes
/// minutes.
fn ambiguous() {
    let (grammars, card) = (grammars(), card());
    let id = card.tokenizer.token_id("a").unwrap();
    let began = Instant::now();
    for lark in [
        "start: s\ns: s s | \"a\"",
        "start: s\ns: s s s | s s | \"a\"",
        "start: s \"b\"\ns: s t | t s | \"a\"\nt: t s | s t | \"a\"",
    ] {
        let source = GrammarSource::Lark(lark.to_string());
        let mut guide = grammars.compile(&source, None, None).unwrap().start();
        let ended = (0..1500).find_map(|at| {
            let next = guide.mask().and_then(|_| guide.accept(id));
            next.err().map(|error| (at, error.to_string()))
        });
        let (at, error) = ended.unwrap_or_else(|| panic!("{lark} was followed to the end"));
        assert!(at > 30, "{at}: {error}");
        assert!(error.contains("max is 2000") || error.contains("limit is 1000 ms"), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// Schemas far larger than those of the other rows are no fault.
fn large() {
    let (grammars, card) = (grammars(), card());
    let fields: serde_json::Map<String, Value> = (0..150)
        .map(|n| (format!("field_{n}"), json!({"enum": ["a", "b", n], "description": "x"})))
        .collect();
    let words: Vec<String> = (0..2000).map(|n| format!("word {n}")).collect();
    for schema in [
        json!({"type": "object", "properties": fields.clone()}),
        json!({"type": "object", "properties": fields, "additionalProperties": false}),
        json!({"type": "object", "properties": {"w": {"enum": words}}, "required": ["w"]}),
    ] {
        let mut draw = Draw::new(3);
        let source = GrammarSource::JsonSchema(schema);
        answer((&grammars, &card), &source, &mut draw, 100);
    }
}
