//! Rows of `in_flight`: a real model says the same with two steps in the air as with one, to the
//! bit.

use crate::company::{options, requests};
use crate::models::craft::Checkpoint;
use crate::support::{On, Rows, World};
use tilewright::base::Limits;
use tilewright::engine::EngineConfig;

pub fn rows(rows: &mut Rows) {
    for (on, present) in On::all() {
        let row = format!("in_flight::changes_no_bit.{}", on.name());
        rows.add_if(present, row, move |()| two_in_flight(on));
    }
}

/// A step handed over before the tokens it starts from are known: the same bits, reasons and counts
/// as one step at a time, alone and together, in a tiny pool and where somebody is sent back at
/// will, with ends that are found when the next row is on its way.
fn two_in_flight(on: On) {
    let weights = Checkpoint::fable(2).folder();
    let world = World::open(&weights, on.device(), &options(512)).unwrap_or_else(|e| panic!("{e}"));
    let mut requests = requests()[4..].to_vec();
    for (n, request) in (0..).zip(&mut requests) {
        // Most need nothing of the host, and many end before their limit.
        (request.repetition_penalty, request.frequency_penalty) = (None, None);
        request.max_tokens = Some(24 + n % 5);
        request.logprobs = Some(n % 3);
        request.stop_token_ids = (n % 7..1551).step_by(7 + n as usize % 40).collect();
    }
    let run = |flights, limits, every| {
        let change = |config: &mut EngineConfig| {
            (config.steps_in_flight, config.force_preemption_every) = (flights, every);
        };
        let outcome = world.run_with(limits, &requests, change);
        let (ahead, discarded) = (outcome.ahead, outcome.discarded);
        let preempted = outcome.preempted;
        (outcome.all(), ahead, discarded, preempted)
    };
    let roomy = Limits { blocks: 200, ..world.limits };
    let (expected, ahead, ..) = run(1, roomy, None);
    assert_eq!(ahead, 0);
    let mut late = 0;
    for (limits, every) in [
        (roomy, None),
        (Limits { sequences_max: 1, ..roomy }, None),
        (Limits { sequences_max: 3, step_tokens_max: 24, ..roomy }, None),
        (Limits { blocks: 30, ..roomy }, None),
        (Limits { blocks: 40, ..roomy }, Some(5)),
    ] {
        let (answers, ahead, discarded, preempted) = run(2, limits, every);
        assert!(ahead > 0, "{limits:?}");
        assert!(every.is_none() || preempted > 0, "{limits:?}");
        late += discarded;
        for (n, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
            assert!(answer == expected, "{n}, {limits:?}: {answer:?}, not {expected:?}");
        }
    }
    assert!(late > 4, "{late} ends found late");
}
