//! [`Spec`] from config.json, in its older and newer spellings. A key that would change the
//! numbers and is not understood is an error, never left out.

use super::family::{Activation, Bias, Family, WindowRule};
use super::names::Dialect;
use super::rope::{Scaling, yarn_attention};
use super::spec::{above_zero, all_but, count, layers, vocab};
use super::{Latent, ModelError, Moe, Rope, Rotation, Spec};
use crate::kernels::experts::Scoring;
use crate::weights::{HfMeta, Weights};
use serde_json::Value;

/// Keys that change the numbers in some family and are read in none of ours, with the value that
/// says the same as their absence.
const NEUTRAL: [(&str, Value); 8] = [
    ("clip_qkv", Value::Null),
    ("use_bidirectional_attention", Value::Bool(false)),
    ("parallel_attn", Value::Bool(false)),
    ("use_parallel_residual", Value::Bool(false)),
    ("alibi", Value::Bool(false)),
    ("use_qk_norm", Value::Bool(false)),
    ("qk_layernorm", Value::Bool(false)),
    ("attention_chunk_size", Value::Null),
];

/// The multipliers of Granite, each 1 elsewhere.
const MULTIPLIERS: [&str; 4] =
    ["embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"];

struct Config<'a> {
    file: &'a str,
    weights: &'a Weights,
    meta: &'a HfMeta,
    family: &'static Family,
}

pub(super) fn read(
    weights: &Weights,
    meta: &HfMeta,
    family: &'static Family,
) -> Result<Spec, ModelError> {
    let config = Config { file: weights.name(), weights, meta, family };
    config.refuse_unknown()?;
    let prefix = if weights.tensor("embed_tokens.weight").is_some() { "" } else { "model." };
    let (hidden, heads) =
        (config.positive("hidden_size")?, config.positive("num_attention_heads")?);
    let latent = config.latent()?;
    let head_dim = match latent {
        Some(latent) => latent.rank + latent.rope,
        None => config.find("head_dim")?.unwrap_or(hidden / heads),
    };
    let layers = layers(config.file, "num_hidden_layers", meta.positive("num_hidden_layers")?)?;
    let windows = config.windows(layers)?;
    let (rope, local_rope) = config.ropes(latent.map_or(head_dim, |latent| latent.rope))?;
    let rotations = config.rotations(&windows, local_rope.is_some())?;
    let number = |key: &str| -> Result<f32, ModelError> { Ok(meta.find_f32(key)?.unwrap_or(1.0)) };
    let root = if family.root_scale { (hidden as f32).sqrt() } else { 1.0 };
    let attention_bias = match meta.find_bool("attention_bias")? {
        Some(true) => Bias::Attention,
        _ => family.bias,
    };
    Ok(Spec {
        architecture: meta.architecture()?.into(),
        family,
        layers,
        hidden,
        heads,
        kv_heads: match latent {
            Some(_) => 1,
            None => config.find("num_key_value_heads")?.unwrap_or(heads),
        },
        head_dim,
        ffn: config.positive("intermediate_size")?,
        vocab: vocab(weights, &format!("{prefix}embed_tokens.weight"), hidden)?,
        context: config.positive("max_position_embeddings")?,
        norm_eps: above_zero(config.file, "rms_norm_eps", meta.f32("rms_norm_eps")?)?,
        norm_offset: if family.norm_minus_one { 1.0 } else { 0.0 },
        activation: config.activation()?,
        rope,
        local_rope,
        rotations,
        windows,
        attention_scale: config.attention_scale(latent.map_or(head_dim, Latent::q_head))?
            * config.latent_scale()?,
        attention_cap: config.cap("attn_logit_softcapping")?,
        logit_cap: config.cap("final_logit_softcapping")?,
        embedding_scale: root * number("embedding_multiplier")?,
        residual_scale: number("residual_multiplier")?,
        logit_scale: 1.0 / number("logits_scaling")?,
        moe: config.moe(layers)?,
        latent,
        tied_head: config.tied_head()?,
        // DeepSeek's own files have them; `rope_interleave` says where a copy does not.
        adjacent_pairs: family.latent && meta.find_bool("rope_interleave")?.unwrap_or(true),
        attention_bias,
        mlp_bias: meta.find_bool("mlp_bias")?.unwrap_or(false),
        dialect: Dialect::Hf { prefix },
    })
}

impl Config<'_> {
    fn fail<T>(&self, key: &str, problem: String) -> Result<T, ModelError> {
        Err(ModelError::Config { file: self.file.into(), key: key.into(), problem })
    }

    fn positive(&self, key: &str) -> Result<u32, ModelError> {
        count(self.file, key, self.meta.positive(key)?)
    }

    fn find(&self, key: &str) -> Result<Option<u32>, ModelError> {
        self.meta.find_u64(key)?.map(|v| count(self.file, key, v)).transpose()
    }

    fn refuse_unknown(&self) -> Result<(), ModelError> {
        let family = self.family.name;
        for (key, neutral) in &NEUTRAL {
            if let Some(found) = self.meta.get(key).filter(|found| *found != neutral) {
                return self.fail(key, format!("{found} is not supported"));
            }
        }
        for key in MULTIPLIERS.iter().filter(|_| !self.family.multipliers) {
            if self.meta.find_f32(key)?.is_some_and(|factor| factor != 1.0) {
                return self.fail(key, format!("is not supported in {family} models"));
            }
        }
        Ok(())
    }

    fn tied_head(&self) -> Result<bool, ModelError> {
        let has_head = self.weights.tensor("lm_head.weight").is_some();
        let tied = match self.meta.find_bool("tie_word_embeddings")? {
            None if self.family.tied && !has_head => Some(true),
            tied => tied,
        };
        if tied != Some(true) && !has_head {
            let problem = "is not true, but there is no tensor `lm_head.weight`".to_string();
            return self.fail("tie_word_embeddings", problem);
        }
        Ok(tied == Some(true))
    }

    fn activation(&self) -> Result<Activation, ModelError> {
        // Gemma's first files call their GELU `gelu` in `hidden_act` and mean the tanh form, which
        // `hidden_activation` says.
        for key in ["hidden_activation", "hidden_act"] {
            match self.meta.find_str(key)? {
                None => {}
                Some("silu" | "swish") => return Ok(Activation::Silu),
                Some("gelu_pytorch_tanh" | "gelu_new") => return Ok(Activation::GeluTanh),
                Some(other) => {
                    let problem =
                        format!("`{other}` is not supported; supported: silu, gelu_pytorch_tanh");
                    return self.fail(key, problem);
                }
            }
        }
        Ok(self.family.activation)
    }

    fn attention_scale(&self, head_dim: u32) -> Result<f32, ModelError> {
        if let Some(scale) = self.meta.find_f32("attention_multiplier")? {
            return Ok(scale);
        }
        let of = match self.meta.find_f32("query_pre_attn_scalar")? {
            Some(scalar) if scalar > 0.0 => scalar,
            Some(scalar) => {
                return self.fail("query_pre_attn_scalar", format!("{scalar} is not above 0"));
            }
            None => head_dim as f32,
        };
        Ok(1.0 / of.sqrt())
    }

    /// A soft cap; 0 is none.
    fn cap(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.meta.find_f32(key)? {
            Some(cap) if cap < 0.0 => self.fail(key, format!("{cap} is below 0")),
            cap => Ok(cap.filter(|cap| *cap > 0.0)),
        }
    }

    /// Per layer, the window.
    fn windows(&self, layers: u32) -> Result<Vec<Option<u32>>, ModelError> {
        let none = vec![None; layers as usize];
        let window = self.find("sliding_window")?;
        let used = self.meta.find_bool("use_sliding_window")?;
        if let Some(types) = self.meta.find_strs("layer_types")? {
            return self.listed_windows(&types, window, layers);
        }
        let Some(window) = window.filter(|_| used != Some(false)) else { return Ok(none) };
        let local: Vec<bool> = match self.family.windows {
            WindowRule::Never => {
                let family = self.family.name;
                return self.fail("sliding_window", format!("{family} models have no window"));
            }
            WindowRule::All => vec![true; layers as usize],
            WindowRule::AllBut(n) => {
                let mut n = n;
                for key in ["sliding_window_pattern", "_sliding_window_pattern"] {
                    n = self.find(key)?.unwrap_or(n);
                }
                all_but(layers, n).collect()
            }
            WindowRule::From if used.is_none() => vec![false; layers as usize],
            WindowRule::From => {
                let from = self.meta.find_u64("max_window_layers")?.unwrap_or(0);
                (0..layers).map(|l| u64::from(l) >= from).collect()
            }
        };
        Ok(local.into_iter().map(|local| local.then_some(window)).collect())
    }

    /// Windows of a file that says the type of every layer.
    fn listed_windows(
        &self,
        types: &[&str],
        window: Option<u32>,
        layers: u32,
    ) -> Result<Vec<Option<u32>>, ModelError> {
        if types.len() != layers as usize {
            let problem = format!("has {} entries for {layers} layers", types.len());
            return self.fail("layer_types", problem);
        }
        let one = |kind: &&str| match (*kind, window) {
            ("full_attention", _) => Ok(None),
            ("sliding_attention", Some(window)) => Ok(Some(window)),
            ("sliding_attention", None) => {
                self.fail("sliding_window", "is missing, but layers slide".to_string())
            }
            (other, _) => {
                let known = "full_attention, sliding_attention";
                self.fail("layer_types", format!("`{other}` is not supported; supported: {known}"))
            }
        };
        types.iter().map(one).collect()
    }

    /// The rotation of full layers, and that of window layers where it is another one.
    fn ropes(&self, head_dim: u32) -> Result<(Rope, Option<Rope>), ModelError> {
        let newer = "rope_parameters";
        let mut nested = Vec::new();
        for kind in ["full_attention", "sliding_attention"] {
            nested.push(self.table(&format!("{newer}.{kind}"))?);
        }
        let local_at = nested.pop().flatten();
        let newer = self.table(newer)?;
        let at = [nested.pop().flatten().or(newer), self.table("rope_scaling")?];
        let at: Vec<String> = at.into_iter().flatten().collect();
        let rope = self.rope(&at, "rope_theta", self.family.theta as f32, head_dim)?;
        let Some(theta) = self.family.local_theta else { return Ok((rope, None)) };
        let at: Vec<String> = local_at.into_iter().collect();
        let local = self.rope(&at, "rope_local_base_freq", theta as f32, head_dim)?;
        Ok((rope, Some(local)))
    }

    /// The key, if an object is there. Anything else there would be settings that nobody reads.
    fn table(&self, key: &str) -> Result<Option<String>, ModelError> {
        match self.meta.get(key) {
            None => Ok(None),
            Some(Value::Object(table)) if table.is_empty() => Ok(None),
            Some(Value::Object(_)) => Ok(Some(key.to_string())),
            Some(other) => self.fail(key, format!("{other} is no object")),
        }
    }

    /// A number that each object of `at` may have; those that do must agree.
    fn agreed(&self, at: &[String], tail: &str) -> Result<Option<f32>, ModelError> {
        let mut found = None;
        for key in at.iter().map(|at| format!("{at}.{tail}")) {
            match (found, self.meta.find_f32(&key)?) {
                (Some(one), Some(other)) if one != other => {
                    return self.fail(&key, format!("is {other}, but {}.{tail} is {one}", at[0]));
                }
                (one, other) => found = one.or(other),
            }
        }
        Ok(found)
    }

    fn rope(
        &self,
        at: &[String],
        old_key: &str,
        default: f32,
        head_dim: u32,
    ) -> Result<Rope, ModelError> {
        let (key, theta) = match self.agreed(at, "rope_theta")? {
            Some(theta) => (&*format!("{}.rope_theta", at[0]), theta),
            None => (old_key, self.meta.find_f32(old_key)?.unwrap_or(default)),
        };
        let part = match self.agreed(at, "partial_rotary_factor")? {
            Some(part) => part,
            None => self.meta.find_f32("partial_rotary_factor")?.unwrap_or(1.0),
        };
        if !(part > 0.0 && part <= 1.0) {
            return self.fail("partial_rotary_factor", format!("{part} is not in 0..=1"));
        }
        let rotary = (head_dim as f32 * part) as u32;
        let scaling = match at {
            [] => Scaling::None,
            [at] => Scaling::from_hf(self.file, self.meta, at)?,
            [newer, older, ..] => self.older_scaling(newer, older)?,
        };
        Ok(Rope { rotary, theta: above_zero(self.file, key, theta)?, scaling })
    }

    /// What `older` says where both are there: it stands, as in `transformers`, but a file whose
    /// `newer` asks for another stretching is refused.
    fn older_scaling(&self, newer: &str, older: &str) -> Result<Scaling, ModelError> {
        let older_says = Scaling::from_hf(self.file, self.meta, older)?;
        match Scaling::from_hf(self.file, self.meta, newer)? {
            Scaling::None => Ok(older_says),
            newer_says if newer_says == older_says => Ok(older_says),
            _ => self.fail(older, format!("and `{newer}` say different things; keep one")),
        }
    }

    /// Per layer, which rotation.
    fn rotations(
        &self,
        windows: &[Option<u32>],
        has_local: bool,
    ) -> Result<Vec<Rotation>, ModelError> {
        let listed = self.meta.find_u32s("no_rope_layers")?;
        if let Some(listed) = &listed
            && listed.len() != windows.len()
        {
            let problem = format!("has {} entries for {} layers", listed.len(), windows.len());
            return self.fail("no_rope_layers", problem);
        }
        let every = match (self.find("no_rope_layer_interval")?, self.family.no_rope_every) {
            (Some(every), Some(_)) => Some(every),
            (_, every) => every,
        };
        let rotates = |l: usize| match (&listed, every) {
            // Despite its name, the list says 1 where a layer does rotate.
            (Some(listed), _) => listed[l] != 0,
            (None, Some(every)) => !(l + 1).is_multiple_of(every as usize),
            (None, None) => true,
        };
        let one = |(l, window): (usize, &Option<u32>)| match window {
            _ if !rotates(l) => Rotation::None,
            Some(_) if has_local => Rotation::Local,
            _ => Rotation::Global,
        };
        Ok(windows.iter().enumerate().map(one).collect())
    }

    fn moe(&self, layers: u32) -> Result<Option<Moe>, ModelError> {
        let mut experts = None;
        for key in ["num_local_experts", "num_experts", "n_routed_experts"] {
            let found = self.meta.find_u64(key)?.filter(|n| *n > 0);
            if let Some(found) = found {
                if self.family.experts.is_none() {
                    let family = self.family.name;
                    return self.fail(key, format!("{found} experts, but {family} has none"));
                }
                experts = Some(count(self.file, key, found)?);
            }
        }
        let Some(experts) = experts else { return Ok(None) };
        for key in ["n_group", "topk_group"] {
            if self.meta.find_u64(key)?.is_some_and(|n| n > 1) {
                return self.fail(key, "groups of experts are not supported".to_string());
            }
        }
        let shared = self.meta.find_u64("n_shared_experts")?.unwrap_or(0);
        let ffn = match self.find("moe_intermediate_size")? {
            Some(ffn) => ffn,
            None => self.positive("intermediate_size")?,
        };
        let shared_ffn = match shared {
            0 => 0,
            n => count(self.file, "n_shared_experts", n.saturating_mul(u64::from(ffn)))?,
        };
        Ok(Some(Moe {
            experts,
            used: self.positive("num_experts_per_tok")?,
            ffn,
            shared_ffn,
            scoring: self.scoring()?,
            normalise: self.meta.find_bool("norm_topk_prob")?.unwrap_or(self.family.normalises),
            scale: self.meta.find_f32("routed_scaling_factor")?.unwrap_or(1.0),
            layers: self.expert_layers(layers)?,
        }))
    }

    fn scoring(&self) -> Result<Scoring, ModelError> {
        match self.meta.find_str("scoring_func")? {
            None | Some("softmax") => Ok(Scoring::Softmax),
            Some("sigmoid") => Ok(Scoring::Sigmoid),
            Some(other) => self.fail("scoring_func", format!("`{other}` is not supported")),
        }
    }

    /// Per layer, whether it has experts.
    fn expert_layers(&self, layers: u32) -> Result<Vec<bool>, ModelError> {
        let dense = self.meta.find_u32s("mlp_only_layers")?.unwrap_or_default();
        let step = self.find("decoder_sparse_step")?.unwrap_or(1);
        let from = self.meta.find_u64("first_k_dense_replace")?.unwrap_or(0);
        let frequency = self.find("moe_layer_freq")?.unwrap_or(1);
        let sparse = |l: u32| {
            !dense.contains(&l)
                && (l + 1).is_multiple_of(step)
                && u64::from(l) >= from
                && l.is_multiple_of(frequency)
        };
        Ok((0..layers).map(sparse).collect())
    }

    fn latent(&self) -> Result<Option<Latent>, ModelError> {
        if !self.family.latent {
            return Ok(None);
        }
        let small = |key: &str| -> Result<u32, ModelError> {
            match self.positive(key)? {
                value if value < 1 << 16 => Ok(value),
                value => self.fail(key, format!("{value} is too large")),
            }
        };
        Ok(Some(Latent {
            q_rank: self.find("q_lora_rank")?,
            rank: small("kv_lora_rank")?,
            rope: small("qk_rope_head_dim")?,
            nope: small("qk_nope_head_dim")?,
            value: small("v_head_dim")?,
        }))
    }

    /// What a stretched context does to the scores of a latent's attention: the square of YaRN's
    /// factor at `mscale_all_dim` (DeepSeek V2's own code).
    fn latent_scale(&self) -> Result<f32, ModelError> {
        for at in ["rope_parameters", "rope_scaling"] {
            let number = |tail: &str| self.meta.find_f32(&format!("{at}.{tail}"));
            if let (true, Some(factor), Some(scale)) =
                (self.family.latent, number("factor")?, number("mscale_all_dim")?)
            {
                return Ok(yarn_attention(factor, scale).powi(2));
            }
        }
        Ok(1.0)
    }
}
