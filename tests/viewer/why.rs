//! Why: every decision has a sentence in plain words, and every mark leads to its own.

use super::drive::{Driven, driven, shown};
use super::scene::{Stream, overload, viewer};
use crate::support::Rows;
use egui::accesskit::Role;
use egui::{Pos2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use tilewright::base::{BlockId, Limits, Policies, RequestId, SequenceId, Victim};
use tilewright::trace::{
    Asked, BlockList, DelayReason, Event, EvictReason, LimitsReason, PreemptMethod, PreemptReason,
    Refusal, WITHHELD, sentence,
};
use tilewright::viewer::{Play, View, Viewer};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::words_follow_their_counts", words_follow_their_counts);
    rows.add("viewer::slices_and_wedges_tell_why", slices_and_wedges_tell_why);
    rows.add("viewer::blocks_tell_who_evicted_them", blocks_tell_who_evicted_them);
    rows.add("viewer::a_step_tells_where_its_budget_is_from", budget_is_told);
    rows.add("viewer::a_token_tells_what_it_waited_for", a_token_tells_its_wait);
    rows.add("viewer::details_tell_how_answers_are_sampled", sampling_is_told);
}

fn blocks(count: u32) -> BlockList {
    let mut list = BlockList::default();
    assert!((0..count).all(|id| list.push(BlockId(id))));
    list
}

/// Every kind of decision with `n` wherever it counts something.
fn decisions(n: u32) -> Vec<Event> {
    let (sequence, request) = (SequenceId(7), RequestId(7));
    let limits = Limits {
        blocks: n,
        block_size: n,
        sequences_max: n,
        step_tokens_max: n,
        ..Limits::default()
    };
    let reasons = [
        DelayReason::Slots,
        DelayReason::Blocks,
        DelayReason::Peak,
        DelayReason::Protected,
        DelayReason::Sibling,
    ];
    let delayed = |reason| Event::AdmissionDelayed { sequence, reason, needed: n, available: n };
    let preempted = |method| Event::SequencePreempted {
        victim: sequence,
        gainer: SequenceId(2),
        reason: PreemptReason::OutOfBlocks,
        policy: Victim::Youngest,
        juniors: n,
        method,
        recompute_micros: 900,
        swap_micros: 80,
        host_free: n,
        lost: n,
        blocks: n,
        times: n,
    };
    let mut all = vec![
        Event::LimitsChanged { limits, reason: LimitsReason::Asked },
        Event::SequenceAdmitted {
            sequence,
            slot: 0,
            blocks: n,
            free: n,
            kept: n,
            peak: n,
            passed: n,
            waited_micros: 10,
        },
        preempted(PreemptMethod::Recompute),
        preempted(PreemptMethod::Swap),
        Event::SequenceSwappedIn { sequence, expired: 0, blocks: n, tokens: n },
        Event::PrefixMatched { sequence, blocks: blocks(n), tokens: n },
        Event::PromptShared { sequence, sibling: SequenceId(6), blocks: blocks(n), tokens: n },
        Event::BlockCopied { sequence, from: BlockId(3), to: BlockId(4), tokens: n },
        Event::BlocksExpired { sequence, from: 0, count: n, free: n },
        Event::RowPadded { sequence: Some(sequence), slot: 0, start: 0, len: n },
        Event::RowDelayed { sequence, free: n },
        Event::RowCut { sequence, wanted: n + 1, given: n, budget: n },
        Event::BudgetChosen {
            budget: n,
            decode: n,
            target_micros: 40_000,
            predicted_micros: 30_000,
            fixed_micros: 9_000,
            token_nanos: 800,
            pair_picos: 20,
            slack_permille: 25,
        },
        Event::EventsDropped { count: u64::from(n) },
        Event::RequestRefused { request, sequence, refusal: Refusal::Full { waiting: n, max: n } },
    ];
    all.extend(reasons.map(delayed));
    all
}

fn words_follow_their_counts() {
    let wrong = ["are", "were", "stay", "wait", "decode"];
    let right = ["is", "was", "stays", "waits", "decodes"];
    for event in decisions(1) {
        let text = sentence(&event).expect("a sentence");
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '.').collect();
        for pair in words.windows(2).filter(|pair| pair[0] == "1") {
            let plural = pair[1].ends_with('s') && !right.contains(&pair[1]);
            assert!(!plural && !wrong.contains(&pair[1]), "{pair:?} in: {text}");
        }
        for two in ["1 computed positions", "1 host blocks", "1 shared blocks"] {
            assert!(!text.contains(two), "{text}");
        }
    }
    for event in decisions(2) {
        let text = sentence(&event).expect("a sentence");
        for one in ["2 block ", "2 position ", "2 token ", "2 is ", "2 was "] {
            assert!(!text.contains(one), "{one}in: {text}");
        }
    }
    let chosen = |policies| Event::PoliciesChanged { policies, reason: LimitsReason::Asked };
    let told = |policies| sentence(&chosen(policies)).expect("a sentence");
    let usual = Policies::default();
    // Whatever is changed, the sentence changes.
    for other in [
        Policies { preemption: tilewright::base::Preemption::Swap, ..usual },
        Policies { prefix_cache: tilewright::base::PrefixCache::Off, ..usual },
        Policies { itl_target_micros: Some(40_000), ..usual },
    ] {
        assert_ne!(told(usual), told(other));
    }
}

/// The pointer rests at `at` until what it shows is there.
pub fn rest(harness: &mut Driven, at: Pos2) {
    harness.hover_at(at);
    harness.run_steps(8);
}

pub fn tells(harness: &Driven, text: &str) -> bool {
    harness.query_all_by_label_contains(text).count() > 0
}

/// The step of the recorded overload in which sequence 5 makes way for sequence 2.
const PREEMPTED: u64 = 51;

fn slices_and_wedges_tell_why() {
    let why = "sequence 5 was preempted because sequence 2 needed a block";
    let mut viewer = viewer(&overload());
    viewer.go(10);
    let mut harness = driven(viewer);
    assert!(!tells(&harness, why), "nothing is pointed at yet");
    let slice = "queue, sequence 5: preempted, queued again, steps 51 to";
    let place = harness.get_by_label_contains(slice).rect().center();
    rest(&mut harness, place);
    assert!(tells(&harness, why), "{:?}", harness.root());
    // Of a piece of a prompt, that it is one and what it was cut to.
    let cut = harness.query_all_by_label_contains("sequence 0: prefill, step 1").next();
    let place = cut.expect("a piece").rect().center();
    rest(&mut harness, place);
    assert!(tells(&harness, "sequence 0 was admitted to slot 0"), "{:?}", harness.root());
    // The wedge in the strip below tells the same, and a click goes there.
    let strip = harness.get_by_label_contains("time, step ").rect();
    let steps = harness.state().steps();
    let part = (steps.index_of(PREEMPTED) as f32 + 0.5) / steps.len() as f32;
    let wedge = egui::pos2(strip.min.x + strip.width() * part, strip.center().y);
    rest(&mut harness, wedge);
    assert!(tells(&harness, "1 preempted (wedge above)"), "{:?}", harness.root());
    assert!(tells(&harness, why), "{:?}", harness.root());
    harness.drag_at(wedge);
    harness.drop_at(wedge);
    harness.run();
    assert_eq!(shown(&harness), (PREEMPTED, Play::Paused));
    harness.remove_cursor();
    harness.run();
    assert!(tells(&harness, why), "details of the step: {:?}", harness.root());
}

fn blocks_tell_who_evicted_them() {
    let mut stream = Stream::of(2, 4);
    let (sequence, block) = (SequenceId(1), BlockId(6));
    stream.step(2, 0, 8);
    let reason = EvictReason::OutOfBlocks;
    stream.push(Event::BlockEvicted { block, reason, idle_micros: 1500 });
    stream.push(Event::BlockCopied { sequence, from: BlockId(4), to: block, tokens: 3 });
    let mut harness = driven(viewer(&stream.events));
    let why = "block 6 lost its cached content, unused for 1.5 ms: its place was needed";
    assert!(!tells(&harness, "the newest first"));
    let place = harness.get_by_label_contains("block 6, sequence 1").rect().center();
    rest(&mut harness, place);
    assert!(tells(&harness, why), "{:?}", harness.root());
    let copied = "a copy of 3 positions of block 4";
    assert!(tells(&harness, copied), "{:?}", harness.root());
    let place = harness.get_by_label_contains("block 5, sequence 1").rect().center();
    rest(&mut harness, place);
    assert!(!tells(&harness, why) && !tells(&harness, copied), "of another block");
    // What comes back from host memory is told of its sequence.
    let mut stream = Stream::swapped();
    stream.swap_in();
    stream.step(3, 41, 1);
    let mut harness = driven(viewer(&stream.events));
    let place = harness.get_by_label_contains("slot 2, sequence 2, decode").rect().center();
    rest(&mut harness, place);
    let back = "sequence 2 goes on from its 40 computed positions; 3 blocks of them back";
    assert!(tells(&harness, back), "{:?}", harness.root());
}

fn budget_is_told() {
    let mut stream = Stream::of(2, 4);
    let chosen = decisions(1).into_iter().find(|e| matches!(e, Event::BudgetChosen { .. }));
    stream.push(chosen.expect("one"));
    (0..3).for_each(|at| stream.step(2, 8 + at, 1));
    let harness = driven(viewer(&stream.events));
    assert_eq!(shown(&harness).0, 3);
    assert!(tells(&harness, "its budget"), "{:?}", harness.root());
    assert!(tells(&harness, "step 0: a step may have 1 token from here on"));
    // The target is given up, and the budget with it.
    let policies = Policies::default();
    stream.push(Event::PoliciesChanged { policies, reason: LimitsReason::Asked });
    stream.step(2, 11, 1);
    let mut harness = driven(viewer(&stream.events));
    assert!(!tells(&harness, "its budget"), "{:?}", harness.root());
    // The bar of the change, at the third of four steps, says what it is.
    let strip = harness.get_by_label_contains("time, step ").rect();
    let bar = egui::pos2(strip.min.x + strip.width() * 2.5 / 4.0, strip.center().y);
    rest(&mut harness, bar);
    assert!(tells(&harness, "limits or policies changed (bar)"), "{:?}", harness.root());
    harness.remove_cursor();
    harness.state_mut().go(3);
    harness.run();
    assert!(tells(&harness, "its budget"), "{:?}", harness.root());
}

/// As a person reads it: a token is pointed at, and says what it waited for.
fn a_token_tells_its_wait() {
    let viewer = viewer(&overload());
    let (id, index) = viewer.lives().worst_gap().expect("gaps");
    let mut harness = driven(viewer);
    harness.get_by_role_and_label(Role::Button, "Counters").click();
    harness.run();
    let worst = format!("Worst token gap, sequence {id}, token {}", index + 1);
    harness.get_by_label_contains(&worst).scroll_to_me();
    harness.run_steps(4);
    harness.get_by_label_contains(&worst).click();
    harness.run();
    let viewer = harness.into_state();
    let step = viewer.lives().get(id).expect("a life").tokens[index].step;
    assert_eq!(viewer.time().0, step, "a click goes to it");
    let show = |ui: &mut egui::Ui, viewer: &mut Viewer| viewer.show_one(ui, View::Text);
    let harness = Harness::builder().with_size(vec2(900.0, 500.0)).with_max_steps(12);
    let mut harness = harness.build_ui_state(show, viewer);
    harness.run();
    assert!(tells(&harness, &format!("sequence {id}")), "{:?}", harness.root());
    assert!(tells(&harness, "waited "), "the scale of colours: {:?}", harness.root());
    let token = harness.state().lives().get(id).expect("a life").tokens[index].token;
    let label = format!("[{token}]");
    let all = harness.query_all_by_label(&label);
    let place = all.last().expect("the token is the last").rect().center();
    rest(&mut harness, place);
    let told = format!("token {} at position ", index + 1);
    assert!(tells(&harness, &told), "{:?}", harness.root());
    assert!(tells(&harness, "out of its slot for sequence 2 and computing again"));
}

fn sampling_is_told() {
    let mut stream = Stream::of(1, 4);
    stream.step(1, 0, 8);
    let asked = Asked { temperature: 0.8, top_p: 0.9, seed: 3, ..Asked::default() };
    let asked = Box::new(Asked { repetition_penalty: 1.0, ..asked });
    let (request, sequence) = (RequestId(0), SequenceId(0));
    stream.push(Event::RequestAsked { request, sequence, asked });
    let mut harness = driven(viewer(&stream.events));
    let place = harness.get_by_label_contains("slot 0, sequence 0, ").rect().center();
    rest(&mut harness, place);
    assert!(tells(&harness, "temperature 0.8, top p 0.9, seed 3"), "{:?}", harness.root());
    // The seed is that of the first of many choices; what else changes them is told.
    let told = |more: Asked| {
        let mut events = stream.events.clone();
        let asked = Box::new(Asked { repetition_penalty: 1.0, ..more });
        events.last_mut().expect("it").event = Event::RequestAsked { request, sequence, asked };
        let mut harness = driven(viewer(&events));
        rest(&mut harness, place);
        harness
    };
    let many = Asked { temperature: 0.8, top_p: 1.0, seed: 3, choices: 4, ..Asked::default() };
    let harness = told(Asked { logit_bias: vec![(1, 2.0)], guided: true, ..many });
    let all = "temperature 0.8, biases for 1 token, held to a grammar, seed 3 for the first of 4 \
               choices";
    assert!(tells(&harness, all), "{:?}", harness.root());
    let harness = told(Asked { presence_penalty: 0.5, guided: true, ..Asked::default() });
    let greedy = "the likeliest token, presence penalty 0.5, held to a grammar";
    assert!(harness.query_by_label(greedy).is_some(), "{:?}", harness.root());
    // A server withholds that, and its tokens: they are dots.
    for stamped in &mut stream.events {
        match &mut stamped.event {
            Event::RequestAsked { asked, .. } => **asked = Asked::default(),
            Event::TokenSampled { token, .. } => *token = WITHHELD,
            _ => {}
        }
    }
    let mut harness = driven(viewer(&stream.events));
    rest(&mut harness, place);
    assert!(!tells(&harness, "sampled"), "{:?}", harness.root());
    harness.get_by_role_and_label(Role::Button, "Text").click();
    harness.run();
    assert!(harness.query_by_label("·").is_some(), "{:?}", harness.root());
}
