//! Six prompts, three slots: continuous batching, one line per step. A sequence that ends leaves
//! its slot to the next one in the queue; nobody waits for the longest of a batch.
//!
//! `cargo run --release --example batch`

use futures_util::FutureExt;
use std::error::Error;
use std::sync::Arc;
use tilewright::base::MonotonicClock;
use tilewright::cpu::CpuDevice;
use tilewright::engine::{
    Engine, EngineConfig, GenerateRequest, LoadOptions, Output, Sizes, Stepped, fable, load,
};
use tilewright::record::Device;
use tilewright::text::{Message, RenderOptions};

const PROMPTS: [&str; 6] = [
    "What is the capital of France?",
    "Tell me a story about a shy fox named Mia.",
    "What sound does a cow make?",
    "Spell the word basket.",
    "What is 7 plus 5?",
    "Count from 3 to 9.",
];
const SLOTS: u32 = 3;
/// Characters shown of each slot's text.
const WIDTH: usize = 28;

fn main() -> Result<(), Box<dyn Error>> {
    let (weights, device) = (fable()?, Box::new(CpuDevice::default()));
    let options = LoadOptions { sequences: Some(SLOTS), ..LoadOptions::default() };
    let sizes = Sizes::choose(&weights, device.facts(), &options)?;
    let clock = Arc::new(MonotonicClock::default());
    let loaded = load(&weights, device, &sizes, &options, clock.as_ref(), &mut |_, _| {})?;

    let template = loaded.card.template.as_ref().ok_or("Fable has a chat template")?;
    let how = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let encode = |text: &str| {
        let rendered = template.render(&[Message::new("user", text)], &how)?;
        Ok(loaded.card.tokenizer.encode_rendered(&rendered)?)
    };
    let prompts: Result<Vec<_>, Box<dyn Error>> = PROMPTS.into_iter().map(encode).collect();
    let config = EngineConfig::new(loaded.limits, clock);
    let mut engine = Engine::new(loaded.runner, loaded.card, config);
    let handle = engine.handle();
    let (mut open, mut texts) = (Vec::new(), vec![String::new(); PROMPTS.len()]);
    for prompt in prompts? {
        let request = GenerateRequest { prompt, max_tokens: Some(40), ..Default::default() };
        open.push(handle.submit(request)?);
    }

    // The loop is ours: one call, one step of the device.
    while pollster::block_on(engine.step()) == Stepped::Ran {
        for (generation, text) in open.iter_mut().zip(&mut texts) {
            while let Some(Some(output)) = generation.next().now_or_never() {
                match output {
                    Output::Token { text: piece, .. } => text.push_str(&piece),
                    Output::Failed(why) => return Err(why.into()),
                    _ => {}
                }
            }
        }
        let state = engine.scheduler().snapshot();
        let slots: Vec<String> = (0..SLOTS)
            .map(|slot| match state.running.iter().find(|s| s.slot == Some(slot)) {
                None => format!("{:WIDTH$}", "-"),
                Some(s) => {
                    let all = texts[s.request.index()].replace('\n', " ");
                    let from = all.chars().count().saturating_sub(WIDTH - 3);
                    let tail: String = all.chars().skip(from).collect();
                    format!("#{} {tail:width$}", s.request, width = WIDTH - 3)
                }
            })
            .collect();
        let (step, waiting) = (handle.status().steps, state.waiting.len());
        println!("{step:3} | {} | {waiting} waiting", slots.join(" | "));
    }
    println!();
    for (prompt, text) in PROMPTS.iter().zip(texts) {
        println!("{prompt}\n  {}", text.trim());
    }
    Ok(())
}
