//! The command line, as the user wrote it.

#[cfg(feature = "server")]
use crate::log::LogFormat;
use crate::session::RecordArgs;
use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use tilewright::base::{Activations, Invariance, KvType};
#[cfg(feature = "server")]
use tilewright::server::WebOrigin;
#[cfg(feature = "server")]
use tilewright::text::CallStyle;

/// Portable LLM inference: continuous batching and paged KV on any GPU, and why a token was late.
#[derive(Parser)]
#[command(version, about, max_term_width = 100, args_override_self = true)]
#[command(after_help = "A file of flags: --config FILE (TOML), or TILEWRIGHT_CONFIG.")]
pub struct Cli {
    /// List the adapters of this machine, for --adapter, and end.
    #[arg(long, global = true, alias = "list-devices")]
    pub list_adapters: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Serve the OpenAI-compatible API over HTTP.
    #[cfg(feature = "server")]
    #[command(after_help = "Example: tilewright serve -m model.gguf --port 8080")]
    Serve(ServeArgs),
    /// Write a continuation of a prompt to standard output.
    #[command(after_help = "Example: tilewright generate \"What is the capital of France?\"")]
    Generate(GenerateArgs),
    /// Talk with a model in the terminal.
    #[command(after_help = "Example: tilewright chat --system \"Answer in one word.\"")]
    Chat(ChatArgs),
    /// Look at a recording, a preset or a server, in the window or as a picture.
    #[cfg(feature = "viewer")]
    #[command(after_help = "Examples:\n  tilewright view run.jsonl\n  tilewright view \
        http://127.0.0.1:8080\n  tilewright view --preset overload --screenshot blocks.png \
        --view blocks --at 40")]
    View(ViewArgs),
    /// Show what a model's files hold: shape, tensors, tokenizer, chat template.
    #[command(after_help = "Example: tilewright inspect model.gguf --json")]
    Inspect(InspectArgs),
    /// Show adapters, limits, features and which kernel variants would run.
    Doctor(DoctorArgs),
    /// Compare a model's logits with reference logits; exits 1 beyond the tolerance.
    #[command(after_help = "Example: tilewright verify -m folder --golden golden.safetensors")]
    Verify(VerifyArgs),
    /// Compare a model's answers on a text with a reference's, or under another KV type.
    #[command(after_help = "Example: tilewright quality -m small.gguf --against large.gguf")]
    Quality(QualityArgs),
    /// Write a Hugging Face folder as a GGUF file, or a GGUF file as a folder.
    #[command(after_help = "Example: tilewright convert folder model.gguf --quantize q8_0")]
    Convert(ConvertArgs),
    /// Run a workload through the same scheduler and engine loop with modelled step times.
    #[command(after_help = "Examples:\n  tilewright sim --rate 20 --batching static:8\n  \
        tilewright sim --arrivals trace.csv --out run.jsonl && tilewright view run.jsonl")]
    Sim(crate::sim::SimArgs),
    /// Run a recording again and name the first step that comes out otherwise.
    #[command(after_help = "Example: tilewright replay run.jsonl -m model.gguf")]
    Replay(ReplayArgs),
    /// Simulate a recording's requests under other policies, side by side with its own.
    #[command(after_help = "Example: tilewright what-if run.jsonl --batching static:8")]
    WhatIf(crate::what_if::WhatIfArgs),
    /// Measure speed, and run the literature's claims.
    #[command(subcommand)]
    Bench(Bench),
    /// Measure once which kernels serve a model's products best here; later starts use them.
    #[command(after_help = "Example: tilewright tune -m model.gguf")]
    Tune(crate::tune::TuneArgs),
    /// Write completions of commands and flags for a shell.
    #[command(
        after_help = "Example: tilewright completions bash > /etc/bash_completion.d/tilewright"
    )]
    Completions(CompletionsArgs),
}

#[derive(Args)]
pub struct ReplayArgs {
    /// Recording made with --record, plain or gzip; sizes of the engine are the recording's.
    pub file: PathBuf,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    /// Model that made it: `fable` (built in), a .gguf file, a Hugging Face folder or a
    /// .safetensors file.
    #[arg(short, long, default_value = "fable", env = "TILEWRIGHT_MODEL", help_heading = "Model")]
    pub model: String,
    /// Quantise float weights to this format while loading [default: as stored].
    #[arg(long, alias = "quantise", value_name = "FORMAT", value_parser = ["q8_0", "q4_0"])]
    #[arg(env = "TILEWRIGHT_QUANTIZE", help_heading = "Model")]
    pub quantize: Option<String>,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Subcommand)]
pub enum Bench {
    /// Prompt processing and generation speed of a model at several batch sizes.
    #[command(after_help = "Example: tilewright bench model -m model.gguf --batch 1,16")]
    Model(BenchModelArgs),
    /// Speed of single kernels beside what the device can do at most.
    #[command(after_help = "Example: tilewright bench kernels --rows 4096 --cols 4096")]
    Kernels(crate::bench_kernels::BenchKernelsArgs),
    /// Where the time of a decode step goes.
    #[command(after_help = "Example: tilewright bench step -m model.gguf --batch 1,32")]
    Step(crate::bench_step::BenchStepArgs),
    /// Load any server of the OpenAI API: throughput, latencies, goodput.
    #[command(
        after_help = "Example: tilewright bench serve http://127.0.0.1:8421 --request-rate 4 \
        --goodput ttft:500 --result run.json --plot run.svg"
    )]
    Serve(crate::bench_serve::BenchServeArgs),
    /// Run every claim and write one page with plots, each beside its claim.
    #[command(after_help = "Example: tilewright bench all --quick --out report.html")]
    All(crate::claim_args::ReportArgs),
    #[command(flatten)]
    Claim(crate::claim_args::ClaimCommand),
}

/// Where the model runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DeviceChoice {
    /// The best GPU; the processor if there is none, or only software that imitates one.
    Auto,
    /// An adapter, or an error.
    Gpu,
    /// Plain Rust on the processor.
    Cpu,
}

#[derive(Args, Clone)]
pub struct DeviceArgs {
    /// Where to run.
    #[arg(long, value_enum, default_value = "auto", env = "TILEWRIGHT_DEVICE")]
    #[arg(help_heading = "Device")]
    pub device: DeviceChoice,
    /// Adapter to use: a number of `doctor`'s list, or part of a name [default: the best].
    #[arg(long, value_name = "N|NAME", env = "TILEWRIGHT_ADAPTER", help_heading = "Device")]
    pub adapter: Option<String>,
    /// Compile shaders with bounds checks [default: false].
    #[arg(long, env = "TILEWRIGHT_CHECKED", help_heading = "Device", value_parser = switch())]
    pub checked_shaders: bool,
    /// Multiply on the matrix units of the adapter, in half precision, where they pass a test: for
    /// GPUs; no GPU has measured them yet [default: false].
    #[arg(long, env = "TILEWRIGHT_MATRIX_UNITS", help_heading = "Device", value_parser = switch())]
    pub matrix_units: bool,
    /// on: a request's numbers are the same alone and among others, bit for bit. off: kernels whose
    /// sums depend on the size of a step may run where they are faster, and answers may depend on
    /// company.
    #[arg(long, value_name = "on|off", default_value_t = Invariance::On)]
    #[arg(env = "TILEWRIGHT_INVARIANCE", help_heading = "Device")]
    pub invariance: Invariance,
    /// Time every kernel launch, for the trace and the window; steps take longer [default: false].
    #[arg(long, env = "TILEWRIGHT_KERNEL_TIMES", help_heading = "Device", value_parser = switch())]
    pub kernel_times: bool,
    /// Leave what `tune` measured aside [default: false].
    #[arg(long, env = "TILEWRIGHT_NO_TUNE", help_heading = "Device", value_parser = switch())]
    pub no_tune: bool,
    /// Folder for compiled pipelines and what `tune` measured [default: tilewright in the user's
    /// cache folder].
    #[arg(long, value_name = "DIR", env = "TILEWRIGHT_CACHE_DIR", help_heading = "Device")]
    pub cache_dir: Option<PathBuf>,
}

#[derive(Args, Clone)]
pub struct ModelArgs {
    /// Model: `fable` (built in), a .gguf file, a Hugging Face folder, a .safetensors file, or
    /// hf:USER/REPO[:QUANT] to fetch one.
    #[arg(short, long, default_value = "fable", env = "TILEWRIGHT_MODEL", help_heading = "Model")]
    pub model: String,
    /// Name under which the model is served [default: the file's].
    #[arg(long, short = 'a', alias = "alias", value_name = "NAME")]
    #[arg(env = "TILEWRIGHT_SERVED_MODEL_NAME", help_heading = "Model")]
    pub served_model_name: Option<String>,
    /// File with a chat template (Jinja) in place of the model's [default: the model's own].
    #[arg(long, alias = "chat-template-file", value_name = "FILE")]
    #[arg(env = "TILEWRIGHT_CHAT_TEMPLATE", help_heading = "Model")]
    pub chat_template: Option<PathBuf>,
    /// Quantise float weights to this format while loading [default: as stored].
    #[arg(long, alias = "quantise", value_name = "FORMAT", value_parser = ["q8_0", "q4_0"])]
    #[arg(env = "TILEWRIGHT_QUANTIZE", help_heading = "Model")]
    pub quantize: Option<String>,
    /// Positions per sequence, prompt and output [default: the model's].
    #[arg(short, long, aliases = ["max-model-len", "max-seq-len"], value_name = "TOKENS")]
    #[arg(value_parser = count)]
    #[arg(env = "TILEWRIGHT_CTX_SIZE", help_heading = "Scheduling")]
    pub ctx_size: Option<u32>,
    /// Sequences that run at once [default: 64].
    #[arg(long, visible_alias = "parallel", value_name = "N", value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_NUM_SEQS", help_heading = "Scheduling")]
    pub max_num_seqs: Option<u32>,
    /// Tokens computed per step [default: the largest power of two from 16 to 2048 whose measured
    /// step stays under 500 ms].
    #[arg(short = 'b', long, alias = "batch-size", value_name = "TOKENS", value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_NUM_BATCHED_TOKENS", help_heading = "Scheduling")]
    pub max_num_batched_tokens: Option<u32>,
    /// Memory for the KV cache, such as 512MiB [default: 1GiB, or less if all sequences fit].
    #[arg(long, alias = "kv-cache-memory-bytes", value_name = "BYTES", value_parser = bytes)]
    #[arg(env = "TILEWRIGHT_KV_MEMORY", help_heading = "Scheduling")]
    pub kv_memory: Option<u64>,
    /// How the KV cache is stored: f32, f16, or q8 (8 bits with a scale per token and head)
    /// [default: f16, f32 on software adapters and on the processor].
    #[arg(long, alias = "kv-cache-dtype", value_name = "TYPE", env = "TILEWRIGHT_KV_DTYPE")]
    #[arg(help_heading = "Scheduling")]
    pub kv_dtype: Option<KvType>,
    /// How matrix products take their activations: f32, or int8 (bytes with a scale per 32 values,
    /// where the weights' format has such a product; answers change a little).
    #[arg(long, value_name = "TYPE", default_value_t = Activations::F32)]
    #[arg(env = "TILEWRIGHT_ACTIVATIONS", help_heading = "Model")]
    pub activations: Activations,
    /// Host memory that preempted sequences may be moved to, such as 512MiB; 0: they are computed
    /// again [default: as much as the KV cache, at most 1GiB].
    #[arg(long, value_name = "BYTES", value_parser = bytes_or_none)]
    #[arg(env = "TILEWRIGHT_SWAP_MEMORY", help_heading = "Scheduling")]
    pub swap_memory: Option<u64>,
    /// Steps in the air at once, 1 or 2; with 2 the next one is planned while the device runs the
    /// one before it, which changes no output while --invariance is on.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=2))]
    #[arg(env = "TILEWRIGHT_STEPS_IN_FLIGHT", help_heading = "Scheduling")]
    pub steps_in_flight: u32,
    /// Tokens per KV block.
    #[arg(long, value_name = "TOKENS", default_value = "16", value_parser = ["16", "32"])]
    #[arg(env = "TILEWRIGHT_BLOCK_SIZE", help_heading = "Scheduling")]
    pub block_size: String,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
pub struct ConvertArgs {
    /// Model to read: `fable`, a .gguf file, a Hugging Face folder or a .safetensors file.
    pub source: String,
    /// What to write, new: a name that ends in `.gguf`, or a folder.
    pub target: PathBuf,
    /// Quantise float weights to this format [default: as stored].
    #[arg(long, alias = "quantise", value_name = "FORMAT", value_parser = ["q8_0", "q4_0"])]
    #[arg(env = "TILEWRIGHT_QUANTIZE")]
    pub quantize: Option<String>,
}

#[cfg(feature = "server")]
#[derive(Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1", env = "TILEWRIGHT_HOST", help_heading = "Server")]
    pub host: String,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8421, env = "TILEWRIGHT_PORT", help_heading = "Server")]
    pub port: u16,
    /// Keys that clients must bring (`Authorization: Bearer KEY`), separated by commas
    /// [default: none needed].
    #[arg(long, value_delimiter = ',', value_name = "KEY", hide_env_values = true)]
    #[arg(env = "TILEWRIGHT_API_KEY", help_heading = "Server")]
    pub api_key: Vec<String>,
    /// File with such keys, one a line [default: none].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_API_KEY_FILE", help_heading = "Server")]
    pub api_key_file: Option<PathBuf>,
    /// Origins that browsers may call from, separated by commas [default: none].
    #[arg(long, alias = "allowed-origins", value_delimiter = ',', value_name = "ORIGIN")]
    #[arg(env = "TILEWRIGHT_CORS_ORIGINS", help_heading = "Server")]
    #[arg(value_parser = crate::serve::origin)]
    pub cors_origins: Vec<Option<WebOrigin>>,
    /// Render requests with the `chat_template` they bring [default: false].
    #[arg(long, env = "TILEWRIGHT_TRUST_REQUEST_CHAT_TEMPLATE", help_heading = "Server")]
    #[arg(value_parser = switch())]
    pub trust_request_chat_template: bool,
    /// Let clients change policies and limits while requests run: POST /v1/engine/policies
    /// [default: false].
    #[arg(long, env = "TILEWRIGHT_ALLOW_CONTROL", help_heading = "Server")]
    #[arg(value_parser = switch())]
    pub allow_control: bool,
    /// How the model writes calls of tools: hermes, llama3_json or mistral [default: as its chat
    /// template does].
    #[arg(long, value_name = "STYLE", value_parser = call_style)]
    #[arg(env = "TILEWRIGHT_TOOL_CALL_PARSER", help_heading = "Server")]
    pub tool_call_parser: Option<CallStyle>,
    /// What is done with `<think>` in answers: auto tells it apart as reasoning_content, none
    /// leaves it in the text.
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = ["auto", "none"])]
    #[arg(env = "TILEWRIGHT_REASONING_FORMAT", help_heading = "Server")]
    pub reasoning_format: String,
    /// A folder made by `web/build`: its page is served at / and watches this server
    /// [default: none].
    #[arg(long, value_name = "DIR", value_parser = page_folder)]
    #[arg(env = "TILEWRIGHT_PAGE", help_heading = "Server")]
    pub page: Option<PathBuf>,
    /// How log lines look.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    #[arg(env = "TILEWRIGHT_LOG_FORMAT", help_heading = "Server")]
    pub log_format: LogFormat,
    /// What is logged: off, error, warn, info, debug or trace; for http or tilewright alone too,
    /// as in info,http=off.
    #[arg(long, alias = "uvicorn-log-level", default_value = "info", value_name = "LEVEL")]
    #[arg(env = "TILEWRIGHT_LOG_LEVEL", help_heading = "Server", value_parser = crate::log::levels)]
    pub log_level: tracing_subscriber::filter::Targets,
    #[command(flatten)]
    pub policies: crate::policies::PolicyArgs,
    #[command(flatten)]
    pub record: RecordArgs,
}

#[derive(Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Tokens to write at most [default: until the context is full].
    #[arg(short = 'n', long, aliases = ["predict", "n-predict"], value_name = "TOKENS")]
    #[arg(value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_TOKENS")]
    pub max_tokens: Option<u32>,
    /// Randomness from 0 to 2; 0 takes the most likely token [default: the model's, else 1].
    #[arg(long, alias = "temp", value_name = "T", env = "TILEWRIGHT_TEMPERATURE")]
    pub temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all [default: the model's, else 0].
    #[arg(long, value_name = "K", env = "TILEWRIGHT_TOP_K")]
    pub top_k: Option<u32>,
    /// Keep the most likely tokens up to this probability in all, 0 to 1 [default: the model's,
    /// else 1].
    #[arg(long, value_name = "P", env = "TILEWRIGHT_TOP_P")]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this share of the most likely one, 0 to 1 [default: the
    /// model's, else 0].
    #[arg(long, value_name = "P", env = "TILEWRIGHT_MIN_P")]
    pub min_p: Option<f32>,
    /// Divide the logits of tokens seen before; 1 changes nothing [default: the model's, else 1].
    #[arg(long, alias = "repeat-penalty", value_name = "X")]
    #[arg(env = "TILEWRIGHT_REPETITION_PENALTY")]
    pub repetition_penalty: Option<f32>,
    /// Same seed, same text: a number below 2^64 [default: from the time].
    #[arg(long, value_name = "SEED", env = "TILEWRIGHT_SEED")]
    pub seed: Option<u64>,
    /// Text that ends the answer, up to 4 times [default: none].
    #[arg(long, value_name = "TEXT", env = "TILEWRIGHT_STOP")]
    pub stop: Vec<String>,
}

#[derive(Args)]
pub struct GenerateArgs {
    /// The prompt; `-` reads standard input.
    pub prompt: String,
    /// Continue the text as it is, without the chat template [default: false].
    #[arg(long, env = "TILEWRIGHT_RAW", value_parser = switch())]
    pub raw: bool,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub record: RecordArgs,
}

#[derive(Args)]
pub struct ChatArgs {
    /// System message that opens the conversation [default: the chat template's, if it has one].
    #[arg(long, value_name = "TEXT", env = "TILEWRIGHT_SYSTEM")]
    pub system: Option<String>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub record: RecordArgs,
}

/// The colours of a picture.
#[cfg(feature = "viewer")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ViewTheme {
    Dark,
    Light,
}

#[cfg(feature = "viewer")]
#[derive(Args)]
pub struct ViewArgs {
    /// Recording made with --record, plain or gzip, or the address of a server, http://HOST:PORT
    /// [default: none, an engine with the model].
    #[arg(value_name = "FILE|URL")]
    pub file: Option<PathBuf>,
    /// Key of the server at the address [default: none].
    #[arg(long, value_name = "KEY", env = "TILEWRIGHT_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Run this scene: four-users, shared-prefix, overload, long-prompt-stall, static-batches or
    /// continuous-batches [default: none].
    #[arg(long, value_name = "NAME", env = "TILEWRIGHT_PRESET", conflicts_with = "file")]
    pub preset: Option<String>,
    /// Draw to this PNG file in place of a window [default: a window].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_SCREENSHOT", help_heading = "Pictures")]
    pub screenshot: Option<PathBuf>,
    /// Step to draw [default: the last].
    #[arg(long, value_name = "STEP", env = "TILEWRIGHT_AT", help_heading = "Pictures")]
    pub at: Option<u64>,
    /// View to draw: all, slots, blocks, timeline, steps, queue, counters, text, chats, kernels,
    /// why or what-if [default: all].
    #[arg(long, value_name = "NAME", env = "TILEWRIGHT_VIEW", help_heading = "Pictures")]
    pub view: Option<String>,
    /// Size of the picture in points.
    #[arg(long, value_name = "WxH", default_value = "1280x720", value_parser = size)]
    #[arg(env = "TILEWRIGHT_SIZE", help_heading = "Pictures")]
    pub size: (u32, u32),
    /// Pixels per point, 0.5 to 4.
    #[arg(long, value_name = "X", default_value = "1", value_parser = scale)]
    #[arg(env = "TILEWRIGHT_SCALE", help_heading = "Pictures")]
    pub scale: f32,
    /// Colours of the picture.
    #[arg(long, value_enum, default_value = "dark", env = "TILEWRIGHT_THEME")]
    #[arg(help_heading = "Pictures")]
    pub theme: ViewTheme,
    /// Write the events (.jsonl), the steps (.csv) or a timeline for ui.perfetto.dev (.json) to
    /// this file [default: nothing].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_EXPORT", help_heading = "Pictures")]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub record: RecordArgs,
}

#[derive(Args)]
pub struct InspectArgs {
    /// Model: `fable` (built in), a .gguf file, a Hugging Face folder or a .safetensors file.
    #[arg(default_value = "fable", env = "TILEWRIGHT_MODEL")]
    pub model: String,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
}

#[derive(Args)]
pub struct DoctorArgs {
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
pub struct VerifyArgs {
    /// Model: `fable` (built in), a .gguf file, a Hugging Face folder or a .safetensors file; no
    /// tokenizer is needed.
    #[arg(short, long, default_value = "fable", env = "TILEWRIGHT_MODEL")]
    pub model: String,
    /// Safetensors file with `input_ids` and reference `logits`.
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_GOLDEN")]
    pub golden: PathBuf,
    /// Largest difference of a logit that passes.
    #[arg(long, default_value_t = 1e-3, value_name = "T", env = "TILEWRIGHT_TOLERANCE")]
    pub tolerance: f32,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
pub struct QualityArgs {
    /// Model that is judged: `fable` (built in), a .gguf file, or a Hugging Face folder.
    #[arg(short, long, default_value = "fable", env = "TILEWRIGHT_MODEL")]
    pub model: String,
    /// Reference model with the same vocabulary [default: the same model].
    #[arg(long, value_name = "MODEL", env = "TILEWRIGHT_AGAINST")]
    pub against: Option<String>,
    /// How the judged model stores keys and values: f32, f16 or q8; the reference has f32
    /// [default: f32].
    #[arg(long, value_name = "TYPE", env = "TILEWRIGHT_KV_DTYPE")]
    pub kv_dtype: Option<KvType>,
    /// How the judged model's products take their activations: f32 or int8; the reference takes
    /// f32.
    #[arg(long, value_name = "TYPE", default_value_t = Activations::F32)]
    #[arg(env = "TILEWRIGHT_ACTIVATIONS")]
    pub activations: Activations,
    /// Text to predict [default: 450 words that come with the program].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_TEXT")]
    pub text: Option<PathBuf>,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
pub struct BenchModelArgs {
    /// Prompt lengths.
    #[arg(long, default_value = "128,512", value_delimiter = ',', value_name = "TOKENS")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_PROMPT")]
    pub prompt: Vec<u32>,
    /// Tokens generated per sequence.
    #[arg(long, default_value = "64", value_name = "TOKENS")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_GENERATE")]
    pub generate: u32,
    /// Tokens in the cache before each test.
    #[arg(long, default_value = "0", value_delimiter = ',', value_name = "TOKENS")]
    #[arg(env = "TILEWRIGHT_BENCH_DEPTH")]
    pub depth: Vec<u32>,
    /// Sequences that generate together.
    #[arg(long, default_value = "1,8,32", value_delimiter = ',', value_name = "N")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_BATCH")]
    pub batch: Vec<u32>,
    /// Counted runs of each test, after one that is not counted.
    #[arg(short, long, default_value = "3", value_name = "N")]
    #[arg(value_parser = count, env = "TILEWRIGHT_BENCH_RUNS")]
    pub runs: u32,
    /// Print JSON [default: false].
    #[arg(long, env = "TILEWRIGHT_JSON", value_parser = switch())]
    pub json: bool,
    #[command(flatten)]
    pub shape: crate::shape_args::ShapeArgs,
    #[command(flatten)]
    pub model: ModelArgs,
}

#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell: bash, elvish, fish, powershell or zsh.
    pub shell: clap_complete::Shell,
}

#[cfg(feature = "server")]
fn call_style(text: &str) -> Result<CallStyle, String> {
    let found = CallStyle::ALL.into_iter().find(|(name, _)| *name == text);
    let names = CallStyle::ALL.map(|(name, _)| name).join(", ");
    found.map(|(_, style)| style).ok_or_else(|| format!("expected one of {names}"))
}

/// How a switch reads its variable: 1, true, yes, on, and their opposites.
pub fn switch() -> BoolishValueParser {
    BoolishValueParser::new()
}

/// A folder that holds the page.
#[cfg(feature = "server")]
fn page_folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    match folder.join("index.html").is_file() {
        true => Ok(folder),
        false => Err("has no index.html; `web/build` makes such a folder".into()),
    }
}

/// A count above 0, with `k` for 1024 and `m` for its square: 32k, 1.5k.
pub fn count(text: &str) -> Result<u32, String> {
    let wrong = || "expected a number from 1, such as 512 or 32k".to_string();
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1024.0),
        Some((at, 'm' | 'M')) => (&text[..at], 1024.0 * 1024.0),
        _ => (text, 1.0),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || (b == b'.' && unit > 1.0));
    let value = digits.parse::<f64>().ok().filter(|_| plain).map(|v| v * unit);
    let value = value.filter(|v| *v >= 1.0 && *v <= f64::from(u32::MAX) && v.fract() == 0.0);
    value.map(|v| v as u32).ok_or_else(wrong)
}

/// Bytes with an optional unit: 512MiB, 2GiB, 1000000.
fn bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kib" => 1 << 10,
        "kb" => 1000,
        "m" | "mib" => 1 << 20,
        "mb" => 1_000_000,
        "g" | "gib" => 1 << 30,
        "gb" => 1_000_000_000,
        _ => return Err("expected bytes, such as 512MiB or 2GiB".into()),
    };
    let value = number.parse::<f64>().ok().map(|v| v * factor as f64);
    let value = value.filter(|v| *v >= 1.0 && *v < 1e18);
    value.map(|v| v as u64).ok_or_else(|| "expected bytes, such as 512MiB or 2GiB".into())
}

/// The same, or 0.
fn bytes_or_none(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { bytes(text) }
}

/// Width and height: 1280x720.
#[cfg(feature = "viewer")]
fn size(text: &str) -> Result<(u32, u32), String> {
    let side = |text: &str| text.parse::<u32>().ok().filter(|v| (16..=8192).contains(v));
    let sides = text.split_once('x').and_then(|(w, h)| Some((side(w)?, side(h)?)));
    sides.ok_or_else(|| "expected a size such as 1280x720, each side 16 to 8192".into())
}

#[cfg(feature = "viewer")]
fn scale(text: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|v| (0.5..=4.0).contains(v));
    value.ok_or_else(|| "expected a number from 0.5 to 4".into())
}
