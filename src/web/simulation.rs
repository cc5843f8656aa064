//! Simulations, each in a worker of its own, so that neither a frame nor a step waits for one. Runs
//! go both ways as lines of the trace in parts, written and read one at a time for the same reason.

use super::io;
use super::link::{Hear, Worker};
use super::wire::{Asked, Code, Simulated, Simulation, Told};
use super::worker::{tell, tell_with};
use crate::base::Policies;
use crate::sim::{Run, compare, scene};
use crate::trace::{Measures, Sink, Slo, Stamped, read_lines, write_line};
use crate::viewer::{Comparison, Rerun};
use js_sys::{Array, Uint8Array};
use tokio::sync::mpsc::unbounded_channel;

/// Events of a part: some milliseconds of work.
const PART: usize = 1024;

/// What came of one.
pub enum Done {
    Scene(Vec<Stamped>),
    Compared(Box<Comparison>),
}

fn lines(events: &[Stamped]) -> Vec<u8> {
    let mut lines = Vec::new();
    for event in events {
        // Memory takes everything.
        let _ = write_line(&mut lines, event);
    }
    lines
}

/// In the worker: runs it and tells its runs.
pub fn answer(wished: &Simulation, recorded: &Array) {
    tell(&match simulated(wished, recorded) {
        Ok(()) => Told::SimulationDone,
        Err(message) => Told::Failed { code: Code::Engine, message },
    });
}

fn simulated(wished: &Simulation, recorded: &Array) -> Result<(), String> {
    let tell_run = |run: Simulated, policies: Policies, events: &[Stamped]| {
        for part in events.chunks(PART) {
            tell_with(&Told::Simulated { run, policies }, Some(lines(part)));
        }
    };
    let &Simulation::WhatIf { policies, limits, block_picos } = wished else {
        let events = scene().map_err(|error| error.to_string())?;
        tell_run(Simulated::Wished, Policies::default(), &events);
        return Ok(());
    };
    let mut events = Vec::new();
    for part in recorded.iter() {
        let read: Result<Vec<Stamped>, _> = read_lines(&Uint8Array::new(&part).to_vec()).collect();
        events.extend(read.map_err(|error| error.to_string())?);
    }
    let found = compare(&events, policies, limits, block_picos).map_err(|e| e.to_string())?;
    for (name, Run { policies, events, .. }) in
        [(Simulated::Same, found.same), (Simulated::Wished, found.other)]
    {
        tell_run(name, policies, &events);
    }
    Ok(())
}

/// A run as its parts come in. Its measures are a fold of its events, here as there.
#[derive(Default)]
struct Coming {
    policies: Policies,
    events: Vec<Stamped>,
    measures: Measures,
}

impl Coming {
    fn rerun(self) -> Rerun {
        Rerun::new(self.policies, self.measures.summary(), self.events)
    }
}

/// In the page: has a worker run it. `recorded` is the run that is asked about, if one is.
pub async fn run(wished: Simulation, recorded: Vec<Stamped>) -> Result<Done, String> {
    let (to, mut from) = unbounded_channel();
    let worker = Worker::start(|| -> Hear {
        let to = to.clone();
        Box::new(move |told| {
            // Nobody listens once it is done.
            let _ = to.send(told);
        })
    });
    let mut measures = Measures::new(Slo::default());
    let parts = Array::new();
    for part in recorded.chunks(PART) {
        part.iter().for_each(|event| measures.push(event));
        parts.push(&Uint8Array::from(lines(part).as_slice()));
        io::sleep(0.0).await;
    }
    worker.send(&Asked::Simulate { wished }, &parts);
    let (mut same, mut other) = (Coming::default(), Coming::default());
    while let Some(told) = from.recv().await {
        match told? {
            (Told::Simulated { run, policies }, bytes) => {
                let coming = if run == Simulated::Same { &mut same } else { &mut other };
                coming.policies = policies;
                for event in read_lines(&bytes) {
                    let event = event.map_err(|error| error.to_string())?;
                    coming.measures.push(&event);
                    coming.events.push(event);
                }
            }
            (Told::SimulationDone, _) => break,
            (Told::Failed { message, .. }, _) => return Err(message),
            _ => {}
        }
    }
    Ok(match wished {
        Simulation::Scene => Done::Scene(other.events),
        Simulation::WhatIf { .. } => Done::Compared(Box::new(Comparison {
            recorded: measures.summary(),
            same: same.rerun(),
            other: other.rerun(),
        })),
    })
}
