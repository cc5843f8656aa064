//! The engine stamps every event and hands it to every sink.

use super::fake::{World, hashed, limits};
use crate::support::Rows;
use std::sync::{Arc, Mutex};
use tilewright::engine::GenerateRequest;
use tilewright::trace::{Event, FileSink, Header, Picture, Reader, RingSink, Sink, Stamped, fold};

pub fn rows(rows: &mut Rows) {
    rows.add("engine::events_are_stamped_in_order", events_are_stamped_in_order);
    rows.add("engine::record_file_tells_the_run", record_file_tells_the_run);
}

fn request() -> GenerateRequest {
    let prompt = vec![300; 70];
    GenerateRequest { prompt, max_tokens: Some(5), ..GenerateRequest::default() }
}

fn run(sinks: Vec<Box<dyn Sink>>) -> World {
    let mut world = World::with(limits(), hashed(), |config| config.sinks = sinks);
    let open: Vec<_> = (0..3).map(|_| world.handle.submit(request()).unwrap()).collect();
    while world.handle.status().open > 0 || world.handle.status().steps == 0 {
        world.clock.advance(250);
        world.step();
    }
    for generation in open {
        pollster::block_on(generation.collect()).unwrap();
    }
    world
}

fn events_are_stamped_in_order() {
    let ring = Arc::new(Mutex::new(RingSink::new(10_000)));
    let world = run(vec![Box::new(ring.clone())]);
    let ring = ring.lock().unwrap();
    let events: Vec<&Stamped> = ring.events().collect();
    for (index, stamped) in events.iter().enumerate() {
        assert_eq!(stamped.seq, index as u64);
    }
    assert!(events.windows(2).all(|w| w[0].micros <= w[1].micros && w[0].step <= w[1].step));
    assert!(events[0].micros == 250, "the injected clock stamps: {:?}", events[0]);
    let count = |want: fn(&Event) -> bool| events.iter().filter(|e| want(&e.event)).count() as u64;
    assert_eq!(count(|e| matches!(e, Event::StepRan { .. })), world.handle.status().steps);
    let timed =
        |e: &Event| matches!(e, Event::KernelTimed { kernel, nanos: 7, .. } if kernel == "fake");
    assert_eq!(
        events.iter().filter(|e| timed(&e.event)).count() as u64,
        world.handle.status().steps
    );
    assert_eq!(count(|e| matches!(e, Event::TokenSampled { .. })), 15);
    assert_eq!(count(|e| matches!(e, Event::SequenceFinished { .. })), 3);
    assert_eq!(count(|e| matches!(e, Event::RequestArrived { .. })), 3);
}

fn record_file_tells_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let ring = Arc::new(Mutex::new(RingSink::new(10_000)));
    let file = FileSink::create(&path, 10_000, &Header::default(), |_| {}).unwrap();
    // Dropping the engine closes the file.
    drop(run(vec![Box::new(file), Box::new(ring.clone())]));
    let reader = Reader::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()));
    let read: Vec<Stamped> = reader.unwrap().map(|event| event.unwrap()).collect();
    let ring = ring.lock().unwrap();
    assert!(read.iter().eq(ring.events()), "the file holds the stream");
    let mut picture = Picture::default();
    read.iter().for_each(|event| fold(&mut picture, event));
    assert_eq!(picture.counters.finished.values().sum::<u64>(), 3);
}
