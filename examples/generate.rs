//! A prompt in, text out, streamed: the whole engine in one thread, on the best adapter.
//!
//! `cargo run --release --example generate -- "What is the capital of France?" [MODEL]`

use futures_util::FutureExt;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tilewright::base::MonotonicClock;
use tilewright::cpu::CpuDevice;
use tilewright::engine::{
    Engine, EngineConfig, GenerateRequest, LoadOptions, Output, Sizes, Stepped, fable, load,
};
use tilewright::gpu::{Gpu, Options};
use tilewright::record::Device;
use tilewright::text::{Message, RenderOptions};
use tilewright::weights::Weights;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let question = args.next().unwrap_or("What is the capital of France?".into());
    let weights = match args.next() {
        Some(path) => Weights::open(Path::new(&path))?,
        None => fable()?,
    };

    // Any `Device` will do: WGSL on the best adapter, or plain Rust where there is none.
    let device: Box<dyn Device> = match pollster::block_on(Gpu::open(&Options::default())) {
        Ok(gpu) => Box::new(gpu),
        Err(why) => {
            eprintln!("{why}; using the processor");
            Box::new(CpuDevice::default())
        }
    };
    eprintln!("{} on {}", weights.name(), device.facts().name);

    // Sizes are decided, and refused with figures, before anything is uploaded.
    let options = LoadOptions { sequences: Some(1), ..LoadOptions::default() };
    let sizes = Sizes::choose(&weights, device.facts(), &options)?;
    let clock = Arc::new(MonotonicClock::default());
    let loaded = load(&weights, device, &sizes, &options, clock.as_ref(), &mut |_, _| {})?;

    // The model's own chat template around the question; plain text where there is none.
    let tokenizer = loaded.card.tokenizer.clone();
    let prompt = match &loaded.card.template {
        Some(template) => {
            let how = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
            let rendered = template.render(&[Message::new("user", question)], &how)?;
            tokenizer.encode_rendered(&rendered)?
        }
        None => tokenizer.encode_prompt(&question)?,
    };

    let config = EngineConfig::new(loaded.limits, clock);
    let mut engine = Engine::new(loaded.runner, loaded.card, config);
    let request = GenerateRequest { prompt, temperature: Some(0.0), ..GenerateRequest::default() };
    let mut generation = engine.handle().submit(request)?;
    // The loop is ours: one call, one step of the device, then read what came of it.
    loop {
        let stepped = pollster::block_on(engine.step());
        while let Some(Some(output)) = generation.next().now_or_never() {
            match output {
                Output::Token { text, .. } => print!("{text}"),
                Output::Finished { reason, usage } => {
                    println!("\n({reason:?}, {} tokens)", usage.completion_tokens);
                    return Ok(());
                }
                Output::Failed(why) => return Err(why.into()),
                _ => {}
            }
            std::io::stdout().flush()?;
        }
        if stepped != Stepped::Ran {
            return Err("the engine ended before the answer".into());
        }
    }
}
