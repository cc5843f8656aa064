//! An engine turned by the face that uses it, one request at a time: for commands that answer one
//! person. (`serve` gives the engine a thread of its own.)

use crate::cli::{ModelArgs, SamplingArgs};
use crate::usage::Usage;
use crate::{log, model};
use anyhow::{Context, Result, bail};
use clap::Args;
use futures_util::FutureExt;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tilewright::base::MonotonicClock;
use tilewright::engine::{
    DeviceRunner, Engine, EngineConfig, GenerateRequest, InvalidField, Loaded, ModelCard, Output,
    Stepped,
};
use tilewright::text::{ChatTemplate, Message, RenderOptions};
use tilewright::trace::{FileSink, FinishReason};

/// Events a recording may hold back while the disk is slow.
const RECORD_BUFFER: usize = 1 << 16;

#[derive(Args, Clone)]
pub struct RecordArgs {
    /// Record every event of the engine to this file, as JSON lines [default: not recorded].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_RECORD", help_heading = "Recording")]
    pub record: Option<PathBuf>,
    /// Why the recording is not whole.
    #[arg(skip)]
    pub lost: Arc<OnceLock<String>>,
}

/// A seed from the time, for requests that bring none.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.as_nanos() as u64)
}

/// The engine over a loaded model, recording if asked to; `adjust` has the last word.
pub fn engine(
    mut loaded: Loaded,
    record: &RecordArgs,
    adjust: impl FnOnce(&mut EngineConfig),
) -> Result<Engine<DeviceRunner>> {
    let header = loaded.header();
    let mut config = EngineConfig::new(loaded.limits, Arc::new(MonotonicClock::default()));
    config.seed = seed();
    config.measured = std::mem::take(&mut loaded.measured);
    config.kv_identity = std::mem::take(&mut loaded.kv_identity);
    config.block_picos = loaded.block_picos;
    config.steps_in_flight = loaded.steps_in_flight;
    if let Some(path) = &record.record {
        config.record_requests = true;
        let name = format!("--record {}", path.display());
        let (lost, told) = (record.lost.clone(), name.clone());
        let lost = move |error: &std::io::Error| {
            let told = format!("{told}: {error}; the recording ends before that");
            log::line(format_args!("{told}"));
            // Nothing else sets it.
            let _ = lost.set(told);
        };
        let sink = FileSink::create(path, RECORD_BUFFER, &header, lost).context(name)?;
        config.sinks.push(Box::new(sink));
    }
    adjust(&mut config);
    Ok(Engine::new(loaded.runner, loaded.card, config))
}

/// Whether everything was recorded that was to be; asked once the engine is gone.
pub fn recorded(record: &RecordArgs) -> Result<()> {
    record.lost.get().map_or(Ok(()), |why| bail!("{why}"))
}

/// A request with these parameters; the rest is the model's default.
pub fn request(args: &SamplingArgs, prompt: Vec<u32>) -> GenerateRequest {
    GenerateRequest {
        prompt,
        max_tokens: args.max_tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repetition_penalty,
        seed: args.seed,
        stop: args.stop.clone(),
        ..GenerateRequest::default()
    }
}

/// What no model can be asked for, before one is loaded.
pub fn check(args: &SamplingArgs) -> Result<()> {
    request(args, Vec::new()).check().map_err(|InvalidField { field, message }| {
        Usage(format!("--{}: {message}", field.replace('_', "-"))).into()
    })
}

/// The conversation as the model reads it.
pub fn render(card: &ModelCard, template: &ChatTemplate, turns: &[Message]) -> Result<Vec<u32>> {
    let options = RenderOptions {
        add_generation_prompt: true,
        now: i64::try_from(seed() / 1_000_000_000).ok(),
        ..RenderOptions::default()
    };
    let rendered = template.render(turns, &options).context("the chat template")?;
    Ok(card.tokenizer.encode_rendered(&rendered)?)
}

/// A finished answer.
pub struct Answer {
    pub text: String,
    pub reason: FinishReason,
}

pub struct Session {
    engine: Engine<DeviceRunner>,
    pub card: Arc<ModelCard>,
}

impl Session {
    pub fn open(model: &ModelArgs, record: &RecordArgs) -> Result<Self> {
        let engine = engine(model::ready(model)?, record, |_| {})?;
        let card = engine.handle().card().clone();
        Ok(Self { engine, card })
    }

    /// Runs `request` to its end, or until `stopped` says so, and writes its text as it comes.
    pub fn answer(
        &mut self,
        request: GenerateRequest,
        out: &mut dyn Write,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Answer> {
        let mut generation = self.engine.handle().submit(request)?;
        let mut answer = Answer { text: String::new(), reason: FinishReason::Cancelled };
        // Turned step by step: an engine left to run would not yield before the end.
        while !stopped() {
            let stepped = pollster::block_on(self.engine.step());
            while let Some(Some(output)) = generation.next().now_or_never() {
                match output {
                    Output::Token { text, .. } => {
                        answer.text.push_str(&text);
                        out.write_all(text.as_bytes())?;
                        out.flush()?;
                    }
                    Output::Finished { reason, .. } => return Ok(Answer { reason, ..answer }),
                    Output::Failed(error) => return Err(error.into()),
                    Output::Started { .. } | Output::Scored(_) | Output::Pooled(_) => {}
                }
            }
            if stepped != Stepped::Ran {
                bail!("the engine ended before the answer was complete");
            }
        }
        // The next step sees that the generation is gone and frees its blocks.
        Ok(answer)
    }
}
