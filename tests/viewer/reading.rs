//! The page that reads the recorded overload from the window: it says what the window shows.

use super::drive::{Driven, driven_in};
use super::scene::{overload, viewer};
use super::why::{rest, tells};
use crate::support::{Rows, root};
use egui::accesskit::Role;
use egui::vec2;
use egui_kittest::kittest::Queryable;
use tilewright::viewer::{StepRow, View};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::the_page_says_what_the_window_shows", the_page_says_what_is_shown);
    rows.add("viewer::steps_with_prompts_are_as_the_page_says", steps_with_prompts);
}

fn page() -> String {
    let path = root().join("assets/docs/reading-the-window.md");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The window as it stands at a step, with one view in front.
fn at(step: u64, view: View) -> Driven {
    let mut viewer = viewer(&overload());
    viewer.go(step);
    // High enough that no line is scrolled away.
    let mut harness = driven_in(vec2(1280.0, 1500.0), viewer);
    harness.get_by_role_and_label(Role::Button, view.title()).click();
    harness.run();
    harness
}

/// What the page says in its own words, and where the window says it.
const SAID: [(&str, u64, View, &str); 19] = [
    ("stands at step 51", 51, View::Why, "step 51: sequence 5 was preempted because sequence 2"),
    ("ends at step 81: 15.7 s", 81, View::Timeline, "queued again, steps 51 to 81, 15.7 s"),
    ("found its first 32 positions", 81, View::Why, "step 81: sequence 5 found its first 32"),
    ("534 computed positions lost", 215, View::Counters, "534"),
    ("624 positions", 215, View::Counters, "624"),
    ("say ×6", 3, View::Timeline, "block 0, sequence 5, 16 of 16, shared by 6 sequences"),
    ("blocks 0 and 1", 3, View::Timeline, "block 1, sequence 5, 16 of 16, shared by 6 sequences"),
    ("after 28 s", 215, View::Timeline, "sequence 6: queued, steps 1 to 52, 28.4 s"),
    ("7 and 8 after 49 s", 215, View::Timeline, "sequence 7: queued, steps 1 to 90, 48.7 s"),
    ("7 and 8 after 49 s", 215, View::Timeline, "sequence 8: queued, steps 1 to 90, 48.7 s"),
    ("9 after 54 s", 215, View::Timeline, "sequence 9: queued, steps 1 to 98, 54.1 s"),
    ("10 after 58 s", 215, View::Timeline, "sequence 10: queued, steps 1 to 106, 58.4 s"),
    ("longest: 63 s", 215, View::Timeline, "sequence 11: queued, steps 1 to 115, 1 min 3 s"),
    ("to step 115", 115, View::Why, "step 115: sequence 11 was admitted"),
    ("\"for a slot\"", 40, View::Queue, "for a slot"),
    ("\"for blocks\"", 70, View::Queue, "for blocks: 0 are free"),
    ("the worst token gap", 215, View::Counters, "Worst token gap, sequence 5, token 49: 18.3 s"),
    ("the policy `youngest`", 51, View::Why, "victim youngest"),
    ("pool of 28 KV blocks", 215, View::Timeline, "0 of 28 blocks used"),
];

fn the_page_says_what_is_shown() {
    let page = page();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = words(&page);
    for (said, step, view, shown) in SAID {
        let said = words(said);
        assert!(plain.contains(&said), "the page no longer says {said:?}");
        let harness = at(step, view);
        // A number is a label by itself, not a part of another.
        let whole = shown.parse::<u64>().is_ok();
        let found =
            if whole { harness.query_by_label(shown).is_some() } else { tells(&harness, shown) };
        assert!(found, "{said:?}, step {step}: {:?}", harness.root());
    }
    // What is quoted stands there word for word.
    let quotes: Vec<String> = page
        .split("\n\n")
        .filter(|part| part.starts_with("> "))
        .map(|part| words(&part.replace("\n> ", " ").replace("> ", "")))
        .collect();
    assert_eq!(quotes.len(), 3, "{quotes:?}");
    let shown = [at(51, View::Timeline), at(215, View::Counters)];
    for (quote, harness) in quotes.iter().zip(&shown) {
        for piece in quote.split("(…)") {
            assert!(tells(harness, piece.trim()), "{piece:?}: {:?}", harness.root());
        }
    }
    let harness = at(215, View::Timeline);
    let bars = |text: &str| harness.query_all_by_label_contains(text).count();
    assert!(plain.contains("7 preemptions") && bars(": preempted, queued again") == 7);
    assert!(plain.contains("twelve requests") && bars(": queued, step") == 12);
    // Details of block 0 list the holders.
    let mut harness = at(3, View::Timeline);
    let place = harness.get_by_label_contains("block 0, sequence 5").rect().center();
    rest(&mut harness, place);
    assert!(tells(&harness, "6 (0, 1, 2, 3, 4, 5)"), "{:?}", harness.root());
}

fn steps_with_prompts() {
    let (page, viewer) = (page(), viewer(&overload()));
    let steps = viewer.steps();
    let late: Vec<&StepRow> = steps.range(0, steps.len()).filter(|row| row.step > 3).collect();
    let (tall, low): (Vec<&&StepRow>, Vec<_>) = late.iter().partition(|row| row.prefill > 0);
    let told = format!("{} of the {} steps after the third", tall.len(), late.len());
    assert!(page.contains(&told), "{told}");
    let mut usual: Vec<u64> = low.iter().map(|row| row.device_micros).collect();
    usual.sort_unstable();
    let middle = usual[usual.len() / 2] as f64 / 1e6;
    assert!(page.contains(&format!("takes {middle:.2} s here")), "{middle}");
}
