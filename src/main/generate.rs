//! `generate`: a prompt in, text out, through the same engine as the server.

use crate::cli::GenerateArgs;
use crate::model;
use anyhow::{Context, Result, bail};
use futures_util::future::{Either, select};
use std::io::{Read, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use tilewright::base::MonotonicClock;
use tilewright::engine::{DeviceRunner, Engine, EngineConfig, GenerateRequest, ModelCard, Output};
use tilewright::text::{Message, RenderOptions};

pub fn run(args: GenerateArgs) -> Result<ExitCode> {
    let loaded = model::ready(&args.model)?;
    let text = match args.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("standard input")?;
            text
        }
        text => text.to_string(),
    };
    let prompt = prompt(&loaded.card, &text, args.raw)?;
    let config = EngineConfig::new(loaded.limits, Arc::new(MonotonicClock::default()));
    let engine = Engine::new(loaded.runner, loaded.card, config);
    let request = GenerateRequest {
        prompt,
        max_tokens: args.max_tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        seed: Some(args.seed.unwrap_or_else(seed)),
        ..GenerateRequest::default()
    };
    pollster::block_on(write(engine, request))
}

/// A seed from the time, for requests that bring none.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.as_nanos() as u64)
}

fn prompt(card: &ModelCard, text: &str, raw: bool) -> Result<Vec<u32>> {
    let (Some(template), false) = (&card.template, raw) else {
        return Ok(card.tokenizer.encode_prompt(text));
    };
    let message = Message { role: "user".into(), content: text.into(), ..Message::default() };
    let options = RenderOptions {
        add_generation_prompt: true,
        now: Some((seed() / 1_000_000_000) as i64),
        ..RenderOptions::default()
    };
    Ok(card.tokenizer.encode_rendered(&template.render(&[message], &options)?))
}

async fn write(mut engine: Engine<DeviceRunner>, request: GenerateRequest) -> Result<ExitCode> {
    let mut generation = engine.handle().submit(request)?;
    let reading = async {
        let mut out = std::io::stdout().lock();
        while let Some(output) = generation.next().await {
            match output {
                Output::Token { text, .. } => {
                    out.write_all(text.as_bytes())?;
                    out.flush()?;
                }
                Output::Failed(error) => bail!("{error}"),
                Output::Started { .. } | Output::Finished { .. } => {}
            }
        }
        writeln!(out)?;
        Ok(ExitCode::SUCCESS)
    };
    match select(pin!(reading), pin!(engine.run())).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => bail!("the engine stopped before the text was complete"),
    }
}
