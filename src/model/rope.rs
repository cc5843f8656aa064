//! Rotary position embedding: scaling kinds, and the (cos, sin) table in f32.
//!
//! Formulas: RoPE (Su et al. 2021), YaRN (Peng et al. 2023), and the Llama 3.1 rule as published
//! with the model; divisors and attention factors as `transformers` computes them.

use super::gguf::YARN_LOG_MULTIPLIER;
use super::spec::above_zero;
use super::{ModelError, Rope};
use crate::weights::{GgufMeta, HfMeta, Weights};

/// How inverse frequencies are changed for contexts longer than the trained one.
#[derive(Clone, PartialEq, Debug)]
pub enum Scaling {
    None,
    Linear {
        factor: f32,
    },
    Llama3 {
        factor: f32,
        low: f32,
        high: f32,
        original: f32,
    },
    Yarn {
        factor: f32,
        original: f32,
        fast: f32,
        slow: f32,
        attention: f32,
    },
    /// A divisor per pair, stored in the file (GGUF `rope_freqs.weight`).
    Divisors(Vec<f32>),
}

fn refuse(file: &str, key: &str, problem: String) -> ModelError {
    ModelError::Config { file: file.into(), key: key.into(), problem }
}

const KINDS: &str = "supported: default, linear, llama3, yarn";

impl Scaling {
    /// What config.json says at the object `at`.
    pub(super) fn from_hf(file: &str, meta: &HfMeta, at: &str) -> Result<Self, ModelError> {
        let key = |tail: &str| format!("{at}.{tail}");
        let kind = match meta.find_str(&key("rope_type"))? {
            Some(kind) => kind,
            None => match meta.find_str(&key("type"))? {
                None if meta.get(&key("factor")).is_some() => {
                    let problem = format!("is missing beside a factor; {KINDS}");
                    return Err(refuse(file, &key("rope_type"), problem));
                }
                kind => kind.unwrap_or("default"),
            },
        };
        let original = || -> Result<f32, ModelError> {
            let own = meta.find_f32(&key("original_max_position_embeddings"))?;
            Ok(match own {
                Some(own) => own,
                None => meta.f32("max_position_embeddings")?,
            })
        };
        let scaling = match kind {
            "default" => Ok(Self::None),
            "linear" => Ok(Self::Linear { factor: meta.f32(&key("factor"))? }),
            "llama3" => Ok(Self::Llama3 {
                factor: meta.f32(&key("factor"))?,
                low: meta.f32(&key("low_freq_factor"))?,
                high: meta.f32(&key("high_freq_factor"))?,
                original: original()?,
            }),
            "yarn" => {
                for option in ["truncate"] {
                    if meta.get(&key(option)).is_some() {
                        let problem = "is not supported".to_string();
                        return Err(refuse(file, &key(option), problem));
                    }
                }
                let factor = meta.f32(&key("factor"))?;
                let attention = meta.find_f32(&key("attention_factor"))?;
                let scales =
                    (meta.find_f32(&key("mscale"))?, meta.find_f32(&key("mscale_all_dim"))?);
                let own = match scales {
                    (Some(one), Some(all)) => {
                        yarn_attention(factor, one) / yarn_attention(factor, all)
                    }
                    _ => yarn_attention(factor, 1.0),
                };
                Ok(Self::Yarn {
                    factor,
                    original: original()?,
                    fast: meta.find_f32(&key("beta_fast"))?.unwrap_or(32.0),
                    slow: meta.find_f32(&key("beta_slow"))?.unwrap_or(1.0),
                    attention: attention.unwrap_or(own),
                })
            }
            other => Err(refuse(file, &key("rope_type"), format!("`{other}` is unknown; {KINDS}"))),
        };
        let names =
            ["original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor"];
        scaling?.checked(file, at, names)
    }

    /// Refuses numbers that no stretching of a context has: the table would hold nonsense, or
    /// nothing at all. `names` are the file's for the last four numbers of YaRN.
    fn checked(self, file: &str, at: &str, names: [&str; 4]) -> Result<Self, ModelError> {
        let (factor, values) = match &self {
            Self::None | Self::Divisors(_) => return Ok(self),
            Self::Linear { factor } => (*factor, vec![]),
            Self::Llama3 { factor, low, high, original } => {
                let problem = match low {
                    low if low >= high => format!("{low} is not below high_freq_factor, {high}"),
                    low if *low <= 0.0 => format!("{low} is not above 0"),
                    _ => String::new(),
                };
                if !problem.is_empty() {
                    return Err(refuse(file, &format!("{at}.low_freq_factor"), problem));
                }
                (*factor, vec![*original])
            }
            Self::Yarn { factor, original, fast, slow, attention } => {
                (*factor, vec![*original, *fast, *slow, *attention])
            }
        };
        if factor.is_nan() || factor < 1.0 {
            let problem = format!("{factor} is below 1, which stretches nothing");
            return Err(refuse(file, &format!("{at}.factor"), problem));
        }
        for (name, value) in names.iter().zip(values) {
            above_zero(file, &format!("{at}.{name}"), value)?;
        }
        Ok(self)
    }

    pub(super) fn from_gguf(
        weights: &Weights,
        meta: &GgufMeta,
        arch: &str,
        rotary: u32,
    ) -> Result<Self, ModelError> {
        let file = weights.name();
        let kind = meta.find_str(&format!("{arch}.rope.scaling.type"))?.unwrap_or("none");
        if let Some(tensor) = weights.tensor("rope_freqs.weight") {
            weights.expect("rope_freqs.weight", &[u64::from(rotary / 2)])?;
            if kind != "none" {
                let problem = format!("`{kind}` beside `rope_freqs.weight` is not supported");
                return Err(refuse(file, &format!("{arch}.rope.scaling.type"), problem));
            }
            let raw = weights.read_rows(tensor, 0, tensor.rows())?;
            let mut divisors = vec![0.0; tensor.rows() as usize];
            crate::weights::blocks::decode(tensor.format, &raw, &mut divisors);
            for divisor in &divisors {
                above_zero(file, "rope_freqs.weight", *divisor)?;
            }
            return Ok(Self::Divisors(divisors));
        }
        let key = |tail: &str| format!("{arch}.rope.scaling.{tail}");
        let factor = || meta.f32(&key("factor"));
        let scaling = match kind {
            "none" => Ok(Self::None),
            "linear" => Ok(Self::Linear { factor: factor()? }),
            "yarn" => {
                let factor = factor()?;
                let cancels = meta.get(&format!("{arch}.{YARN_LOG_MULTIPLIER}")).is_some();
                let own = if cancels { 1.0 } else { yarn_attention(factor, 1.0) };
                Ok(Self::Yarn {
                    factor,
                    original: meta.f32(&key("original_context_length"))?,
                    fast: meta.find_f32(&key("yarn_beta_fast"))?.unwrap_or(32.0),
                    slow: meta.find_f32(&key("yarn_beta_slow"))?.unwrap_or(1.0),
                    attention: own * meta.find_f32(&key("attn_factor"))?.unwrap_or(1.0),
                })
            }
            other => Err(refuse(file, &key("type"), format!("`{other}` is unknown; {KINDS}"))),
        };
        let names = ["original_context_length", "yarn_beta_fast", "yarn_beta_slow", "attn_factor"];
        scaling?.checked(file, &format!("{arch}.rope.scaling"), names)
    }

    /// Factor of cos and sin.
    fn attention(&self) -> f32 {
        match self {
            Self::Yarn { attention, .. } => *attention,
            _ => 1.0,
        }
    }
}

/// YaRN's factor of cos and sin, weighed by `scale`.
pub fn yarn_attention(factor: f32, scale: f32) -> f32 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 }
}

impl Rope {
    /// Inverse frequency per rotary pair.
    pub fn inverse_frequencies(&self) -> Vec<f32> {
        let pairs = self.rotary as usize / 2;
        let plain: Vec<f32> = (0..pairs)
            .map(|i| 1.0 / self.theta.powf((2 * i) as f32 / self.rotary as f32))
            .collect();
        match &self.scaling {
            Scaling::None => plain,
            Scaling::Linear { factor } => plain.iter().map(|f| f / factor).collect(),
            Scaling::Divisors(divisors) => {
                plain.iter().zip(divisors).map(|(f, divisor)| f / divisor).collect()
            }
            Scaling::Llama3 { factor, low, high, original } => {
                plain.iter().map(|f| llama3(*f, *factor, *low, *high, *original)).collect()
            }
            Scaling::Yarn { factor, original, fast, slow, .. } => {
                self.yarn(&plain, *factor, *original, *fast, *slow)
            }
        }
    }

    fn yarn(&self, plain: &[f32], factor: f32, original: f32, fast: f32, slow: f32) -> Vec<f32> {
        let dim = f64::from(self.rotary);
        let pair_at = |rotations: f32| {
            let wave = f64::from(original) / (f64::from(rotations) * std::f64::consts::TAU);
            dim * wave.ln() / (2.0 * f64::from(self.theta).ln())
        };
        let low = pair_at(fast).floor().max(0.0) as f32;
        let mut high = pair_at(slow).ceil().min(dim - 1.0) as f32;
        if low == high {
            high += 0.001;
        }
        let blend = |(i, f): (usize, &f32)| {
            let keep = 1.0 - ((i as f32 - low) / (high - low)).clamp(0.0, 1.0);
            f / factor * (1.0 - keep) + f * keep
        };
        plain.iter().enumerate().map(blend).collect()
    }

    /// `[position][pair]` of (cos, sin), flat, for `positions` positions.
    pub fn table(&self, positions: u32) -> Vec<f32> {
        let frequencies = self.inverse_frequencies();
        let scale = self.scaling.attention();
        let mut out = Vec::with_capacity(positions as usize * frequencies.len() * 2);
        for position in 0..positions {
            for frequency in &frequencies {
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                out.push(cos as f32 * scale);
                out.push(sin as f32 * scale);
            }
        }
        out
    }
}

fn llama3(frequency: f32, factor: f32, low: f32, high: f32, original: f32) -> f32 {
    let wave = std::f32::consts::TAU / frequency;
    if wave < original / high {
        return frequency;
    }
    if wave > original / low {
        return frequency / factor;
    }
    let smooth = (original / wave - low) / (high - low);
    (1.0 - smooth) * frequency / factor + smooth * frequency
}
