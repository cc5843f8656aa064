//! Where the requests of a simulation come from: a file of arrivals, whichever of the known kinds
//! it is, or a seeded generator.

use crate::cli::count;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use tilewright::base::Limits;
use tilewright::engine::{LoadOptions, fable, read_card};
use tilewright::sim::{
    Arrival, Lengths, Recorded, Workload, at_rate, azure_csv, mooncake_jsonl, share_gpt,
};
use tilewright::trace::{Header, Reader, Slo, Stamped, unpacked};

#[derive(Args, Clone)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// File of requests, plain or gzip: a recording, lines of the Azure LLM traces (CSV) or of
    /// Mooncake's (JSON, with its prefix hashes), or conversations as ShareGPT has them [default:
    /// generated].
    #[arg(long, value_name = "FILE", env = "TILEWRIGHT_ARRIVALS")]
    pub arrivals: Option<PathBuf>,
    /// Requests to run [default: 1000, all of a file].
    #[arg(long, value_name = "N", value_parser = count, env = "TILEWRIGHT_REQUESTS")]
    pub requests: Option<u32>,
    /// Requests a second; `inf` has all come at the start. Those of a file keep their pattern, or
    /// get one if all come at once [default: 10, a file's own].
    #[arg(long, value_name = "N", value_parser = rate, env = "TILEWRIGHT_RATE")]
    pub rate: Option<f64>,
    /// Standard deviation over mean of the time between two requests: 1 is Poisson, more comes in
    /// bursts, 0 in equal distances.
    #[arg(long, value_name = "CV", default_value_t = 1.0, env = "TILEWRIGHT_BURSTINESS")]
    pub burstiness: f64,
    /// Requests open at once at most; others come when one has ended [default: no bound].
    #[arg(long, value_name = "N", value_parser = count, env = "TILEWRIGHT_CONCURRENCY")]
    pub concurrency: Option<u32>,
    /// Tokens of a prompt, its shared prefix aside: mean of lognormal lengths.
    #[arg(long, value_name = "TOKENS", default_value_t = 256.0, env = "TILEWRIGHT_PROMPT_MEAN")]
    pub prompt_mean: f64,
    /// Their standard deviation over mean.
    #[arg(long, value_name = "CV", default_value_t = 1.0, env = "TILEWRIGHT_PROMPT_CV")]
    pub prompt_cv: f64,
    /// Their maximum.
    #[arg(long, value_name = "TOKENS", default_value = "4096", value_parser = count)]
    #[arg(env = "TILEWRIGHT_PROMPT_MAX")]
    pub prompt_max: u32,
    /// Tokens of an answer: mean of lognormal lengths.
    #[arg(long, value_name = "TOKENS", default_value_t = 64.0, env = "TILEWRIGHT_OUTPUT_MEAN")]
    pub output_mean: f64,
    /// Their standard deviation over mean.
    #[arg(long, value_name = "CV", default_value_t = 1.0, env = "TILEWRIGHT_OUTPUT_CV")]
    pub output_cv: f64,
    /// Their maximum, which is what requests ask for.
    #[arg(long, value_name = "TOKENS", default_value = "1024", value_parser = count)]
    #[arg(env = "TILEWRIGHT_OUTPUT_MAX")]
    pub output_max: u32,
    /// Different shared prefixes, one of which every prompt begins with.
    #[arg(long, value_name = "N", default_value_t = 0, env = "TILEWRIGHT_PREFIXES")]
    pub prefixes: u32,
    /// Tokens of each.
    #[arg(long, value_name = "TOKENS", default_value_t = 512, env = "TILEWRIGHT_PREFIX_TOKENS")]
    pub prefix_tokens: u32,
    /// Tenants that the requests are of, in equal shares.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    #[arg(env = "TILEWRIGHT_TENANTS")]
    pub tenants: u32,
    /// Same seed, same requests.
    #[arg(long, value_name = "SEED", default_value_t = 0, env = "TILEWRIGHT_SEED")]
    pub seed: u64,
}

/// Sizes of a simulated engine.
#[derive(Args, Clone)]
#[command(next_help_heading = "Engine")]
pub struct SizeArgs {
    /// Sequences that run at once [default: a recording's own, else 256].
    #[arg(long, visible_alias = "parallel", value_name = "N", value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_NUM_SEQS")]
    pub max_num_seqs: Option<u32>,
    /// Tokens computed per step [default: a recording's own, else 2048].
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    #[arg(env = "TILEWRIGHT_MAX_NUM_BATCHED_TOKENS")]
    pub max_num_batched_tokens: Option<u32>,
    /// KV blocks of the pool [default: a recording's own, else what is free of 80 GB].
    #[arg(long, value_name = "N", value_parser = count, env = "TILEWRIGHT_KV_BLOCKS")]
    pub kv_blocks: Option<u32>,
    /// Positions per sequence, prompt and output [default: a recording's own, else 8192].
    #[arg(short, long, alias = "max-model-len", value_name = "TOKENS", value_parser = count)]
    #[arg(env = "TILEWRIGHT_CTX_SIZE")]
    pub ctx_size: Option<u32>,
}

impl SizeArgs {
    pub fn apply(&self, limits: &mut Limits) {
        for (asked, field) in [
            (self.max_num_seqs, &mut limits.sequences_max),
            (self.max_num_batched_tokens, &mut limits.step_tokens_max),
            (self.kv_blocks, &mut limits.blocks),
            (self.ctx_size, &mut limits.context_max),
        ] {
            *field = asked.unwrap_or(*field);
        }
    }
}

/// Bounds of a good request.
#[derive(Args, Clone)]
#[command(next_help_heading = "Goals")]
pub struct GoalArgs {
    /// Milliseconds to the first token within which a request counts as good [default: any].
    #[arg(long, value_name = "MS", env = "TILEWRIGHT_SLO_TTFT")]
    pub slo_ttft: Option<f64>,
    /// Milliseconds a token after the first within which a request counts as good [default: any].
    #[arg(long, value_name = "MS", env = "TILEWRIGHT_SLO_TPOT")]
    pub slo_tpot: Option<f64>,
}

impl GoalArgs {
    pub fn slo(&self) -> Slo {
        let micros = |ms: f64| (ms * 1e3).max(0.0) as u64;
        Slo { ttft_micros: self.slo_ttft.map(micros), tpot_micros: self.slo_tpot.map(micros) }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|v| *v > 0.0);
    value.ok_or_else(|| "expected a number above 0, such as 2.5, or inf".into())
}

impl WorkloadArgs {
    /// The requests, in order of time.
    pub fn arrivals(&self) -> Result<Box<dyn Iterator<Item = Arrival>>> {
        let Some(path) = &self.arrivals else {
            let lengths = |mean, cv, max| Lengths { mean, cv, max };
            let workload = Workload {
                requests: u64::from(self.requests.unwrap_or(1000)),
                rate: self.rate.unwrap_or(10.0),
                burstiness: self.burstiness,
                prompt: lengths(self.prompt_mean, self.prompt_cv, self.prompt_max),
                output: lengths(self.output_mean, self.output_cv, self.output_max),
                prefixes: self.prefixes,
                prefix_tokens: self.prefix_tokens,
                tenants: self.tenants,
                seed: self.seed,
            };
            return Ok(Box::new(workload.generator()?));
        };
        let mut arrivals = read_arrivals(path, None)?;
        arrivals.truncate(self.requests.map_or(usize::MAX, |n| n as usize));
        if let Some(rate) = self.rate {
            let (burstiness, seed) = (self.burstiness, self.seed);
            at_rate(&mut arrivals, &Workload { rate, burstiness, seed, ..Workload::default() })?;
        }
        Ok(Box::new(arrivals.into_iter()))
    }
}

/// What a file begins with tells its kind. Conversations are counted in `words`, or else in tokens
/// of Fable's vocabulary.
pub fn read_arrivals(path: &Path, words: Option<fn(&str) -> u32>) -> Result<Vec<Arrival>> {
    let read = || -> Result<_> {
        let mut text = String::new();
        unpacked(File::open(path)?)?.read_to_string(&mut text)?;
        let first = text.lines().next().unwrap_or_default();
        if serde_json::from_str::<Header>(first).is_ok() {
            let events: Vec<Stamped> =
                Reader::new(BufReader::new(text.as_bytes()))?.collect::<Result<_, _>>()?;
            return Ok(Recorded::read(&events, 0)?.arrivals);
        }
        match (text.trim_start().as_bytes().first(), words) {
            (Some(b'['), Some(words)) => Ok(share_gpt(&text, &words)?),
            (Some(b'['), None) => {
                let weights = fable()?;
                let card = read_card(&weights, u32::MAX, &LoadOptions::default(), &mut Vec::new())?;
                let tokens = |text: &str| {
                    card.tokenizer.encode(text).expect("Fable spells any text").len() as u32
                };
                Ok(share_gpt(&text, &tokens)?)
            }
            (Some(b'{'), _) => Ok(mooncake_jsonl(&text)?),
            (Some(_), _) => Ok(azure_csv(&text)?),
            (None, _) => bail!("the file is empty"),
        }
    };
    read().with_context(|| path.display().to_string())
}

/// A recording as a workload, what its header tells included, and its stream.
pub fn read_recorded(path: &Path) -> Result<(Recorded, Vec<Stamped>)> {
    let (header, events) = read_recording(path)?;
    let recorded = Recorded::read(&events, header.block_picos());
    Ok((recorded.with_context(|| path.display().to_string())?, events))
}

/// Refuses an `--out` that is one of the files that are read.
pub fn apart<'a>(out: &Path, read: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let place = |path: &Path| path.canonicalize().ok();
    let same = |path: &&Path| place(out).is_some_and(|out| place(path) == Some(out));
    match read.into_iter().find(same) {
        Some(path) => bail!("--out {}: is {} itself, which is read", out.display(), path.display()),
        None => Ok(()),
    }
}

/// A recording, whole.
pub fn read_recording(path: &Path) -> Result<(Header, Vec<Stamped>)> {
    let read = || -> Result<_> {
        let mut reader = Reader::new(unpacked(File::open(path)?)?)?;
        let events = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
        Ok((reader.header().clone(), events))
    };
    read().with_context(|| path.display().to_string())
}
