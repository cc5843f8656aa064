//! A run recorded as events, and the recording folded back into a picture: who sat in which slot,
//! which blocks were taken, what the device did. A live engine and a file read the same way.
//!
//! `cargo run --release --example record_and_fold -- [FILE]`

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;
use tilewright::base::MonotonicClock;
use tilewright::cpu::CpuDevice;
use tilewright::engine::{
    Engine, EngineConfig, GenerateRequest, LoadOptions, Sizes, Stepped, fable, load,
};
use tilewright::record::Device;
use tilewright::trace::{Event, FileSink, Header, Picture, Reader, fold};

/// Events that may wait for the disk.
const BUFFER: usize = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args().nth(1).map(PathBuf::from);
    let path = given.unwrap_or_else(|| std::env::temp_dir().join("tilewright-run.jsonl"));

    // A pool of 12 blocks is too small for four sequences: somebody will be preempted.
    let (weights, device) = (fable()?, Box::new(CpuDevice::default()));
    let block = 16 * 6 * 64 * 2 * 4;
    let options = LoadOptions { kv_memory: Some(12 * block), ..LoadOptions::default() };
    let sizes = Sizes::choose(&weights, device.facts(), &options)?;
    let clock = Arc::new(MonotonicClock::default());
    let loaded = load(&weights, device, &sizes, &options, clock.as_ref(), &mut |_, _| {})?;
    let prompt = loaded.card.tokenizer.encode_prompt("Once upon a time")?;
    let mut config = EngineConfig::new(loaded.limits, clock);
    let lost = |error: &std::io::Error| eprintln!("the recording ends: {error}");
    config.sinks.push(Box::new(FileSink::create(&path, BUFFER, &Header::default(), lost)?));
    let mut engine = Engine::new(loaded.runner, loaded.card, config);
    let mut answers = Vec::new();
    for _ in 0..4 {
        let request = GenerateRequest {
            prompt: prompt.clone(),
            max_tokens: Some(60),
            ignore_eos: true,
            ..GenerateRequest::default()
        };
        answers.push(engine.handle().submit(request)?);
    }
    while pollster::block_on(engine.step()) == Stepped::Ran {}
    // Dropping the engine writes what is left of the recording.
    drop(engine);

    // `fold` is the one meaning of the stream: any prefix of it gives the state at that moment.
    let mut picture = Picture::default();
    for stamped in Reader::new(BufReader::new(File::open(&path)?))? {
        let stamped = stamped?;
        fold(&mut picture, &stamped);
        let at = stamped.micros as f64 / 1000.0;
        match stamped.event {
            Event::SequenceAdmitted { sequence, slot, blocks, free, .. } => println!(
                "{at:9.2} ms  sequence {sequence} gets slot {slot}: {blocks} blocks of {free} free"
            ),
            Event::SequencePreempted { victim, gainer, lost, .. } => println!(
                "{at:9.2} ms  sequence {victim} makes room for {gainer} and loses {lost} tokens"
            ),
            Event::SequenceFinished { sequence, reason, generated, .. } => println!(
                "{at:9.2} ms  sequence {sequence} ends ({reason:?}, {generated} tokens), {} of {} \
                 blocks in use",
                picture.blocks.len() as u32 - picture.free_blocks(),
                picture.blocks.len()
            ),
            _ => {}
        }
    }
    let c = &picture.counters;
    println!(
        "{}: {} events, {} steps, {} tokens sampled, {} preemptions, {} tokens computed twice",
        path.display(),
        picture.seq,
        c.steps,
        c.sampled_tokens,
        c.preempted,
        c.lost_tokens
    );
    Ok(())
}
