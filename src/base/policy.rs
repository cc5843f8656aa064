//! Every choice the scheduler leaves open, as a value with a text form: what a flag, a request
//! to change it, a trace and a plot's legend all say.

use super::limits::LimitsError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;

/// The choices in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Policies {
    pub batching: Batching,
    pub prefill: Prefill,
    pub admission: Admission,
    pub victim: Victim,
    /// What becomes of what a victim has computed.
    #[serde(default)]
    pub preemption: Preemption,
    pub order: Order,
    /// A request is overtaken in the queue only by those that arrive before this many more
    /// tokens are processed (fair: a tenant waits unserved no longer than that); `None` lets it
    /// wait for ever.
    pub aging: Option<u64>,
    /// How often a request that does not fit the memory may be passed by one that does.
    pub bypass_max: u32,
    /// Whether computed blocks are kept for later sequences that begin alike.
    #[serde(default)]
    pub prefix_cache: PrefixCache,
    /// How long a step may take: each step's token budget is chosen to keep to it. `None` uses
    /// the limit's budget in every step.
    #[serde(default)]
    pub itl_target_micros: Option<u32>,
    /// Whether decode rows try tokens that are only guessed.
    #[serde(default)]
    pub speculate: Speculate,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            batching: Batching::Continuous,
            prefill: Prefill::Chunked,
            admission: Admission::Optimistic,
            victim: Victim::Youngest,
            preemption: Preemption::Auto,
            order: Order::Fcfs,
            aging: Some(1 << 16),
            bypass_max: 4,
            prefix_cache: PrefixCache::On,
            itl_target_micros: None,
            speculate: Speculate::Off,
        }
    }
}

impl Policies {
    /// The first number that no engine runs with; the text forms refuse theirs themselves.
    pub fn check(&self) -> Result<(), LimitsError> {
        let (field, most) = ("itl_target_micros", u32::MAX);
        match self.itl_target_micros {
            Some(found @ 0) => Err(LimitsError { field, found, least: 1, most }),
            _ => Ok(()),
        }
    }

    /// What the queue goes by, the lowest first; of equals the one that came first. `arrived` is
    /// how many tokens had been processed when it came, `job` its prompt and foreseen output.
    ///
    /// Aging is part of it: what a request is worse by counts as tokens processed before it
    /// arrived, at most `aging` of them. So it is overtaken only by those that arrive before
    /// `aging` more tokens are processed.
    pub fn score(&self, arrived: u64, class: u8, job: u64, context_max: u32) -> u64 {
        let aged = |worse: u64, worst: u64| match self.aging {
            None => worse,
            Some(aging) => {
                let wait = u128::from(aging) * u128::from(worse) / u128::from(worst.max(1));
                arrived.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
            }
        };
        match self.order {
            Order::Fcfs => 0,
            Order::Fair { .. } => arrived,
            Order::Priority => aged(u64::from(class), u64::from(CLASS_MAX)),
            Order::Shortest => aged(job, u64::from(context_max)),
        }
    }
}

/// When sequences join and leave the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batching {
    /// In any step.
    Continuous,
    /// Together, up to `size`; missing and finished places go on as padding until the last ends.
    Static { size: u32 },
    /// The same, once `size` wait or the first has waited for `timeout_ms`.
    Dynamic { size: u32, timeout_ms: u32 },
}

/// Which of prompts and decoding goes first within a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefill {
    /// Prompts, whole and by themselves; decoding waits.
    PrefillFirst,
    /// Decoding by itself; prompts wait until nothing decodes.
    DecodeFirst,
    /// Decoding first, the rest of the token budget goes to pieces of prompts.
    Chunked,
}

/// When a sequence is let in, as far as memory goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// When prompt and longest output of all fit the pool together.
    Conservative,
    /// When what is known fits now and the watermark's share stays free.
    Optimistic,
    /// When the pool holds the highest point of all outputs at their longest.
    ExactPeak,
    /// The same with lengths not exceeded by this percentage of past outputs.
    Quantile { percent: u32 },
}

/// Who is preempted; always one junior to the gainer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    Youngest,
    /// The one that loses the fewest computed tokens.
    LeastLost,
    /// The one that frees the most blocks.
    MostBlocks,
}

/// What becomes of the keys and values of a victim.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Preemption {
    /// They are dropped and computed again.
    Recompute,
    /// They go to host memory and come back, as far as it has room.
    Swap,
    /// Whichever costs less time, as measured on the device, for each victim.
    #[default]
    Auto,
}

/// Who of the queue is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// First come, first served.
    Fcfs,
    /// The shortest predicted job.
    Shortest,
    /// Classes 0 (first) to [`CLASS_MAX`].
    Priority,
    /// The tenant that was served least (virtual token counters).
    Fair { unit: FairUnit },
}

/// The last priority class.
pub const CLASS_MAX: u8 = 7;
/// The class of a request that names none: others may go before it or after it.
pub const CLASS_DEFAULT: u8 = 3;

/// What a tenant's service is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FairUnit {
    Requests,
    /// Prompt tokens count one, generated ones two.
    Tokens,
    /// Measured device time.
    Time,
}

/// Reuse of blocks between sequences whose first tokens are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrefixCache {
    #[default]
    On,
    Off,
}

/// Where a decode row's guesses at the tokens to come are taken from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Speculate {
    /// None are made.
    #[default]
    Off,
    /// What followed the last `min` to `max` tokens, the more the better, where they stood before
    /// in prompt or output; `tokens` of it in a step at most, fewer after wrong ones.
    Ngram { tokens: NonZeroU8, min: u8, max: u8 },
}

impl Speculate {
    /// By n-grams, where nothing more is said.
    pub const NGRAM: Self =
        Self::Ngram { tokens: NonZeroU8::MIN.saturating_add(3), min: 2, max: 4 };
    /// Most tokens guessed in a row, and longest n-gram.
    pub const MOST: u8 = 64;

    /// `None` where a number is zero or too large, or `min` is above `max`.
    pub fn ngram(tokens: u8, min: u8, max: u8) -> Option<Self> {
        let tokens =
            NonZeroU8::new(tokens).filter(|t| t.get() <= Self::MOST && max <= Self::MOST)?;
        (1..=max).contains(&min).then_some(Self::Ngram { tokens, min, max })
    }
}

/// A policy's text that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is no {kind}: use {forms}")]
pub struct PolicyError {
    pub text: String,
    pub kind: &'static str,
    pub forms: &'static str,
}

/// Display, FromStr and serde of an enum by one table of its forms.
macro_rules! text_forms {
    ($name:ident, $kind:literal, $forms:literal, $show:expr, $read:expr) => {
        impl $name {
            /// The accepted forms, for help texts.
            pub const FORMS: &'static str = $forms;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let show: fn(&$name, &mut fmt::Formatter<'_>) -> fmt::Result = $show;
                show(self, f)
            }
        }

        impl FromStr for $name {
            type Err = PolicyError;

            fn from_str(text: &str) -> Result<Self, PolicyError> {
                let mut parts = text.split(':');
                let head = parts.next().unwrap_or_default();
                let rest: Vec<&str> = parts.collect();
                let read: fn(&str, &[&str]) -> Option<$name> = $read;
                read(head, &rest).ok_or_else(|| PolicyError {
                    text: text.to_string(),
                    kind: $kind,
                    forms: $forms,
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

text_forms!(
    Batching,
    "batching",
    "continuous, static:SIZE or dynamic:SIZE:MILLISECONDS, at most an hour",
    |b, f| match b {
        Batching::Continuous => f.write_str("continuous"),
        Batching::Static { size } => write!(f, "static:{size}"),
        Batching::Dynamic { size, timeout_ms } => write!(f, "dynamic:{size}:{timeout_ms}"),
    },
    |head, rest| match (head, rest) {
        ("continuous", []) => Some(Batching::Continuous),
        ("static", [size]) => positive(size).map(|size| Batching::Static { size }),
        ("dynamic", [size, ms]) => {
            let timeout_ms = ms.parse().ok().filter(|&ms| ms <= HOUR_MS)?;
            positive(size).map(|size| Batching::Dynamic { size, timeout_ms })
        }
        _ => None,
    }
);

text_forms!(
    Prefill,
    "prefill policy",
    "prefill-first, decode-first or chunked",
    |p, f| f.write_str(match p {
        Prefill::PrefillFirst => "prefill-first",
        Prefill::DecodeFirst => "decode-first",
        Prefill::Chunked => "chunked",
    }),
    |head, rest| match (head, rest) {
        ("prefill-first", []) => Some(Prefill::PrefillFirst),
        ("decode-first", []) => Some(Prefill::DecodeFirst),
        ("chunked", []) => Some(Prefill::Chunked),
        _ => None,
    }
);

text_forms!(
    Admission,
    "admission policy",
    "conservative, optimistic, exact-peak or quantile:PERCENT",
    |a, f| match a {
        Admission::Conservative => f.write_str("conservative"),
        Admission::Optimistic => f.write_str("optimistic"),
        Admission::ExactPeak => f.write_str("exact-peak"),
        Admission::Quantile { percent } => write!(f, "quantile:{percent}"),
    },
    |head, rest| match (head, rest) {
        ("conservative", []) => Some(Admission::Conservative),
        ("optimistic", []) => Some(Admission::Optimistic),
        ("exact-peak", []) => Some(Admission::ExactPeak),
        ("quantile", [percent]) =>
            positive(percent).filter(|&p| p <= 100).map(|percent| Admission::Quantile { percent }),
        _ => None,
    }
);

text_forms!(
    Victim,
    "victim policy",
    "youngest, least-lost or most-blocks",
    |v, f| f.write_str(match v {
        Victim::Youngest => "youngest",
        Victim::LeastLost => "least-lost",
        Victim::MostBlocks => "most-blocks",
    }),
    |head, rest| match (head, rest) {
        ("youngest", []) => Some(Victim::Youngest),
        ("least-lost", []) => Some(Victim::LeastLost),
        ("most-blocks", []) => Some(Victim::MostBlocks),
        _ => None,
    }
);

text_forms!(
    Preemption,
    "preemption policy",
    "recompute, swap or auto",
    |p, f| f.write_str(match p {
        Preemption::Recompute => "recompute",
        Preemption::Swap => "swap",
        Preemption::Auto => "auto",
    }),
    |head, rest| match (head, rest) {
        ("recompute", []) => Some(Preemption::Recompute),
        ("swap", []) => Some(Preemption::Swap),
        ("auto", []) => Some(Preemption::Auto),
        _ => None,
    }
);

text_forms!(
    Order,
    "queue order",
    "fcfs, shortest, priority, fair:requests, fair:tokens or fair:time",
    |o, f| f.write_str(match o {
        Order::Fcfs => "fcfs",
        Order::Shortest => "shortest",
        Order::Priority => "priority",
        Order::Fair { unit: FairUnit::Requests } => "fair:requests",
        Order::Fair { unit: FairUnit::Tokens } => "fair:tokens",
        Order::Fair { unit: FairUnit::Time } => "fair:time",
    }),
    |head, rest| match (head, rest) {
        ("fcfs", []) => Some(Order::Fcfs),
        ("shortest", []) => Some(Order::Shortest),
        ("priority", []) => Some(Order::Priority),
        ("fair", ["requests"]) => Some(Order::Fair { unit: FairUnit::Requests }),
        ("fair", ["tokens"]) => Some(Order::Fair { unit: FairUnit::Tokens }),
        ("fair", ["time"]) => Some(Order::Fair { unit: FairUnit::Time }),
        _ => None,
    }
);

text_forms!(
    PrefixCache,
    "setting of the prefix cache",
    "on or off",
    |p, f| f.write_str(match p {
        PrefixCache::On => "on",
        PrefixCache::Off => "off",
    }),
    |head, rest| match (head, rest) {
        ("on", []) => Some(PrefixCache::On),
        ("off", []) => Some(PrefixCache::Off),
        _ => None,
    }
);

text_forms!(
    Speculate,
    "speculation",
    "off, ngram or ngram:TOKENS:MIN:MAX",
    |s, f| match s {
        Speculate::Off => f.write_str("off"),
        Speculate::Ngram { tokens, min, max } => write!(f, "ngram:{tokens}:{min}:{max}"),
    },
    |head, rest| match (head, rest) {
        ("off", []) => Some(Speculate::Off),
        ("ngram", []) => Some(Speculate::NGRAM),
        ("ngram", [tokens, min, max]) => {
            Speculate::ngram(tokens.parse().ok()?, min.parse().ok()?, max.parse().ok()?)
        }
        _ => None,
    }
);

/// Longest wait for a batch to fill.
const HOUR_MS: u32 = 3_600_000;

fn positive(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&n| n > 0)
}
