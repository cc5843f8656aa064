//! [`Spec`]: the facts of a checkpoint that the forward pass needs, read from GGUF metadata or
//! config.json. A family is data here, never a copy of the model.

use super::ModelError;
use super::names::Dialect;
use super::rope::Scaling;
use crate::kernels::attn::HEAD_DIMS;
use crate::weights::{GgufMeta, HfMeta, Meta, Weights};

/// Rotary position embedding.
#[derive(Clone, PartialEq, Debug)]
pub struct Rope {
    /// Dimensions of a head that are rotated.
    pub rotary: u32,
    pub theta: f32,
    pub scaling: Scaling,
}

/// What differs between models.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    pub architecture: String,
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub ffn: u32,
    /// Rows of the embedding and of the logits.
    pub vocab: u32,
    /// Positions the model was made for.
    pub context: u32,
    pub norm_eps: f32,
    pub rope: Rope,
    /// Factor of the scores, 1 / sqrt(head_dim).
    pub attention_scale: f32,
    /// The head is the embedding.
    pub tied_head: bool,
    /// q and k rows are stored with adjacent rotary pairs (GGUF of the llama kind).
    pub adjacent_pairs: bool,
    /// Biases that must be there; others are used where the file has them.
    pub attention_bias: bool,
    pub mlp_bias: bool,
    pub dialect: Dialect,
}

/// Architectures this version runs.
const ARCHITECTURES: [&str; 1] = ["llama"];

impl Spec {
    pub fn read(weights: &Weights) -> Result<Self, ModelError> {
        let architecture = match weights.meta() {
            Meta::Gguf(meta) => meta.architecture()?,
            Meta::Hf(meta) => meta.architecture()?,
        };
        if !ARCHITECTURES.contains(&architecture) {
            return Err(ModelError::Architecture {
                file: weights.name().into(),
                found: architecture.into(),
                supported: ARCHITECTURES.join(", "),
            });
        }
        let spec = match weights.meta() {
            Meta::Gguf(meta) => from_gguf(weights, meta, architecture)?,
            Meta::Hf(meta) => from_hf(weights, meta)?,
        };
        spec.check(weights.name())?;
        Ok(spec)
    }

    /// Values of one row of q (and of the attention output).
    pub fn q_dim(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Values of one row of k or v.
    pub fn kv_dim(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Bytes of K and V of one token in all layers, at four bytes a value.
    pub fn kv_bytes_per_token(&self) -> u64 {
        u64::from(self.layers) * u64::from(self.kv_dim()) * 2 * 4
    }

    fn check(&self, file: &str) -> Result<(), ModelError> {
        let fail = |key: &str, problem: String| {
            Err(ModelError::Config { file: file.into(), key: key.into(), problem })
        };
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (q, kv) = (self.heads, self.kv_heads);
            return fail("head_count", format!("{q} heads are no multiple of {kv} kv heads"));
        }
        if !HEAD_DIMS.contains(&self.head_dim) {
            let known = HEAD_DIMS.map(|d| d.to_string()).join(", ");
            return fail("head_dim", format!("{} is not one of {known}", self.head_dim));
        }
        if !self.rope.rotary.is_multiple_of(2) || self.rope.rotary > self.head_dim {
            let (rotary, head) = (self.rope.rotary, self.head_dim);
            return fail("rope dimensions", format!("{rotary} of a head of {head}"));
        }
        // Rows of q and the caches of all layers are counted in 32 and 64 bits.
        if self.heads >= 1 << 20 || self.layers >= 1 << 16 {
            let (heads, layers) = (self.heads, self.layers);
            return fail("layers and heads", format!("{layers} and {heads} are too many"));
        }
        if !self.hidden.is_multiple_of(4) {
            return fail("hidden_size", format!("{} is no multiple of 4", self.hidden));
        }
        Ok(())
    }
}

/// A count that must fit kernels' 32-bit indices.
fn count(file: &str, key: &str, value: u64) -> Result<u32, ModelError> {
    u32::try_from(value).ok().filter(|v| *v > 0 && *v < 1 << 30).ok_or_else(|| {
        let problem = format!("{value} is out of range 1..2^30");
        ModelError::Config { file: file.into(), key: key.into(), problem }
    })
}

/// Rows of the embedding, whatever else the file says of its vocabulary.
fn vocab(weights: &Weights, name: &str, hidden: u32) -> Result<u32, ModelError> {
    let rows = weights.tensor(name).map_or(0, crate::weights::Tensor::rows);
    weights.expect(name, &[rows, u64::from(hidden)])?;
    count(weights.name(), name, rows)
}

fn from_gguf(weights: &Weights, meta: &GgufMeta, arch: &str) -> Result<Spec, ModelError> {
    let file = weights.name();
    let key = |tail: &str| format!("{arch}.{tail}");
    let positive = |tail: &str| -> Result<u32, ModelError> {
        count(file, &key(tail), meta.positive(&key(tail))?)
    };
    let find = |tail: &str| -> Result<Option<u32>, ModelError> {
        meta.find_u64(&key(tail))?.map(|v| count(file, &key(tail), v)).transpose()
    };
    let (hidden, heads) = (positive("embedding_length")?, positive("attention.head_count")?);
    let head_dim = match find("attention.key_length")? {
        Some(length) => length,
        None => hidden / heads,
    };
    let rotary = find("rope.dimension_count")?.unwrap_or(head_dim);
    Ok(Spec {
        architecture: arch.into(),
        layers: positive("block_count")?,
        hidden,
        heads,
        kv_heads: find("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        ffn: positive("feed_forward_length")?,
        vocab: vocab(weights, "token_embd.weight", hidden)?,
        context: positive("context_length")?,
        norm_eps: meta.f32(&key("attention.layer_norm_rms_epsilon"))?,
        rope: Rope {
            rotary,
            theta: meta.find_f32(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            scaling: Scaling::from_gguf(weights, meta, arch, rotary)?,
        },
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        tied_head: weights.tensor("output.weight").is_none(),
        adjacent_pairs: true,
        attention_bias: false,
        mlp_bias: false,
        dialect: Dialect::Gguf,
    })
}

fn from_hf(weights: &Weights, meta: &HfMeta) -> Result<Spec, ModelError> {
    let file = weights.name();
    let positive = |key: &str| -> Result<u32, ModelError> { count(file, key, meta.positive(key)?) };
    let find = |key: &str| -> Result<Option<u32>, ModelError> {
        meta.find_u64(key)?.map(|v| count(file, key, v)).transpose()
    };
    let prefix = if weights.tensor("embed_tokens.weight").is_some() { "" } else { "model." };
    let (hidden, heads) = (positive("hidden_size")?, positive("num_attention_heads")?);
    let head_dim = match find("head_dim")? {
        Some(dim) => dim,
        None => hidden / heads,
    };
    let has_head = weights.tensor("lm_head.weight").is_some();
    let tied = meta.find_bool("tie_word_embeddings")?;
    if tied != Some(true) && !has_head {
        return Err(ModelError::Config {
            file: file.into(),
            key: "tie_word_embeddings".into(),
            problem: "is not true, but there is no tensor `lm_head.weight`".into(),
        });
    }
    if let Some(act) = meta.find_str("hidden_act")?
        && act != "silu"
    {
        let problem = format!("`{act}` is not supported; supported: silu");
        return Err(ModelError::Config { file: file.into(), key: "hidden_act".into(), problem });
    }
    let theta = match meta.find_f32("rope_parameters.rope_theta")? {
        Some(theta) => theta,
        None => meta.find_f32("rope_theta")?.unwrap_or(10_000.0),
    };
    Ok(Spec {
        architecture: meta.architecture()?.into(),
        layers: positive("num_hidden_layers")?,
        hidden,
        heads,
        kv_heads: find("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        ffn: positive("intermediate_size")?,
        vocab: vocab(weights, &format!("{prefix}embed_tokens.weight"), hidden)?,
        context: positive("max_position_embeddings")?,
        norm_eps: meta.f32("rms_norm_eps")?,
        rope: Rope { rotary: head_dim, theta, scaling: Scaling::from_hf(weights, meta)? },
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        tied_head: tied == Some(true),
        adjacent_pairs: false,
        attention_bias: meta.find_bool("attention_bias")?.unwrap_or(false),
        mlp_bias: meta.find_bool("mlp_bias")?.unwrap_or(false),
        dialect: Dialect::Hf { prefix },
    })
}
