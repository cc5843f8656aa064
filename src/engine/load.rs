//! Loading: weights' metadata → tokenizer, template, sizes; then the model onto the device and
//! the step budget measured on it.

use super::card::ModelCard;
use super::device_runner::DeviceRunner;
use super::runner_api::{RunError, Runner};
use super::sampling::{GenerateRequest, SamplingDefaults};
use crate::base::{Activations, BlockId, Clock, Invariance, KvType, Limits, LimitsError, TokenId};
use crate::model::{Batch, Budget, Model, ModelError, Options, Progress, Spec, self_check};
use crate::record::{Device, DeviceError, Facts, Recording};
use crate::sched::BlockSwap;
use crate::text::{
    ChatTemplate, ChosenTemplate, TemplateSources, TextError, Tokenizer, TokenizerExtra, Vocab,
    setting, token_ids,
};
use crate::trace::{Header, Made, Work};
use crate::weights::{GgufMeta, Meta, Weights, WeightsError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a model could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("{file}: {error}")]
    Text { file: String, error: TextError },
    /// A fault of this program, or of a library, that the file brought about.
    #[error("the model could not be loaded: {0} (a panic; its place is told above)")]
    Panicked(String),
    #[error("{file}: there is no tokenizer.json beside the weights")]
    NoTokenizer { file: String },
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Swap(#[from] RunError),
    #[error(
        "no room for one block of KV cache: a block of {block_size} tokens takes {bytes} bytes, \
         --kv-memory allows {allowed}"
    )]
    NoBlocks { block_size: u32, bytes: u64, allowed: u64 },
    #[error(transparent)]
    Limits(#[from] LimitsError),
}

/// What a user may choose; `None` is the default named at the field.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Positions per sequence; the model's own, as far as the pool holds them.
    pub context: Option<u32>,
    /// Sequences that run at once; 64.
    pub sequences: Option<u32>,
    /// Tokens per step; measured.
    pub step_tokens: Option<u32>,
    /// Bytes of KV cache; min(1 GiB, sequences × context).
    pub kv_memory: Option<u64>,
    /// How the KV cache is stored; f16, on software devices f32.
    pub kv: Option<KvType>,
    /// How products take what they read, where their formats let them choose.
    pub activations: Activations,
    /// Bytes of host memory for preempted sequences, taken as needed; as much as the KV cache, at
    /// most 1 GiB.
    pub swap_memory: Option<u64>,
    /// Steps in the air at once, 1 or 2; 1.
    pub steps_in_flight: Option<u32>,
    /// Tokens per KV block; 16.
    pub block_size: Option<u32>,
    /// The name it is served under; the file's.
    pub name: Option<String>,
    /// A chat template that replaces the model's own.
    pub template: Option<String>,
    /// Memory that may be used, where the device cannot say.
    pub memory: Option<u64>,
}

const KV_BYTES_DEFAULT: u64 = 1 << 30;
const SWAP_BYTES_DEFAULT: u64 = 1 << 30;
const SEQUENCES_DEFAULT: u32 = 64;
const BLOCK_SIZE_DEFAULT: u32 = 16;
const QUEUE_MAX: u32 = 1024;

/// Bounds of the measured step budget, and how long a step may take.
const STEP_TOKENS_MIN: u32 = 16;
const STEP_TOKENS_MAX: u32 = 2048;
const STEP_MICROS_MAX: u64 = 500_000;

/// Sizes decided before anything is uploaded.
#[derive(Clone, Debug)]
pub struct Sizes {
    pub spec: Spec,
    pub options: Options,
    pub budget: Budget,
}

impl Sizes {
    /// Decides the sizes of `weights` on a device with `facts`.
    pub fn choose(
        weights: &Weights,
        facts: &Facts,
        wanted: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let spec = Spec::read(weights)?;
        let block_size = wanted.block_size.unwrap_or(BLOCK_SIZE_DEFAULT).max(1);
        let sequences = wanted.sequences.unwrap_or(SEQUENCES_DEFAULT).max(1);
        let context = wanted.context.unwrap_or(spec.context).min(spec.context).max(1);
        let default = if facts.software() { KvType::F32 } else { KvType::F16 };
        let kv = wanted.kv.unwrap_or(default);
        let block_bytes = spec.kv_bytes_per_token(kv).saturating_mul(u64::from(block_size));
        let most = u64::from(context.div_ceil(block_size)) * u64::from(sequences);
        let full = most.saturating_mul(block_bytes);
        let allowed = wanted.kv_memory.unwrap_or(KV_BYTES_DEFAULT.min(full));
        // K and V of a layer are one binding each.
        let layer_block = spec.cache_bytes_per_token(kv) * u64::from(block_size);
        let bound = facts.binding_bytes_max.min(facts.buffer_bytes_max) / layer_block;
        // One more is made than the pool has, for padding.
        let bound = bound.min(u64::from(u32::MAX / block_size)).saturating_sub(1);
        let blocks = (allowed / block_bytes).min(bound);
        if blocks == 0 {
            return Err(LoadError::NoBlocks { block_size, bytes: block_bytes, allowed });
        }
        let blocks = blocks as u32;
        let context = context.min(blocks * block_size);
        // Scratch of a step must fit one binding as well.
        let widest = spec.widest_row().next_multiple_of(32);
        // Kernels count values in 32 bits.
        let binding = facts.binding_bytes_max.min(u64::from(u32::MAX));
        let fits = (binding / (u64::from(widest) * 4)).clamp(1, 1 << 20) as u32;
        let step_tokens_max = wanted
            .step_tokens
            .unwrap_or(STEP_TOKENS_MAX.min(context.next_power_of_two()))
            .clamp(1, fits)
            .max(sequences.min(fits));
        let options = Options {
            kv,
            activations: wanted.activations,
            block_size,
            blocks,
            step_tokens_max,
            sequences_max: sequences,
            context_max: context,
            memory_bytes: wanted.memory,
        };
        let budget = Model::budget(&spec, weights, &options, facts)?;
        Ok(Self { spec, options, budget })
    }

    /// What [`LoadOptions::kv_memory`] must allow for `blocks` blocks.
    pub fn kv_bytes(&self, blocks: u32) -> u64 {
        let tokens = u64::from(self.options.block_size) * u64::from(blocks);
        self.spec.kv_bytes_per_token(self.options.kv).saturating_mul(tokens)
    }
}

/// A model that is ready to run.
pub struct Loaded {
    pub runner: DeviceRunner,
    pub card: ModelCard,
    pub limits: Limits,
    /// What keys and values depend on beside tokens: the file, their type, and the whole spec.
    pub kv_identity: String,
    /// The steps that were measured: work and microseconds.
    pub measured: Vec<(Work, u64)>,
    /// Time of moving one block to host memory or back; 0 where that is off.
    pub block_picos: u64,
    /// Steps in the air at once.
    pub steps_in_flight: u32,
    /// Worth telling the operator.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// How an engine over it is made, for recordings.
    pub fn header(&self) -> Header {
        let measured = self.measured.iter();
        let made = Made {
            device: self.runner.facts().name.clone(),
            kv: Some(self.runner.kv()),
            activations: self.runner.activations(),
            invariance: self.runner.facts().invariance,
            measured: measured.map(|(work, micros)| (work.tokens, work.pairs, *micros)).collect(),
            block_picos: self.block_picos,
        };
        Header { model: self.card.name.clone(), engine: Some(made), ..Header::default() }
    }
}

/// As [`load_async`]; waits for the device.
#[cfg(not(target_arch = "wasm32"))]
pub fn load(
    weights: &Weights,
    device: Box<dyn Device>,
    sizes: &Sizes,
    wanted: &LoadOptions,
    clock: &dyn Clock,
    progress: Progress<'_>,
) -> Result<Loaded, LoadError> {
    pollster::block_on(load_async(weights, device, sizes, wanted, clock, progress))
}

/// Loads `weights` onto `device` with the sizes chosen.
pub async fn load_async(
    weights: &Weights,
    mut device: Box<dyn Device>,
    sizes: &Sizes,
    wanted: &LoadOptions,
    clock: &dyn Clock,
    progress: Progress<'_>,
) -> Result<Loaded, LoadError> {
    let mut warnings = Vec::new();
    let mut card = read_card(weights, sizes.spec.vocab, wanted, &mut warnings)?;
    card.tuned = device.facts().tuned.len() as u32;
    card.invariance = device.facts().invariance;
    let model = Model::load(weights, device.as_mut(), sizes.options, progress)?;
    card.products = model.activations();
    warn_of(&model, sizes, wanted.context, weights.name(), &mut warnings);
    self_check(&model, device.as_mut()).await?;
    let mut measured = Vec::new();
    let step_tokens_max = match wanted.step_tokens {
        Some(tokens) => tokens.min(model.options.step_tokens_max),
        None => measure_budget(&model, device.as_mut(), clock, &mut measured).await?,
    };
    let options = &model.options;
    let limits = Limits {
        sequences_max: options.sequences_max,
        step_tokens_max: step_tokens_max.max(1),
        block_size: options.block_size,
        blocks: options.blocks,
        context_max: options.context_max,
        queue_max: QUEUE_MAX,
        host_blocks: host_blocks(wanted.swap_memory, &model),
        window: model.spec.widest_window(),
        ..Limits::default()
    };
    limits.check()?;
    let mut runner = DeviceRunner::new(model, device);
    let block_picos = measure_swap(&mut runner, &limits, clock).await?;
    let (spec, kv) = (&runner.model().spec, runner.model().options.kv);
    let mut kv_identity = format!("{} {kv:?} {spec:?}", weights.name());
    if wanted.activations != Activations::F32 {
        kv_identity += &format!(" {:?}", wanted.activations);
    }
    if runner.facts().matrix_side > 0 {
        kv_identity += " matrix units";
    }
    if runner.facts().invariance == Invariance::Off {
        kv_identity += " invariance off";
    }
    Ok(Loaded {
        runner,
        card,
        limits,
        kv_identity,
        measured,
        block_picos,
        steps_in_flight: wanted.steps_in_flight.unwrap_or(1),
        warnings,
    })
}

/// What was asked for and cannot be, what the device had no room for, and what the file does not
/// hold.
fn warn_of(
    model: &Model,
    sizes: &Sizes,
    context: Option<u32>,
    file: &str,
    warnings: &mut Vec<String>,
) {
    if let Some(asked) = context.filter(|asked| *asked > sizes.options.context_max) {
        let own = model.spec.context;
        let why = match asked > own {
            true => format!("the {own} that the model was trained for"),
            false => {
                "the KV cache holds (--kv-memory makes it larger, as far as the device's buffers \
                      go)"
                .to_string()
            }
        };
        let most = model.options.context_max;
        warnings.push(format!(
            "--ctx-size asks for {asked} tokens, more than {why}; a sequence may have {most}"
        ));
    }
    if model.options.blocks < sizes.options.blocks {
        let mib = |blocks: u32| {
            let tokens = u64::from(blocks) * u64::from(model.options.block_size);
            (tokens * model.spec.kv_bytes_per_token(model.options.kv)) >> 20
        };
        warnings.push(format!(
            "the device has not the memory for {} MiB of KV cache; it holds {} MiB now, and a \
             sequence may have {} tokens (--kv-memory and --ctx-size choose other sizes)",
            mib(sizes.options.blocks),
            mib(model.options.blocks),
            model.options.context_max
        ));
    }
    if let Some(first) = model.blank.first() {
        let more = match model.blank.len() - 1 {
            0 => String::new(),
            more => format!(" (and of {more} more)"),
        };
        warnings.push(format!(
            "every byte of tensor `{first}`{more} is zero; is {file} a download that was not \
             finished?"
        ));
    }
}

fn host_blocks(bytes: Option<u64>, model: &Model) -> u32 {
    let most = model.options.blocks;
    match bytes {
        Some(bytes) => u32::try_from(bytes / model.block_bytes()).unwrap_or(u32::MAX),
        None => {
            u32::try_from(SWAP_BYTES_DEFAULT / model.block_bytes()).map_or(most, |b| b.min(most))
        }
    }
}

/// Moves a few blocks out and back, which changes nothing; picoseconds for each, one way.
async fn measure_swap(
    runner: &mut DeviceRunner,
    limits: &Limits,
    clock: &dyn Clock,
) -> Result<u64, LoadError> {
    let count = limits.host_blocks.min(limits.blocks).min(4);
    if count == 0 {
        return Ok(0);
    }
    let swaps: Vec<_> = (0..count).map(|n| BlockSwap { block: BlockId(n), host: n }).collect();
    let mut micros = 0;
    // The first time also makes what the device makes lazily.
    for _ in 0..2 {
        let start = clock.now_micros();
        runner.swap(&swaps, &swaps).await?;
        micros = clock.now_micros() - start;
    }
    Ok(micros.saturating_mul(1_000_000) / (2 * u64::from(count)))
}

/// The largest power of two whose measured prefill step stays under the time bound. The steps
/// write KV that nothing refers to.
async fn measure_budget(
    model: &Model,
    device: &mut dyn Device,
    clock: &dyn Clock,
    measured: &mut Vec<(Work, u64)>,
) -> Result<u32, LoadError> {
    let mut recording = Recording::default();
    let mut batch = Batch::default();
    let most = STEP_TOKENS_MAX.min(model.options.step_tokens_max).min(model.options.context_max);
    let mut time = async |tokens: u32| -> Result<u64, LoadError> {
        batch.clear();
        let table: Vec<u32> = (0..tokens.div_ceil(model.options.block_size)).collect();
        batch.push_row(&vec![0; tokens as usize], 0, &table);
        batch.samples.push((tokens - 1, Default::default()));
        model.record(&batch, &mut recording);
        let start = clock.now_micros();
        device.submit(&recording)?.await?;
        Ok(clock.now_micros() - start)
    };
    let mut best = STEP_TOKENS_MIN.min(most);
    // The first run also builds what the device builds lazily.
    time(1).await?;
    time(best).await?;
    let mut micros = time(best).await?;
    measured.push((Work::row(0, best), micros));
    while best * 2 <= most && micros * 2 < STEP_MICROS_MAX {
        micros = time(best * 2).await?;
        measured.push((Work::row(0, best * 2), micros));
        if micros >= STEP_MICROS_MAX {
            break;
        }
        best *= 2;
    }
    Ok(best)
}

/// Tokenizer, template and defaults of `weights`, whose logits have `vocab` rows.
pub fn read_card(
    weights: &Weights,
    vocab: u32,
    wanted: &LoadOptions,
    warnings: &mut Vec<String>,
) -> Result<ModelCard, LoadError> {
    let text = |error| LoadError::Text { file: weights.name().into(), error };
    let (tokenizer, ends, defaults) = match weights.meta() {
        Meta::Gguf(meta) => {
            let vocab = gguf_vocab(meta)?;
            if vocab.token_types.is_empty() {
                warnings.push(UNTYPED.to_string());
            }
            let tokenizer = Tokenizer::from_vocab(vocab).map_err(text)?;
            (tokenizer, Vec::new(), SamplingDefaults::default())
        }
        Meta::Hf(meta) => {
            let Some(json) = weights.side_file("tokenizer.json")? else {
                return Err(LoadError::NoTokenizer { file: weights.name().into() });
            };
            let config = weights.side_file("tokenizer_config.json")?;
            let mut extra = TokenizerExtra::from_config(config.as_deref()).map_err(text)?;
            extra.logit_rows = Some(vocab);
            let tokenizer = Tokenizer::from_json(&json, extra).map_err(text)?;
            let mut ends = token_ids(&meta.config, "config.json", "eos_token_id").map_err(text)?;
            let mut own = SamplingDefaults::default();
            if let Some(config) = &meta.generation {
                ends.extend(token_ids(config, GENERATION, "eos_token_id").map_err(text)?);
                own = defaults(config).map_err(text)?;
            }
            (tokenizer, ends, own)
        }
    };
    let mut stop_ids = tokenizer.stop_ids(&ends);
    for id in stop_ids.extract_if(.., |id| *id >= vocab) {
        warnings.push(format!(
            "eos_token_id {id} lies outside the vocabulary of {vocab} tokens, so it ends no answer"
        ));
    }
    let template = match template(weights, &tokenizer, wanted) {
        Ok(template) => template,
        Err(error) if wanted.template.is_some() => return Err(text(error)),
        Err(error) => {
            warnings.push(format!("{error}; chat is off, /v1/completions works"));
            None
        }
    };
    let name = wanted.name.clone().unwrap_or_else(|| short_name(weights.name()));
    let card = ModelCard {
        name,
        tokenizer: Arc::new(tokenizer),
        template,
        defaults,
        stop_ids,
        logit_rows: vocab,
        tuned: 0,
        invariance: Invariance::On,
        products: BTreeMap::new(),
    };
    if let Err(error) = GenerateRequest::default().sampling(&card) {
        warnings.push(format!("{GENERATION}: {error}; a request must say it, or is refused"));
    }
    Ok(card)
}

/// Said of a GGUF file whose tokens have no types.
const UNTYPED: &str = "tokenizer.ggml.token_type is missing: the tokens that ids such as \
    eos_token_id name, and those written <|like this|>, are taken for control tokens; any others \
    count as text";

const GENERATION: &str = "generation_config.json";

/// The last part of a path, without `.gguf`.
fn short_name(path: &str) -> String {
    let path = path.trim_end_matches(['/', '\\']);
    let last = path.rsplit(['/', '\\']).next().unwrap_or(path);
    last.strip_suffix(".gguf").or(last.strip_suffix(".safetensors")).unwrap_or(last).to_string()
}

/// The tokenizer as GGUF metadata holds it.
pub fn gguf_vocab(meta: &GgufMeta) -> Result<Vocab, WeightsError> {
    let own = |list: Option<Vec<&str>>| -> Vec<String> {
        list.unwrap_or_default().into_iter().map(str::to_string).collect()
    };
    let id = |key: &str| -> Result<Option<TokenId>, WeightsError> {
        let key = format!("tokenizer.ggml.{key}_token_id");
        // One id, or a list of equal ones, each an id.
        meta.find_u64(&key)?;
        Ok(meta.find_u32s(&key)?.and_then(|ids| ids.first().copied()))
    };
    let model = meta.str("tokenizer.ggml.model")?;
    // Phi 4 has the same architecture, with another vocabulary that does not.
    let markers_strip = model == "llama" && meta.architecture()? == "phi3";
    Ok(Vocab {
        markers_strip,
        model: model.to_string(),
        pre: meta.find_str("tokenizer.ggml.pre")?.map(str::to_string),
        tokens: own(Some(meta.strs("tokenizer.ggml.tokens")?)),
        token_types: meta.find_u32s("tokenizer.ggml.token_type")?.unwrap_or_default(),
        merges: own(meta.find_strs("tokenizer.ggml.merges")?),
        scores: meta.find_f32s("tokenizer.ggml.scores")?.unwrap_or_default(),
        bos: id("bos")?,
        eos: id("eos")?,
        eot: [id("eot")?, id("eom")?].into_iter().flatten().collect(),
        unk: id("unknown")?,
        pad: id("padding")?,
        add_bos: meta.find_bool("tokenizer.ggml.add_bos_token")?,
        add_eos: meta.find_bool("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: meta.find_bool("tokenizer.ggml.add_space_prefix")?,
    })
}

/// What generation_config.json says of sampling.
fn defaults(config: &Value) -> Result<SamplingDefaults, TextError> {
    let number = |key: &str| {
        setting(config, GENERATION, key, "a number", |v| v.as_f64().map(|number| number as f32))
    };
    // -1 stands for all of them in other programs, as 0 does here.
    let count = |v: &Value| match v.as_f64() {
        Some(-1.0) => Some(0),
        Some(k) if k >= 0.0 && k.fract() == 0.0 && k <= f64::from(u32::MAX) => Some(k as u32),
        _ => None,
    };
    let sampled = setting(config, GENERATION, "do_sample", "true or false", Value::as_bool)?;
    let temperature = number("temperature")?;
    Ok(SamplingDefaults {
        temperature: if sampled == Some(false) { Some(0.0) } else { temperature },
        top_k: setting(config, GENERATION, "top_k", "a count of tokens", count)?,
        top_p: number("top_p")?,
        min_p: number("min_p")?,
        repetition_penalty: number("repetition_penalty")?,
    })
}

fn template(
    weights: &Weights,
    tokenizer: &Tokenizer,
    wanted: &LoadOptions,
) -> Result<Option<ChatTemplate>, TextError> {
    let chosen = template_source(weights, wanted.template.as_deref())?;
    chosen.map(|chosen| tokenizer.template(&chosen.source)).transpose()
}

/// The chat template of `weights`, or `explicit` in its place, and where it was found.
pub fn template_source(
    weights: &Weights,
    explicit: Option<&str>,
) -> Result<Option<ChosenTemplate>, TextError> {
    let unread = |file, error: WeightsError| TextError::File { file, reason: error.to_string() };
    let jinja = "chat_template.jinja";
    let file = weights.side_file(jinja).map_err(|error| unread(jinja, error))?;
    let file = file.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mut sources =
        TemplateSources { explicit, jinja_file: file.as_deref(), ..TemplateSources::default() };
    match weights.meta() {
        Meta::Hf(meta) => sources.tokenizer_config = meta.tokenizer.as_ref(),
        Meta::Gguf(meta) => {
            let key = "tokenizer.chat_template";
            sources.gguf = meta.find_str(key).map_err(|error| unread(key, error))?;
        }
    }
    sources.choose(false)
}
