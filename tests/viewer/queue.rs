//! The queue: who is next, by which score, and why everybody waits.

use super::drive::driven_in;
use super::scene::{Stream, viewer};
use super::why::{rest, tells};
use crate::support::Rows;
use egui::accesskit::Role;
use egui::vec2;
use egui_kittest::kittest::Queryable;
use tilewright::base::{CLASS_MAX, FairUnit, Order, Policies, RequestId, SequenceId};
use tilewright::trace::{DelayReason, Event, LimitsReason};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::the_queue_goes_by_its_score", the_queue_goes_by_its_score);
    rows.add("viewer::waiting_names_its_cause", waiting_names_its_cause);
    rows.add("viewer::a_bar_that_waits_tells_until_now", a_bar_that_waits_tells_until_now);
}

/// Two run; then three come, of other lengths, classes and tenants.
fn waiting(order: Order) -> Stream {
    let mut stream = Stream::of(2, 4);
    let policies = Policies { order, ..Policies::default() };
    stream.push(Event::PoliciesChanged { policies, reason: LimitsReason::Asked });
    stream.step(2, 0, 8);
    for (at, (prompt, class, tenant)) in
        [(90, 2, 0), (10, 7, 1), (30, 0, 1)].into_iter().enumerate()
    {
        let at = at as u32 + 2;
        stream.push(Event::RequestArrived {
            request: RequestId(at),
            sequence: SequenceId(at),
            prompt,
            max_new_tokens: 10,
            tenant,
            class,
            predicted: 10,
            waiting: at - 1,
        });
    }
    stream
}

/// Sequence and score by place, as the window tells them.
fn told(order: Order) -> Vec<(u32, String, String)> {
    let mut harness = driven_in(vec2(1280.0, 720.0), viewer(&waiting(order).events));
    harness.get_by_role_and_label(Role::Button, "Queue").click();
    harness.run();
    let labels: Vec<String> = harness
        .get_all_by_label_contains("queue place ")
        .map(|node| egui_kittest::kittest::NodeT::accesskit_node(&node).label().unwrap_or_default())
        .collect();
    let read = |label: &String| {
        let mut parts = label.split(", ");
        let mut word = |before: &str| {
            let part = parts.next().expect("a part");
            part.strip_prefix(before).unwrap_or_else(|| panic!("{label}")).to_string()
        };
        let place = word("queue place ").parse().expect("a place");
        (place, word("sequence "), word("score "))
    };
    labels.iter().map(read).collect()
}

fn the_queue_goes_by_its_score() {
    let of = |place: u32, sequence: &str, score: String| (place, sequence.to_string(), score);
    let number = |n: u32| format!("#{n}");
    let fcfs = [of(1, "2", number(3)), of(2, "3", number(4)), of(3, "4", number(5))];
    assert_eq!(told(Order::Fcfs), fcfs);
    // 16 tokens had been processed; the rest is aging, in parts of the longest context.
    let aging = Policies::default().aging.expect("some");
    let job = |job: u64| (16 + aging * job / 2048).to_string();
    let shortest = [of(1, "3", job(20)), of(2, "4", job(40)), of(3, "2", job(100))];
    assert_eq!(told(Order::Shortest), shortest);
    let class = |class: u64| (16 + aging * class / u64::from(CLASS_MAX)).to_string();
    let priority = [of(1, "4", class(0)), of(2, "2", class(2)), of(3, "3", class(7))];
    assert_eq!(told(Order::Priority), priority);
    // Tenants take turns: places are those among a tenant's.
    let own = || "16".to_string();
    let fair = [of(1, "2", own()), of(1, "3", own()), of(2, "4", own())];
    let order = Order::Fair { unit: FairUnit::Tokens };
    assert_eq!(told(order), fair);
    let mut harness = driven_in(vec2(1280.0, 720.0), viewer(&waiting(order).events));
    harness.get_by_role_and_label(Role::Button, "Queue").click();
    harness.run();
    let firsts = harness.query_all_by_label_contains("its tenant's next").count();
    assert_eq!(firsts, 2, "whose turn it is the stream does not tell: {:?}", harness.root());
}

fn waiting_names_its_cause() {
    for (reason, told) in [
        (DelayReason::Slots, "for a slot"),
        (DelayReason::Blocks, "for blocks: 0 are free"),
        (DelayReason::Peak, "for room at the foreseen peak"),
        (DelayReason::Protected, "so that nobody is preempted too often"),
        (DelayReason::Sibling, "for its prompt, which a sibling computes"),
        (DelayReason::InFlight, "for the step it was preempted out of"),
    ] {
        let mut stream = waiting(Order::Fcfs);
        let sequence = SequenceId(2);
        stream.push(Event::AdmissionDelayed { sequence, reason, needed: 2, available: 1 });
        let mut harness = driven_in(vec2(1280.0, 720.0), viewer(&stream.events));
        harness.get_by_role_and_label(Role::Button, "Queue").click();
        harness.run();
        assert!(tells(&harness, "3 wait"));
        assert!(tells(&harness, told), "{told}: {:?}", harness.root());
        assert!(tells(&harness, "behind others"));
        // Pointed at, its sentence is among the details.
        let place = harness.get_by_label_contains("queue place 1, ").rect().center();
        rest(&mut harness, place);
        assert!(tells(&harness, "sequence 2 is next and waits: "), "{:?}", harness.root());
    }
}

/// Under the pointer a bar without an end says what was decided until the newest moment.
fn a_bar_that_waits_tells_until_now() {
    let mut stream = waiting(Order::Fcfs);
    stream.step(2, 8, 1);
    let (sequence, reason) = (SequenceId(2), DelayReason::Slots);
    stream.push(Event::AdmissionDelayed { sequence, reason, needed: 1, available: 0 });
    stream.step(2, 9, 1);
    let mut harness = driven_in(vec2(1280.0, 720.0), viewer(&stream.events));
    let label = "queue, sequence 2: queued, steps 1 to 3";
    let place = harness.get_by_label_contains(label).rect().center();
    rest(&mut harness, place);
    assert!(tells(&harness, "\nstep 2: sequence 2 is next and waits"), "{:?}", harness.root());
}
