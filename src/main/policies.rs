//! The flags of the scheduling policies: one for each axis of `base::Policies`.

use crate::usage::Usage;
use anyhow::{Context, Result};
use clap::Args;
use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::str::FromStr;
use tilewright::base::{
    Admission, Batching, Limits, Order, Policies, Preemption, Prefill, PrefixCache, Speculate,
    Victim,
};

/// Every choice of the scheduler.
#[derive(Args, Clone)]
#[command(next_help_heading = "Policies")]
pub struct PolicyArgs {
    /// When sequences join: continuous (in any step), static:SIZE (together, padded, until the
    /// last ends) or dynamic:SIZE:MILLISECONDS (the same once SIZE wait or the first waited so
    /// long).
    #[arg(long, default_value_t = Policies::default().batching, env = "TILEWRIGHT_BATCHING")]
    #[arg(value_name = "POLICY", value_parser = Batching::from_str)]
    pub batching: Batching,
    /// What goes first in a step: prefill-first (whole prompts, decoding waits), decode-first
    /// (prompts wait) or chunked (decoding, then pieces of prompts).
    #[arg(long, default_value_t = Policies::default().prefill, env = "TILEWRIGHT_PREFILL")]
    #[arg(value_name = "POLICY", value_parser = Prefill::from_str)]
    pub prefill: Prefill,
    /// Milliseconds that a step in which somebody decodes should take at most: each step's token
    /// budget is chosen for it from measured steps [default: no target].
    #[arg(long, value_name = "MS", value_parser = millis, env = "TILEWRIGHT_ITL_TARGET")]
    pub itl_target: Option<u32>,
    /// Whom memory lets in: conservative (prompt and longest output of all fit together),
    /// optimistic (what is known fits and a share stays free), exact-peak (the highest point of
    /// all outputs fits) or quantile:PERCENT (the same with lengths learned).
    #[arg(long, default_value_t = Policies::default().admission, env = "TILEWRIGHT_ADMISSION")]
    #[arg(value_name = "POLICY", value_parser = Admission::from_str)]
    pub admission: Admission,
    /// Share of the KV blocks that optimistic admission keeps free, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = permille)]
    #[arg(env = "TILEWRIGHT_WATERMARK")]
    pub watermark: u32,
    /// Whether prompts use blocks that hold the same tokens already: on or off.
    #[arg(long, default_value_t = Policies::default().prefix_cache, value_name = "POLICY")]
    #[arg(env = "TILEWRIGHT_PREFIX_CACHE", value_parser = PrefixCache::from_str)]
    pub prefix_cache: PrefixCache,
    /// Whether answers are guessed ahead where they repeat what prompt or answer said before: off,
    /// ngram or ngram:TOKENS:MIN:MAX. A step checks all guesses at once; no answer changes while
    /// --invariance is on. Simulations guess nothing.
    #[arg(long, default_value_t = Policies::default().speculate, value_name = "POLICY")]
    #[arg(env = "TILEWRIGHT_SPECULATE", value_parser = Speculate::from_str)]
    pub speculate: Speculate,
    /// Most tokens guessed in a step, with --speculate ngram; after wrong guesses it is fewer for a
    /// while [default: 4].
    #[arg(long, value_name = "TOKENS", env = "TILEWRIGHT_SPECULATE_TOKENS")]
    #[arg(requires = "speculate")]
    #[arg(aliases = ["num-speculative-tokens", "draft", "draft-n", "draft-max"])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(Speculate::MOST)))]
    pub speculate_tokens: Option<u8>,
    /// How many of the last tokens must have stood there before, at least and at best, with
    /// --speculate ngram [default: 2:4].
    #[arg(requires = "speculate")]
    #[arg(long, value_name = "MIN:MAX", env = "TILEWRIGHT_SPECULATE_NGRAM", value_parser = lengths)]
    pub speculate_ngram: Option<(u8, u8)>,
    /// Who is preempted when memory runs out, always a junior: youngest, least-lost (fewest
    /// computed tokens) or most-blocks.
    #[arg(long, default_value_t = Policies::default().victim, env = "TILEWRIGHT_VICTIM")]
    #[arg(value_name = "POLICY", value_parser = Victim::from_str)]
    pub victim: Victim,
    /// What becomes of what a victim has computed: recompute (computed again), swap (moved to host
    /// memory, see --swap-memory) or auto (whichever takes less time).
    #[arg(long, default_value_t = Policies::default().preemption, env = "TILEWRIGHT_PREEMPTION")]
    #[arg(value_name = "POLICY", value_parser = Preemption::from_str)]
    pub preemption: Preemption,
    /// Who of the queue is next: fcfs, shortest (predicted job), priority (the request's
    /// `priority`, 0 first), fair:requests, fair:tokens or fair:time (the tenant served least).
    #[arg(long, default_value_t = Policies::default().order, env = "TILEWRIGHT_ORDER")]
    #[arg(value_name = "POLICY", value_parser = Order::from_str)]
    pub order: Order,
    /// Tokens processed after which nobody who arrives later is let in before a request; `off`
    /// lets it wait for ever.
    #[arg(long, value_name = "TOKENS", default_value = "65536", env = "TILEWRIGHT_AGING")]
    #[arg(value_parser = aging)]
    pub aging: Aging,
    /// How often a request that does not fit the memory may be passed by one that does.
    #[arg(long, value_name = "N", default_value_t = Policies::default().bypass_max)]
    #[arg(env = "TILEWRIGHT_BYPASS")]
    pub bypass: u32,
    /// Weight of a tenant under fair:*, as NAME=WEIGHT, separated by commas: NAME is what requests
    /// say in `user`, or key-1, key-2, … for several API keys [default: 1 for all].
    #[arg(long, value_name = "NAME=WEIGHT", value_delimiter = ',', value_parser = weight)]
    #[arg(env = "TILEWRIGHT_TENANT_WEIGHT")]
    pub tenant_weight: Vec<(String, u32)>,
    /// Requests that may wait; one more is refused with status 429.
    #[arg(long, value_name = "N", default_value_t = Limits::default().queue_max)]
    #[arg(env = "TILEWRIGHT_QUEUE_MAX")]
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(Limits::MOST)))]
    pub queue_max: u32,
    /// Seconds that a request may wait in the queue [default: for ever].
    #[arg(long, value_name = "SECONDS", env = "TILEWRIGHT_QUEUE_TIMEOUT", value_parser = seconds)]
    pub queue_timeout: Option<u32>,
}

impl PolicyArgs {
    /// The weights of a workload's tenants, which have numbers.
    pub fn numbered_weights(&self) -> Result<Vec<(u32, u32)>> {
        let number = |(name, weight): &(String, u32)| {
            Some((name.strip_prefix("tenant-").unwrap_or(name).parse().ok()?, *weight))
        };
        let weights = self.tenant_weight.iter().map(number).collect::<Option<Vec<_>>>();
        let weights = weights.context("--tenant-weight: tenants of a workload are tenant-1, …")?;
        // `1` is tenant-1 as well.
        let mut seen = BTreeSet::new();
        match weights.iter().find(|(tenant, _)| !seen.insert(*tenant)) {
            Some((tenant, _)) => {
                let wrong = format!("--tenant-weight: tenant `tenant-{tenant}` has two weights");
                Err(Usage(wrong).into())
            }
            None => Ok(weights),
        }
    }

    fn speculate(&self) -> Speculate {
        let Speculate::Ngram { tokens, min, max } = self.speculate else { return Speculate::Off };
        let (min, max) = self.speculate_ngram.unwrap_or((min, max));
        let tokens = self.speculate_tokens.and_then(NonZeroU8::new).unwrap_or(tokens);
        Speculate::Ngram { tokens, min, max }
    }

    /// The policies; what of them are limits goes into `limits`.
    pub fn apply(&self, limits: &mut Limits) -> Policies {
        limits.watermark_permille = self.watermark;
        limits.queue_max = self.queue_max;
        limits.queue_timeout_ms = self.queue_timeout.unwrap_or(0);
        Policies {
            batching: self.batching,
            prefill: self.prefill,
            admission: self.admission,
            victim: self.victim,
            preemption: self.preemption,
            order: self.order,
            aging: self.aging.0,
            bypass_max: self.bypass,
            itl_target_micros: self.itl_target,
            prefix_cache: self.prefix_cache,
            speculate: self.speculate(),
        }
    }
}

/// Tokens, or never.
#[derive(Clone, Copy)]
pub struct Aging(pub Option<u64>);

fn aging(text: &str) -> Result<Aging, String> {
    if text == "off" {
        return Ok(Aging(None));
    }
    let tokens = text.parse().map_err(|_| "expected a number of tokens or `off`".to_string());
    tokens.map(|tokens| Aging(Some(tokens)))
}

/// Of n-grams, the shortest and the longest.
fn lengths(text: &str) -> Result<(u8, u8), String> {
    let both = text.split_once(':').unwrap_or((text, text));
    let both = both.0.parse().ok().zip(both.1.parse().ok());
    both.filter(|&(min, max)| Speculate::ngram(1, min, max).is_some())
        .ok_or_else(|| format!("expected MIN:MAX or one number, from 1 to {}", Speculate::MOST))
}

/// A positive number in thousandths.
fn thousandths(text: &str) -> Result<u32, String> {
    let value = text.parse::<f64>().ok().map(|v| (v * 1000.0).round());
    let value = value.filter(|v| *v >= 1.0 && *v <= f64::from(u32::MAX));
    value.map(|v| v as u32).ok_or_else(|| "expected a number above 0, such as 50 or 2.5".into())
}

/// Milliseconds, as microseconds.
fn millis(text: &str) -> Result<u32, String> {
    thousandths(text)
}

/// Seconds, as milliseconds.
fn seconds(text: &str) -> Result<u32, String> {
    thousandths(text)
}

/// A percentage, in thousandths of the whole.
fn permille(text: &str) -> Result<u32, String> {
    let value = text.parse::<f64>().ok().map(|v| (v * 10.0).round());
    let value = value.filter(|v| (0.0..=f64::from(Limits::PERMILLE_MAX)).contains(v));
    value.map(|v| v as u32).ok_or_else(|| "expected a percentage from 0 to 100".into())
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let parts = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let parts = parts.and_then(|(name, weight)| Some((name.to_string(), weight.parse().ok()?)));
    parts.filter(|p| p.1 > 0).ok_or_else(|| "expected NAME=WEIGHT, the weight from 1".into())
}
