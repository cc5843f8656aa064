//! The scheduler under recorded arrivals: how many token slots paging wastes. Counts only, no
//! device: a step takes 40 ms, and a sequence ends when the recording says.

use crate::support::{Rows, shared};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tilewright::base::{Limits, RequestId, SequenceId};
use tilewright::sched::{NewSequence, Outcome, Plan, Scheduler};

const STEP_MICROS: u64 = 40_000;

/// Unused token slots may be this share of the used ones.
const WASTE_MAX: f64 = 0.04;

pub fn rows(rows: &mut Rows) {
    for name in ["azure-llm-2023-conv.csv.gz", "azure-llm-2023-code.csv.gz"] {
        let path = shared(&format!("traces/{name}")).and_then(|path| {
            let found = Command::new("gzip").arg("--version").output().is_ok();
            if found { Ok(path) } else { Err("there is no gzip".to_string()) }
        });
        let short = name.split('.').next().unwrap_or(name);
        rows.add_if(path, format!("sched::waste_on_{short}"), |path| {
            let requests = read(&path, 300);
            for block_size in [16, 32] {
                let waste = waste(&requests, block_size);
                println!("{}: blocks of {block_size}: {waste:.4}", path.display());
                assert!(waste > 0.0 && waste < WASTE_MAX, "blocks of {block_size}: {waste}");
            }
        });
    }
}

/// One recorded request.
struct Arrival {
    micros: u64,
    prompt: u32,
    output: u32,
}

/// The first `count` requests of a recording: time, prompt tokens, output tokens.
fn read(path: &Path, count: usize) -> Vec<Arrival> {
    let unpacked = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip was there");
    let text = String::from_utf8(unpacked.stdout).expect("text");
    let micros = |time: &str| -> u64 {
        let clock = time.split(' ').nth(1).expect("date and time");
        let parts = clock.split(':').map(|part| part.parse::<f64>().expect("a number"));
        (parts.fold(0.0, |sum, part| sum * 60.0 + part) * 1e6) as u64
    };
    let mut start = None;
    let arrival = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let at = micros(fields[0]);
        let number = |n: usize| fields[n].trim().parse::<u32>().expect("a count");
        let micros = at - *start.get_or_insert(at);
        Arrival { micros, prompt: number(1).max(1), output: number(2).max(1) }
    };
    text.lines().skip(1).take(count).map(arrival).collect()
}

/// Unused slots over used ones, each summed over all steps.
fn waste(requests: &[Arrival], block_size: u32) -> f64 {
    let limits = Limits {
        sequences_max: 64,
        step_tokens_max: 2048,
        block_size,
        blocks: 262_144 / block_size,
        context_max: 32_768,
        queue_max: 1024,
        ..Limits::default()
    };
    let mut sched = Scheduler::new(limits);
    let (mut plan, mut events, mut now) = (Plan::default(), Vec::new(), 0);
    let (mut used, mut unused, mut next) = (0u64, 0u64, 0);
    let mut finished = BTreeMap::new();
    while finished.len() < requests.len() {
        while let Some(request) = requests.get(next).filter(|r| r.micros <= now) {
            let id = next as u32;
            let prompt = vec![id; request.prompt as usize];
            let new = NewSequence::new(SequenceId(id), RequestId(id), prompt, request.output);
            sched.submit(new, now, &mut events).expect("fits");
            next += 1;
        }
        sched.plan(now, &mut plan, &mut events);
        used += sched.slots_used();
        unused += sched.slots_unused();
        let outcome = |row: &tilewright::sched::PlanRow| Outcome {
            sequence: row.sequence,
            token: row.samples.then_some(7),
            finish: None,
        };
        let outcomes: Vec<_> = plan.rows.iter().map(outcome).collect();
        sched.commit(&plan, &outcomes, now, &mut events);
        for event in events.drain(..) {
            if let tilewright::trace::Event::SequenceFinished { sequence, generated, .. } = event {
                finished.insert(sequence, generated);
            }
        }
        now += STEP_MICROS;
    }
    for (sequence, generated) in finished {
        assert_eq!(generated, requests[sequence.index()].output, "{sequence}");
    }
    unused as f64 / used as f64
}
