//! [`Spec`] from GGUF metadata. What a family's files do not say (which layers of Gemma slide,
//! their rotation, which layers of SmolLM 3 do not rotate) comes from the family.

use super::family::{Family, WindowRule};
use super::names::Dialect;
use super::rope::{Scaling, yarn_attention};
use super::spec::{above_zero, all_but, count, layers, vocab};
use super::{Latent, ModelError, Moe, Rope, Rotation, Spec};
use crate::kernels::experts::Scoring;
use crate::weights::{GgufMeta, Weights};

struct Keys<'a> {
    file: &'a str,
    meta: &'a GgufMeta,
    architecture: &'a str,
    family: &'static Family,
}

pub(super) fn read(
    weights: &Weights,
    meta: &GgufMeta,
    family: &'static Family,
) -> Result<Spec, ModelError> {
    let architecture = meta.architecture()?;
    let keys = Keys { file: weights.name(), meta, architecture, family };
    keys.refuse_unknown()?;
    let (hidden, heads) =
        (keys.positive("embedding_length")?, keys.positive("attention.head_count")?);
    let latent = keys.latent()?;
    let head_dim = match latent {
        Some(latent) => latent.rank + latent.rope,
        None => keys.find("attention.key_length")?.unwrap_or(hidden / heads),
    };
    let rotary = keys.find("rope.dimension_count")?.unwrap_or(head_dim);
    let key = keys.name("block_count");
    let layers = layers(keys.file, &key, meta.positive(&key)?)?;
    let windows = keys.windows(layers)?;
    let local_rope = family.local_theta.map(|theta| Rope {
        rotary,
        theta: theta as f32,
        scaling: Scaling::None,
    });
    let root = if family.root_scale { (hidden as f32).sqrt() } else { 1.0 };
    Ok(Spec {
        architecture: architecture.into(),
        family,
        layers,
        hidden,
        heads,
        kv_heads: match latent {
            Some(_) => 1,
            None => keys.find("attention.head_count_kv")?.unwrap_or(heads),
        },
        head_dim,
        ffn: keys.positive("feed_forward_length")?,
        vocab: vocab(weights, "token_embd.weight", hidden)?,
        context: keys.positive("context_length")?,
        norm_eps: keys.norm_eps()?,
        norm_offset: 0.0,
        activation: family.activation,
        rope: Rope {
            rotary,
            theta: keys.above_zero("rope.freq_base")?.unwrap_or(family.theta as f32),
            scaling: Scaling::from_gguf(weights, meta, architecture, rotary)?,
        },
        local_rope,
        rotations: keys.rotations(&windows),
        windows,
        attention_scale: match latent {
            Some(latent) => keys.latent_scale(latent)?,
            None => keys.attention_scale(hidden, heads, head_dim, layers)?,
        },
        attention_cap: keys.number("attn_logit_softcapping")?.filter(|cap| *cap > 0.0),
        logit_cap: keys.number("final_logit_softcapping")?.filter(|cap| *cap > 0.0),
        embedding_scale: root * keys.number("embedding_scale")?.unwrap_or(1.0),
        residual_scale: keys.number("residual_scale")?.unwrap_or(1.0),
        logit_scale: 1.0 / keys.number("logit_scale")?.unwrap_or(1.0),
        moe: keys.moe(layers)?,
        latent,
        tied_head: weights.tensor("output.weight").is_none(),
        adjacent_pairs: family.gguf_pairs,
        attention_bias: family.bias,
        mlp_bias: false,
        dialect: Dialect::Gguf,
    })
}

/// Keys that change the numbers in some family, and are read here only for those with multipliers.
const MULTIPLIERS: [&str; 4] =
    ["embedding_scale", "residual_scale", "logit_scale", "attention.scale"];

/// Where it is, the factors of cos and sin cancel out (DeepSeek V2).
pub(super) const YARN_LOG_MULTIPLIER: &str = "rope.scaling.yarn_log_multiplier";

/// Keys that change the numbers and are read for no family.
const UNKNOWN: [&str; 4] =
    ["attention.clamp_kqv", "attention.max_alibi_bias", "use_parallel_residual", "swin_norm"];

impl Keys<'_> {
    fn name(&self, tail: &str) -> String {
        format!("{}.{tail}", self.architecture)
    }

    fn fail<T>(&self, tail: &str, problem: String) -> Result<T, ModelError> {
        Err(ModelError::Config { file: self.file.into(), key: self.name(tail), problem })
    }

    fn positive(&self, tail: &str) -> Result<u32, ModelError> {
        let key = self.name(tail);
        count(self.file, &key, self.meta.positive(&key)?)
    }

    fn find(&self, tail: &str) -> Result<Option<u32>, ModelError> {
        let key = self.name(tail);
        self.meta.find_u64(&key)?.map(|v| count(self.file, &key, v)).transpose()
    }

    fn number(&self, tail: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.meta.find_f32(&self.name(tail))?)
    }

    fn norm_eps(&self) -> Result<f32, ModelError> {
        let key = self.name("attention.layer_norm_rms_epsilon");
        above_zero(self.file, &key, self.meta.f32(&key)?)
    }

    fn above_zero(&self, tail: &str) -> Result<Option<f32>, ModelError> {
        let value = self.number(tail)?;
        value.map(|value| above_zero(self.file, &self.name(tail), value)).transpose()
    }

    fn refuse_unknown(&self) -> Result<(), ModelError> {
        let family = self.family.name;
        for tail in MULTIPLIERS.iter().filter(|_| !self.family.multipliers).chain(&UNKNOWN) {
            // Writers give 0 or false for what does not apply.
            let neutral = match self.meta.get(&self.name(tail)) {
                None => true,
                Some(_) => match self.number(tail) {
                    Ok(value) => value.is_some_and(|v| v == 0.0 || v == 1.0),
                    Err(_) => self.meta.find_bool(&self.name(tail))? == Some(false),
                },
            };
            if !neutral {
                return self.fail(tail, format!("is not supported in {family} models"));
            }
        }
        if self.meta.find_bool(&self.name("attention.causal"))? == Some(false) {
            return self.fail("attention.causal", "models that see ahead are not supported".into());
        }
        Ok(())
    }

    fn attention_scale(
        &self,
        hidden: u32,
        heads: u32,
        head_dim: u32,
        layers: u32,
    ) -> Result<f32, ModelError> {
        if let Some(scale) = self.number("attention.scale")?.filter(|scale| *scale != 0.0) {
            return Ok(scale);
        }
        // The 27B models of Gemma 2 (46 layers) and 3 (62) scale by hidden / heads, which their
        // files do not say.
        let large = matches!((self.family.hf, layers), ("gemma2", 46) | ("gemma3_text", 62));
        let of = if large { hidden / heads } else { head_dim };
        Ok(1.0 / (of as f32).sqrt())
    }

    fn rotations(&self, windows: &[Option<u32>]) -> Vec<Rotation> {
        let every = self.family.no_rope_every;
        let rotates = |l: usize| every.is_none_or(|every| !(l + 1).is_multiple_of(every as usize));
        let rotation = |(l, window): (usize, &Option<u32>)| match window {
            _ if !rotates(l) => Rotation::None,
            Some(_) if self.family.local_theta.is_some() => Rotation::Local,
            _ => Rotation::Global,
        };
        windows.iter().enumerate().map(rotation).collect()
    }

    /// Newer files say the cached row where others say a head, and the head in `_mla` keys.
    fn latent(&self) -> Result<Option<Latent>, ModelError> {
        if !self.family.latent {
            return Ok(None);
        }
        let head = |tail: &str| match self.find(&format!("{tail}_mla"))? {
            Some(dims) => Ok(dims),
            None => self.positive(tail),
        };
        let (rank, rope) =
            (self.positive("attention.kv_lora_rank")?, self.positive("rope.dimension_count")?);
        let (key, value) = (head("attention.key_length")?, head("attention.value_length")?);
        let Some(nope) = key.checked_sub(rope).filter(|nope| *nope > 0) else {
            let problem = format!("{key} leaves nothing beside the {rope} rotated dimensions");
            return self.fail("attention.key_length", problem);
        };
        let q_rank = self.meta.find_u64(&self.name("attention.q_lora_rank"))?;
        let q_rank = match q_rank.filter(|rank| *rank > 0) {
            Some(rank) => Some(count(self.file, &self.name("attention.q_lora_rank"), rank)?),
            None => None,
        };
        Ok(Some(Latent { q_rank, rank, rope, nope, value }))
    }

    /// As [`super::hf`] has it: YaRN's factor at `mscale_all_dim`, of which a file holds the tenth.
    fn latent_scale(&self, latent: Latent) -> Result<f32, ModelError> {
        let plain = 1.0 / (latent.q_head() as f32).sqrt();
        let (factor, tenth) =
            (self.number("rope.scaling.factor")?, self.number(YARN_LOG_MULTIPLIER)?);
        Ok(match (factor, tenth) {
            (Some(factor), Some(tenth)) => plain * yarn_attention(factor, 10.0 * tenth).powi(2),
            _ => plain,
        })
    }

    fn windows(&self, layers: u32) -> Result<Vec<Option<u32>>, ModelError> {
        let tail = "attention.sliding_window";
        let window = self.meta.find_u64(&self.name(tail))?.filter(|window| *window > 0);
        let Some(window) = window else { return Ok(vec![None; layers as usize]) };
        let window = count(self.file, &self.name(tail), window)?;
        let local: Vec<bool> = match self.family.windows {
            WindowRule::Never if self.architecture == "llama" => vec![true; layers as usize],
            WindowRule::Never | WindowRule::From => {
                let family = self.family.name;
                return self.fail(tail, format!("{family} models have no window"));
            }
            WindowRule::All => vec![true; layers as usize],
            WindowRule::AllBut(n) => {
                let n = self.find("attention.sliding_window_pattern")?.unwrap_or(n);
                all_but(layers, n).collect()
            }
        };
        Ok(local.into_iter().map(|local| local.then_some(window)).collect())
    }

    fn moe(&self, layers: u32) -> Result<Option<Moe>, ModelError> {
        let experts = self.meta.find_u64(&self.name("expert_count"))?.filter(|n| *n > 0);
        let Some(experts) = experts else { return Ok(None) };
        let group = "expert_group_count";
        if self.meta.find_u64(&self.name(group))?.is_some_and(|n| n > 1) {
            return self.fail(group, "groups of experts are not supported".to_string());
        }
        let scoring = match self.meta.find_u64(&self.name("expert_gating_func"))? {
            None | Some(0 | 1) => Scoring::Softmax,
            Some(2) => Scoring::Sigmoid,
            Some(other) => {
                return self.fail("expert_gating_func", format!("{other} is not supported"));
            }
        };
        let ffn = match self.find("expert_feed_forward_length")? {
            Some(ffn) => ffn,
            None => self.positive("feed_forward_length")?,
        };
        let shared = self.meta.find_u64(&self.name("expert_shared_count"))?.unwrap_or(0);
        let shared_ffn = match shared {
            0 => 0,
            n => count(self.file, "expert_shared_count", n.saturating_mul(u64::from(ffn)))?,
        };
        let dense = self.meta.find_u64(&self.name("leading_dense_block_count"))?.unwrap_or(0);
        let normalise = self.meta.find_bool(&self.name("expert_weights_norm"))?;
        Ok(Some(Moe {
            experts: count(self.file, &self.name("expert_count"), experts)?,
            used: self.positive("expert_used_count")?,
            ffn,
            shared_ffn,
            scoring,
            normalise: normalise.unwrap_or(self.family.normalises),
            scale: self.number("expert_weights_scale")?.filter(|s| *s != 0.0).unwrap_or(1.0),
            layers: (0..layers).map(|l| u64::from(l) >= dense).collect(),
        }))
    }
}
