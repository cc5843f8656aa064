//! When a generation ends and what text is out by then.

use super::fake::{END, World, hashed, ids, limits, script};
use crate::support::Rows;
use tilewright::base::TokenId;
use tilewright::engine::{Completion, GenerateRequest, Output};
use tilewright::trace::FinishReason::{Length, Stop};

pub fn rows(rows: &mut Rows) {
    rows.add("engine::answer_ends_at_the_end_token", answer_ends_at_the_end_token);
    rows.add("engine::every_end_id_ends", every_end_id_ends);
    rows.add("engine::end_token_on_the_last_place_is_a_stop", end_on_the_last_place);
    rows.add("engine::no_limit_runs_to_the_end_of_room", no_limit_runs_to_the_end_of_room);
    rows.add("engine::ignore_eos_and_min_tokens", ignore_eos_and_min_tokens);
    rows.add("engine::stop_strings_over_tokens", stop_strings_over_tokens);
    rows.add("engine::half_characters_are_held", half_characters_are_held);
}

fn prompt() -> GenerateRequest {
    GenerateRequest { prompt: ids("Once upon a time"), ..GenerateRequest::default() }
}

/// Runs one request alone; also checks that its streamed texts join to the whole.
pub fn alone(answer: Vec<TokenId>, request: GenerateRequest) -> Completion {
    let mut world = World::new(limits(), script(answer.clone()));
    let streamed = world.handle.submit(request.clone()).unwrap();
    let whole = world.handle.submit(request).unwrap();
    world.settle();
    let whole = pollster::block_on(whole.collect()).unwrap();
    let mut streamed = streamed;
    let (mut text, mut finished) = (String::new(), 0);
    while let Some(output) = pollster::block_on(streamed.next()) {
        match output {
            Output::Token { text: piece, .. } => text.push_str(&piece),
            Output::Finished { reason, usage } => {
                assert_eq!((Some(reason), usage), (whole.reason, whole.usage));
                finished += 1;
            }
            Output::Started { .. } | Output::Scored(_) | Output::Pooled(_) => {}
            Output::Failed(error) => panic!("{error}"),
        }
    }
    assert_eq!((text.as_str(), finished), (whole.text.as_str(), 1));
    assert_eq!(world.handle.status().blocks_used, 0);
    whole
}

fn answer_ends_at_the_end_token() {
    let answer = ids("The capital of France is Paris.");
    let whole = alone(answer.clone(), prompt());
    assert_eq!(whole.text, "The capital of France is Paris.");
    assert_eq!(whole.reason, Some(Stop));
    assert_eq!(whole.ids(), [answer.clone(), vec![END]].concat());
    assert_eq!(whole.usage.completion_tokens as usize, answer.len() + 1);
    assert_eq!(whole.usage.prompt_tokens as usize, prompt().prompt.len());
}

fn every_end_id_ends() {
    for end in [0, END] {
        let answer = [ids("Hi."), vec![end], ids(" More")].concat();
        let whole = alone(answer, prompt());
        assert_eq!((whole.text.as_str(), whole.reason), ("Hi.", Some(Stop)), "end id {end}");
    }
    let request = GenerateRequest { stop_token_ids: ids(" Paris"), ..prompt() };
    let whole = alone(ids("It is Paris."), request);
    assert_eq!((whole.text.as_str(), whole.reason), ("It is", Some(Stop)));
}

fn end_on_the_last_place() {
    let answer = ids("one two");
    let count = answer.len() as u32;
    for (max, reason) in [(count, Length), (count + 1, Stop), (count + 2, Stop)] {
        let whole = alone(answer.clone(), GenerateRequest { max_tokens: Some(max), ..prompt() });
        assert_eq!((whole.text.as_str(), whole.reason), ("one two", Some(reason)), "{max}");
    }
}

fn no_limit_runs_to_the_end_of_room() {
    let small = tilewright::base::Limits { blocks: 8, ..limits() };
    for max_tokens in [None, Some(5000)] {
        let mut world = World::new(small, hashed());
        let generation = world.handle.submit(GenerateRequest { max_tokens, ..prompt() }).unwrap();
        world.settle();
        let whole = pollster::block_on(generation.collect()).unwrap();
        let room = 8 * 16 - prompt().prompt.len();
        assert_eq!((whole.tokens.len(), whole.reason), (room, Some(Length)));
    }
}

fn ignore_eos_and_min_tokens() {
    let answer = [ids("a"), vec![END], ids("b"), vec![END]].concat();
    let request = GenerateRequest { ignore_eos: true, max_tokens: Some(6), ..prompt() };
    let whole = alone(answer.clone(), request);
    assert_eq!((whole.text.as_str(), whole.reason), ("ab", Some(Length)));
    assert_eq!(whole.usage.completion_tokens, 6);
    // The runner may not choose an end token before the minimum is reached.
    let request = GenerateRequest { min_tokens: Some(3), ..prompt() };
    let whole = alone(answer, request);
    assert_eq!((whole.tokens.len(), whole.reason), (4, Some(Stop)));
    assert!(!whole.ids()[..3].contains(&END));
    // Nor does a stop string end it.
    let request = GenerateRequest { min_tokens: Some(3), stop: vec!["a".to_string()], ..prompt() };
    let whole = alone(ids("a b c a b"), request);
    assert_eq!((whole.text.as_str(), whole.reason), ("a b c ", Some(Stop)));
}

fn stop_strings_over_tokens() {
    let answer = ids("alpha beta gamma delta");
    let cases: [(&[&str], &str, _); 6] = [
        (&["beta gamma"], "alpha ", Stop),
        (&["beta X"], "alpha beta gamma delta", Stop),
        (&["ta g", "beta gamma"], "alpha ", Stop),
        (&["delta epsilon"], "alpha beta gamma delta", Stop),
        (&["a"], "", Stop),
        (&["zzz", "amma d"], "alpha beta g", Stop),
    ];
    for (stop, text, reason) in cases {
        let stop: Vec<_> = stop.iter().map(ToString::to_string).collect();
        let whole = alone(answer.clone(), GenerateRequest { stop: stop.clone(), ..prompt() });
        assert_eq!((whole.text.as_str(), whole.reason), (text, Some(reason)), "{stop:?}");
    }
    // Cut by the limit inside a possible stop string: the held text comes out once.
    let count = answer.len() as u32;
    let stop = vec!["gamma delta epsilon".to_string()];
    let whole = alone(answer, GenerateRequest { stop, max_tokens: Some(count), ..prompt() });
    assert_eq!((whole.text.as_str(), whole.reason), ("alpha beta gamma delta", Some(Length)));
}

fn half_characters_are_held() {
    let smile = ids("😀");
    assert!(smile.len() > 1, "a character of several tokens is needed");
    let whole = alone(smile.clone(), prompt());
    assert_eq!(whole.text, "😀");
    let whole = alone(smile.clone(), GenerateRequest { max_tokens: Some(2), ..prompt() });
    assert_eq!((whole.text.as_str(), whole.reason), ("\u{FFFD}", Some(Length)));
    let whole = alone(smile, GenerateRequest { stop: vec!["😀".to_string()], ..prompt() });
    assert_eq!((whole.text.as_str(), whole.reason), ("", Some(Stop)));
}
