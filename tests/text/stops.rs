//! Stop strings across pieces.

use super::{built, vocab};
use crate::support::Rows;
use tilewright::text::{StopMatcher, TextError, check_stops};

pub fn rows(rows: &mut Rows) {
    rows.add("text::stop_string_over_several_pieces", over_pieces);
    rows.add("text::stop_false_alarm_releases_all_once", false_alarm);
    rows.add("text::stop_that_begins_first_wins", begins_first);
    rows.add("text::stop_inside_one_piece_keeps_what_precedes", inside_piece);
    rows.add("text::stop_matches_characters_joined_from_ids", joined_characters);
    rows.add("text::stop_end_inside_a_prefix_flushes", end_inside_prefix);
    rows.add("text::stop_lists_are_checked", checked);
    rows.add("text::stop_result_does_not_depend_on_the_pieces", any_pieces);
}

/// Everything released, each piece's part, and whether it stopped.
fn run(stops: &[&str], pieces: &[&str]) -> (String, Vec<String>, bool) {
    let mut matcher = StopMatcher::new(stops.iter().map(|s| (*s).to_string()).collect());
    let mut parts = Vec::new();
    for piece in pieces {
        let step = matcher.push(piece);
        parts.push(step.text);
        assert_eq!(step.stopped, matcher.stopped());
    }
    parts.push(matcher.finish());
    (parts.concat(), parts, matcher.stopped())
}

const PIECES: [&str; 4] = ["al", "pha be", "ta ga", "mma de"];

fn over_pieces() {
    let (text, parts, stopped) = run(&["beta gamma"], &PIECES);
    assert_eq!((text.as_str(), stopped), ("alpha ", true));
    assert_eq!(parts, ["al", "pha ", "", "", ""]);
    // What comes after a stop is dropped.
    assert_eq!(run(&["beta gamma"], &["beta gamma", "x", "beta"]).0, "");
}

fn false_alarm() {
    let (text, parts, stopped) = run(&["beta X"], &PIECES);
    assert_eq!((text.as_str(), stopped), ("alpha beta gamma de", false));
    assert_eq!(parts, ["al", "pha ", "beta ga", "mma de", ""]);
    // A false alarm inside a false alarm.
    assert_eq!(
        run(&["aab"], &["a", "a", "a", "b"]),
        ("a".into(), vec!["".into(), "".into(), "a".into(), "".into(), "".into()], true)
    );
}

fn begins_first() {
    for stops in [["ta g", "beta gamma"], ["beta gamma", "ta g"]] {
        assert_eq!(run(&stops, &PIECES).0, "alpha ");
        // The longer one fails: the shorter, which was complete before, counts.
        assert_eq!(
            run(&stops, &["alpha be", "ta g", "x"]),
            ("alpha be".into(), vec!["alpha ".into(), "".into(), "be".into(), "".into()], true)
        );
        // The text ends while the longer one is open.
        let (text, _, stopped) = run(&stops, &["alpha be", "ta ga"]);
        assert_eq!((text.as_str(), stopped), ("alpha be", true));
    }
}

fn inside_piece() {
    assert_eq!(run(&["\n"], &["Why", "?\n", "Because"]).0, "Why?");
    assert_eq!(run(&["b"], &["abc"]).0, "a");
    assert_eq!(run(&["abc"], &["abc"]), ("".into(), vec!["".into(), "".into()], true));
}

fn joined_characters() {
    let tokenizer = built(vocab("gpt2", &[], &[]));
    let ids = tokenizer.encode("x 😀 y").unwrap();
    let (mut stream, mut matcher) = (tokenizer.stream(), StopMatcher::new(vec!["😀".into()]));
    let text: String = ids.iter().map(|id| matcher.push(&stream.push(*id)).text).collect();
    assert_eq!(text + &matcher.finish(), "x ");
    assert!(matcher.stopped());
    // A stop string that shares its first bytes with another character.
    assert_eq!(run(&["😀"], &["😁", "😀"]).0, "😁");
    assert_eq!(run(&["é!"], &["é", "è", "é", "!"]).0, "éè");
}

fn end_inside_prefix() {
    let (text, parts, stopped) = run(&["beta gamma"], &["alpha be", "ta ga"]);
    assert_eq!((text.as_str(), stopped), ("alpha beta ga", false));
    assert_eq!(parts, ["alpha ", "", "beta ga"]);
}

fn checked() {
    let list = |stops: &[&str]| stops.iter().map(|s| (*s).to_string()).collect::<Vec<_>>();
    assert_eq!(check_stops(&list(&["a", "b", "c", "d"])), Ok(()));
    assert_eq!(check_stops(&[]), Ok(()));
    let empty = check_stops(&list(&["a", ""])).expect_err("refused");
    assert_eq!(empty, TextError::EmptyStop { index: 1 });
    let many = check_stops(&list(&["a", "b", "c", "d", "e"])).expect_err("refused");
    assert_eq!(many, TextError::TooManyStops { count: 5, max: 4 });
    assert!(empty.is_from_request() && many.is_from_request());
    // Let through all the same, it never matches.
    assert_eq!(run(&[""], &["a", "b"]).0, "ab");
    assert_eq!(run(&[], &["a", "b"]).1, ["a", "b", ""]);
}

/// Every way to cut a text in pieces gives the text up to the first stop string.
fn any_pieces() {
    let cases: &[(&str, &[&str])] = &[
        ("abacabadab", &["aba", "cab"]),
        ("abacabadab", &["bad", "dabx"]),
        ("aaaaaaab", &["aab", "b"]),
        ("xéyéz", &["éz", "yéx"]),
        ("abcdefg", &["cd", "bcdef"]),
        ("abcdefg", &["cd", "bcdex"]),
        ("abcabcabd", &["abcabd", "bca"]),
    ];
    for (text, stops) in cases {
        let end = stops.iter().filter_map(|s| text.find(s)).min().unwrap_or(text.len());
        let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).skip(1).collect();
        for mask in 0..1_u32 << cuts.len() {
            let chosen = cuts.iter().enumerate().filter(|(bit, _)| mask & (1 << bit) != 0);
            let mut edges: Vec<usize> = chosen.map(|(_, at)| *at).collect();
            edges.insert(0, 0);
            edges.push(text.len());
            let pieces: Vec<&str> = edges.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            assert_eq!(run(stops, &pieces).0, text[..end], "{text} {stops:?} {pieces:?}");
        }
    }
}
