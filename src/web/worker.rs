//! The engine in a worker: one for the worker's life, turned on its event loop. Every wait is a
//! promise, so commands are heard between two steps.

use super::device;
use super::io::{self, JsSource, PerformanceClock};
use super::request;
use super::simulation;
use super::wire::{Asked, Code, Load, Phase, Ready, Status, Told};
use crate::base::{RequestId, TokenId};
use crate::engine::{
    DeviceRunner, Engine, EngineConfig, EngineHandle, EngineState, GenerateError, Generation,
    LoadError, LoadOptions, Output, SettingError, Sizes, SubmitError, load_async,
};
use crate::model::ModelError;
use crate::record::{DeviceError, DeviceKind};
use crate::text::Tokenizer;
use crate::trace::{Event, FinishReason, Sink, Stamped, write_line};
use crate::weights::{Source, Weights, WeightsError};
use js_sys::{Array, Function};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Once};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

/// Bytes of KV cache in a browser, where nobody says how much memory there is; on the processor
/// they are the module's own.
const KV_BYTES: u64 = 256 << 20;
const KV_BYTES_SOFTWARE: u64 = 48 << 20;
/// The longest file that the processor's device is given: all memory of a module is 4 GiB.
const PROCESSOR_BYTES_MAX: f64 = (1u64 << 31) as f64;
/// Sequences at once.
const SEQUENCES: u32 = 16;
/// Answers that may wait for the event loop; a step writes at most one a sequence.
const OUTPUTS: usize = 4096;

/// Files of a checkpoint's folder beside the weights. Only the first must be there.
const SIDE_FILES: [&str; 5] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
];
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

struct Running {
    handle: EngineHandle,
    /// The callers' numbers of what is open.
    open: BTreeMap<u32, RequestId>,
}

fn running<T>(act: impl FnOnce(&mut Running) -> T) -> Option<T> {
    RUNNING.with_borrow_mut(|running| running.as_mut().map(act))
}

pub fn tell(told: &Told) {
    tell_with(told, None);
}

pub fn tell_with(told: &Told, bytes: Option<Vec<u8>>) {
    // A message of plain data can always be written.
    io::tell_page(&serde_json::to_string(told).unwrap_or_default(), bytes);
}

/// Takes one message of the page. `files` are the files that a [`Load`] without address brings.
#[wasm_bindgen]
pub fn receive(text: &str, files: Array) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            // A line: some places that show it have no more room.
            let message = panic.to_string().replace('\n', " ");
            tell(&Told::Failed { code: Code::Internal, message });
        }));
    });
    match serde_json::from_str::<Asked>(text) {
        Ok(Asked::Load(load)) => spawn_local(live(load, files)),
        Ok(Asked::Simulate { wished }) => simulation::answer(&wished, &files),
        Ok(asked) => obey(asked),
        Err(error) => tell(&Told::Problem { message: format!("a message was not read: {error}") }),
    }
}

fn obey(asked: Asked) {
    if let Asked::Submit { id, request } = asked {
        return submit(id, &request);
    }
    let done = running(|running| match asked {
        Asked::Cancel { id } => {
            if let Some(request) = running.open.get(&id) {
                running.handle.cancel(*request);
            }
        }
        Asked::Hold { hold } => running.handle.hold(hold),
        Asked::StepOnce => running.handle.step_once(),
        Asked::Limits { limits } => problem(running.handle.set_limits(limits)),
        Asked::Policies { policies } => problem(running.handle.set_policies(policies)),
        Asked::Status => spawn_local(status(running.handle.clone())),
        Asked::Load(_) | Asked::Submit { .. } | Asked::Simulate { .. } => {}
    });
    if done.is_none() {
        tell(&Told::Problem { message: "there is no engine yet".to_string() });
    }
}

fn problem(done: Result<(), SettingError>) {
    if let Err(error) = done {
        tell(&Told::Problem { message: error.to_string() });
    }
}

/// Makes the engine and turns it to its end.
async fn live(load: Load, files: Array) {
    let (mut engine, ready) = match build(&load, &files).await {
        Ok(made) => made,
        Err((code, message)) => return tell(&Told::Failed { code, message }),
    };
    let handle = engine.handle();
    RUNNING.set(Some(Running { handle: handle.clone(), open: BTreeMap::new() }));
    tell(&Told::Ready(Box::new(ready)));
    spawn_local(tell_held(handle.clone()));
    engine.run(|micros| io::sleep(micros as f64 / 1000.0)).await;
    let message = match handle.status().state {
        EngineState::Failed(why) => why.to_string(),
        _ => "it was stopped".to_string(),
    };
    RUNNING.set(None);
    tell(&Told::Failed { code: Code::Engine, message });
}

/// Tells when the engine is held or let go.
async fn tell_held(handle: EngineHandle) {
    let (mut status, mut last) = (handle.watch(), false);
    while status.changed().await.is_ok() {
        let held = status.borrow_and_update().held;
        if held != last {
            last = held;
            tell(&Told::Held { held });
        }
    }
}

async fn status(handle: EngineHandle) {
    let Some(checked) = handle.check().await else { return };
    let now = checked.status;
    tell(&Told::Status(Status {
        open: now.open,
        running: now.running,
        waiting: now.waiting,
        blocks_used: now.blocks_used,
        blocks_cached: now.blocks_cached,
        blocks_total: now.blocks_total,
        steps: now.steps as f64,
        tokens_generated: now.tokens_generated as f64,
        fault: checked.fault,
        memory_bytes: io::memory_bytes(),
    }));
}

type Failure = (Code, String);

async fn build(load: &Load, files: &Array) -> Result<(Engine<DeviceRunner>, Ready), Failure> {
    let device = device::open(load.device).await;
    let (device, fallback) = device.map_err(|message| (Code::NoWebgpu, message))?;
    let facts = device.facts().clone();
    let most = if facts.kind == DeviceKind::Cpu { PROCESSOR_BYTES_MAX } else { f64::INFINITY };
    let weights = weights(load, files, most).await?;
    let mut options = LoadOptions {
        context: load.context,
        sequences: load.sequences.or(Some(SEQUENCES)),
        step_tokens: load.step_tokens,
        kv_memory: Some(if facts.software() { KV_BYTES_SOFTWARE } else { KV_BYTES }),
        // What a module once has of memory it never gives back: blocks are computed again.
        swap_memory: Some(0),
        name: load.name.clone(),
        ..LoadOptions::default()
    };
    let mut sizes = Sizes::choose(&weights, &facts, &options).map_err(told)?;
    if let Some(blocks) = load.blocks {
        options.kv_memory = Some(sizes.kv_bytes(blocks));
        sizes = Sizes::choose(&weights, &facts, &options).map_err(told)?;
    }
    let file = weights.name().to_string();
    let mut progress = |loaded: u64, total: u64| {
        let (loaded, total) = (loaded as f64, total as f64);
        tell(&Told::Progress { phase: Phase::Upload, file: file.clone(), loaded, total });
    };
    let clock = PerformanceClock;
    let loaded = load_async(&weights, device, &sizes, &options, &clock, &mut progress).await;
    let loaded = loaded.map_err(told)?;
    let header = loaded.header();
    for warning in loaded.warnings {
        tell(&Told::Problem { message: warning });
    }
    let mut config = EngineConfig::new(loaded.limits, Arc::new(PerformanceClock));
    config.seed = io::wall_millis();
    config.measured = loaded.measured;
    config.kv_identity = loaded.kv_identity;
    config.block_picos = loaded.block_picos;
    config.policies = load.policies;
    config.output_buffer = OUTPUTS;
    // Blocks show their text, and a what-if finds the same prefixes.
    config.record_requests = load.events;
    if load.events {
        config.sinks.push(Box::new(Post::new(loaded.card.tokenizer.clone())));
    }
    let ready = Ready {
        model: loaded.card.name.clone(),
        device: facts.name,
        backend: facts.backend,
        fallback,
        chat: loaded.card.template.is_some(),
        context: loaded.limits.context_max,
        limits: loaded.limits,
        header,
    };
    Ok((Engine::new(loaded.runner, loaded.card, config), ready))
}

fn told(error: LoadError) -> Failure {
    let code = match &error {
        LoadError::Device(error) | LoadError::Model(ModelError::Device(error)) => match error {
            DeviceError::OutOfMemory { .. } | DeviceError::TooLarge { .. } => Code::Memory,
            _ => Code::Engine,
        },
        _ => Code::Model,
    };
    (code, error.to_string())
}

fn weights_error(error: WeightsError) -> Failure {
    (Code::Model, error.to_string())
}

type Files = Vec<(String, Arc<dyn Source>)>;

/// Opens what the address names, or the files that came along.
async fn weights(load: &Load, files: &Array, most: f64) -> Result<Weights, Failure> {
    let Some(url) = &load.url else {
        let found: Files = files.iter().map(|file| given(&file)).collect();
        let name = found.first().map_or("", |(name, _)| name.as_str()).to_string();
        return Weights::from_files(load.name.as_deref().unwrap_or(&name), found)
            .map_err(weights_error);
    };
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let place = Place { store: load.store, most };
    // A file of a folder names its folder.
    let base = match path.rsplit_once('/') {
        Some((base, file)) if file.ends_with(".json") || file.ends_with(".safetensors") => base,
        _ => path.trim_end_matches('/'),
    };
    let last = base.rsplit('/').next().unwrap_or(base);
    let single = last.ends_with(".gguf");
    let found = if single {
        vec![fetch(url, last, &place).await?.ok_or_else(|| missing(url))?]
    } else {
        folder_files(base, &place).await?
    };
    let address = |(file, _): &(String, _)| match single {
        true => url.clone(),
        false => format!("{base}/{file}"),
    };
    let addresses: Vec<String> = found.iter().map(address).collect();
    let name = load.name.as_deref().unwrap_or(last);
    match Weights::from_files(name, found) {
        Ok(weights) => Ok(weights),
        Err(error) => {
            // What cannot be opened must not be found again by the next load.
            for address in &addresses {
                io::forget(address).await;
            }
            Err(weights_error(error))
        }
    }
}

/// How files are fetched.
struct Place {
    /// Weights are kept for the next time.
    store: bool,
    /// Bytes of a file.
    most: f64,
}

/// A file of the person's machine.
fn given(file: &JsValue) -> (String, Arc<dyn Source>) {
    let name = io::name_of(file);
    (name.clone(), Arc::new(JsSource::new(io::open_file(file), name)))
}

fn missing(url: &str) -> Failure {
    (Code::Network, format!("{url} is not there"))
}

/// The files of a checkpoint in the folder at `base`.
async fn folder_files(base: &str, place: &Place) -> Result<Files, Failure> {
    let beside = &Place { store: false, ..*place };
    let mut files = Files::new();
    for file in SIDE_FILES {
        let url = format!("{base}/{file}");
        match fetch(&url, file, beside).await? {
            Some(found) => files.push(found),
            None if file == SIDE_FILES[0] => return Err(missing(&url)),
            None => {}
        }
    }
    if let Some(found) = fetch(&format!("{base}/{WEIGHTS}"), WEIGHTS, place).await? {
        files.push(found);
        return Ok(files);
    }
    let url = format!("{base}/{INDEX}");
    let index = fetch(&url, INDEX, beside).await?.ok_or_else(|| missing(&url))?;
    let mut bytes = vec![0; index.1.len() as usize];
    index.1.read(0, &mut bytes).map_err(weights_error)?;
    let map: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|e| (Code::Model, format!("{url}: {e}")))?;
    files.push(index);
    let map = map.get("weight_map").and_then(|map| map.as_object()).into_iter().flatten();
    let shards: BTreeSet<&str> = map.filter_map(|(_, shard)| shard.as_str()).collect();
    for shard in shards {
        let url = format!("{base}/{shard}");
        files.push(fetch(&url, shard, place).await?.ok_or_else(|| missing(&url))?);
    }
    Ok(files)
}

async fn fetch(
    url: &str,
    name: &str,
    place: &Place,
) -> Result<Option<(String, Arc<dyn Source>)>, Failure> {
    let file = name.to_string();
    let progress = Closure::<dyn FnMut(f64, f64)>::new(move |loaded, total| {
        tell(&Told::Progress { phase: Phase::Download, file: file.clone(), loaded, total });
    });
    let note =
        Closure::<dyn FnMut(String)>::new(|message: String| tell(&Told::Problem { message }));
    let (progress, note): (&Function, &Function) =
        (progress.as_ref().unchecked_ref(), note.as_ref().unchecked_ref());
    let opened = io::open_url(url, place.store, place.most, progress, note).await;
    let opened = opened.map_err(|e| (Code::Network, io::thrown(&e)))?;
    let source =
        |file: f64| -> Arc<dyn Source> { Arc::new(JsSource::new(file as u32, name.to_string())) };
    Ok(opened.as_f64().map(|file| (name.to_string(), source(file))))
}

fn submit(id: u32, request: &Value) {
    let handle = running(|running| running.handle.clone());
    let Some(handle) = handle else {
        let message = "there is no engine".to_string();
        return tell(&Told::Refused { id, message, param: None });
    };
    let taken = request::read(request, handle.card()).and_then(|request| {
        handle.submit_choices(request).map_err(|error| match error {
            SubmitError::Invalid(error) => (error.to_string(), Some(error.field.to_string())),
            other => (other.to_string(), None),
        })
    });
    match taken {
        Ok(generations) => {
            if let Some(first) = generations.first() {
                running(|running| running.open.insert(id, first.id()));
            }
            spawn_local(answer(id, generations, handle.card().tokenizer.clone()));
        }
        Err((message, param)) => tell(&Told::Refused { id, message, param }),
    }
}

/// Tells what comes back, all choices at once, to the end.
async fn answer(id: u32, generations: Vec<Generation>, tokenizer: Arc<Tokenizer>) {
    let tokenizer = &tokenizer;
    let each = generations.into_iter().enumerate().map(|(index, mut generation)| async move {
        while let Some(output) = generation.next().await {
            if let Some(message) = message(id, index as u32, generation.id(), output, tokenizer) {
                tell(&message);
            }
        }
    });
    futures_util::future::join_all(each).await;
    running(|running| running.open.remove(&id));
}

fn message(
    id: u32,
    index: u32,
    request: RequestId,
    output: Output,
    tokenizer: &Tokenizer,
) -> Option<Told> {
    Some(match output {
        Output::Started { prompt_tokens, .. } if index == 0 => {
            Told::Started { id, request, prompt_tokens }
        }
        Output::Started { .. } | Output::Scored(_) | Output::Pooled(_) => return None,
        Output::Token { id: token, text, logprobs, end } => {
            let logprob = logprobs.as_ref().map(|l| l.chosen);
            let top = logprobs.map(|l| l.top).unwrap_or_default();
            let named = |(id, logprob)| (id, tokenizer.token_text(id), logprob);
            let top = top.into_iter().map(named).collect();
            Told::Token { id, index, token, text, end, logprob, top }
        }
        Output::Finished { reason, usage } => Told::Finished {
            id,
            index,
            reason,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
        },
        Output::Failed(GenerateError::Cancelled) => Told::Finished {
            id,
            index,
            reason: FinishReason::Cancelled,
            prompt_tokens: 0,
            completion_tokens: 0,
            cached_tokens: 0,
        },
        Output::Failed(error) => Told::Refused { id, message: error.to_string(), param: None },
    })
}

/// Collects the trace's lines and posts them when the engine waits: twice a step.
struct Post {
    lines: Rc<RefCell<Vec<u8>>>,
    tokenizer: Arc<Tokenizer>,
    named: BTreeSet<TokenId>,
}

impl Post {
    fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { lines: Rc::default(), tokenizer, named: BTreeSet::new() }
    }
}

impl Sink for Post {
    fn push(&mut self, stamped: &Stamped) {
        if let Event::TokenSampled { token, .. } = stamped.event
            && self.named.insert(token)
        {
            tell(&Told::Words { words: vec![(token, self.tokenizer.token_text(token))] });
        }
        let mut lines = self.lines.borrow_mut();
        if lines.is_empty() {
            let lines = self.lines.clone();
            spawn_local(async move { tell_with(&Told::Events, Some(lines.take())) });
        }
        // Memory takes everything.
        let _ = write_line(&mut *lines, stamped);
    }
}
