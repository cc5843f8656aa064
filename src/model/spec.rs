//! [`Spec`]: the facts of a checkpoint that the forward pass needs, read from GGUF metadata or
//! config.json. A family is data here, never a copy of the model.

use super::family::{Activation, Bias, FAMILIES, Family};
use super::names::{Dialect, Part};
use super::rope::Scaling;
use super::rows::{QkvRow, gate_up};
use super::{Latent, ModelError, gguf, hf};
use crate::base::KvType;
use crate::kernels::attn::HEAD_DIMS;
use crate::kernels::experts::{EXPERTS_MAX, Scoring, USED_MAX};
use crate::weights::{Meta, Weights};

/// Rotary position embedding.
#[derive(Clone, PartialEq, Debug)]
pub struct Rope {
    /// Dimensions of a head that are rotated.
    pub rotary: u32,
    pub theta: f32,
    pub scaling: Scaling,
}

/// How a layer rotates q and k.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// Not at all.
    None,
    /// By [`Spec::rope`].
    Global,
    /// By [`Spec::local_rope`].
    Local,
}

/// Mixture of experts.
#[derive(Clone, PartialEq, Debug)]
pub struct Moe {
    pub experts: u32,
    /// Experts of a token.
    pub used: u32,
    /// Rows of an expert's gate, and of that of the experts all tokens use (0: there are none).
    pub ffn: u32,
    pub shared_ffn: u32,
    pub scoring: Scoring,
    /// The weights of a token's experts add up to `scale`.
    pub normalise: bool,
    pub scale: f32,
    /// Per layer, whether it has experts in place of a dense feed-forward.
    pub layers: Vec<bool>,
}

impl Moe {
    /// What GGUF files call the scoring.
    pub fn gating(&self) -> u32 {
        match self.scoring {
            Scoring::Softmax => 1,
            Scoring::Sigmoid => 2,
        }
    }
}

/// Rows of a stored tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    /// Without `.weight` or `.bias`.
    pub stem: String,
    /// First row of the part in the tensor, and the rows of the whole tensor.
    pub first: u32,
    pub of: u32,
}

/// Rows stored as adjacent rotary pairs: `len` of every `head`, from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pairs {
    pub head: u32,
    pub first: u32,
    pub len: u32,
}

impl Pairs {
    /// The rows of every head, from adjacent rotary pairs (2i, 2i + 1) to halves (i, i + n/2), or
    /// back (`adjacent`).
    pub fn turned(self, raw: &[u8], rows: usize, adjacent: bool) -> Vec<u8> {
        let row_bytes = raw.len() / rows;
        let [head, first, len] = [self.head, self.first, self.len].map(|n| n as usize);
        let mut out = Vec::with_capacity(raw.len());
        for row in 0..rows {
            let from = match (row % head).checked_sub(first).filter(|i| *i < len) {
                Some(i) if adjacent => row - i + i / 2 + i % 2 * (len / 2),
                Some(i) => row - i + i % (len / 2) * 2 + i / (len / 2),
                None => row,
            };
            out.extend_from_slice(&raw[from * row_bytes..][..row_bytes]);
        }
        out
    }
}

/// What differs between models.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// As the file calls it.
    pub architecture: String,
    pub family: &'static Family,
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
    /// Added to every stored norm weight.
    pub norm_offset: f32,
    pub activation: Activation,
    pub rope: Rope,
    /// The rotation of window layers, where it is another one.
    pub local_rope: Option<Rope>,
    /// Per layer.
    pub rotations: Vec<Rotation>,
    /// Per layer, the keys that a token sees, itself included: query i sees key j where
    /// i - window < j <= i. `None` for all.
    pub windows: Vec<Option<u32>>,
    /// Factor of the scores.
    pub attention_scale: f32,
    /// Scores of attention, and logits, become cap * tanh(value / cap).
    pub attention_cap: Option<f32>,
    pub logit_cap: Option<f32>,
    /// Factors of the embeddings, of what a block adds to the residual, and of the logits.
    pub embedding_scale: f32,
    pub residual_scale: f32,
    pub logit_scale: f32,
    pub moe: Option<Moe>,
    /// Then `head_dim` is that of the cached row, and there is one kv head.
    pub latent: Option<Latent>,
    /// The head is the embedding.
    pub tied_head: bool,
    /// q and k rows are stored with adjacent rotary pairs (GGUF of the llama kind).
    pub adjacent_pairs: bool,
    /// Biases that must be there; others are used where the file has them.
    pub attention_bias: Bias,
    pub mlp_bias: bool,
    pub dialect: Dialect,
}

impl Spec {
    pub fn read(weights: &Weights) -> Result<Self, ModelError> {
        let (architecture, family) = match weights.meta() {
            Meta::Gguf(meta) => {
                let found = meta.architecture()?;
                let experts = meta.find_u64(&format!("{found}.expert_count"))?;
                (found, Family::of_gguf(found, experts.is_some_and(|n| n > 0)))
            }
            Meta::Hf(meta) => {
                let found = meta.architecture()?;
                (found, Family::of_hf(found))
            }
        };
        let Some(family) = family else {
            let names: Vec<&str> = match weights.meta() {
                Meta::Gguf(_) => FAMILIES.iter().filter_map(|f| f.gguf).collect(),
                Meta::Hf(_) => FAMILIES.iter().map(|f| f.hf).collect(),
            };
            let mut supported = Vec::new();
            for name in names {
                if !supported.contains(&name) {
                    supported.push(name);
                }
            }
            return Err(ModelError::Architecture {
                file: weights.name().into(),
                found: architecture.into(),
                supported: supported.join(", "),
            });
        };
        let spec = match weights.meta() {
            Meta::Gguf(meta) => gguf::read(weights, meta, family)?,
            Meta::Hf(meta) => hf::read(weights, meta, family)?,
        };
        spec.check(weights.name())?;
        Ok(spec)
    }

    /// Values of one row of q (and of the attention output).
    pub fn q_dim(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Values of one row that the output product takes.
    pub(super) fn out_dim(&self) -> u32 {
        self.latent.map_or(self.q_dim(), |latent| self.heads * latent.value)
    }

    /// Values of one row of q as the model makes it, before anything is folded into it.
    pub(super) fn own_q_dim(&self) -> u32 {
        self.latent.map_or(self.q_dim(), |latent| self.heads * latent.q_head())
    }

    /// First rotated dimension of a head.
    pub(super) fn rope_first(&self) -> u32 {
        self.latent.map_or(0, |latent| latent.rank)
    }

    /// Values of one row of k or v.
    pub fn kv_dim(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Values of a token in the widest buffer of a step's scratch.
    pub fn widest_row(&self) -> u32 {
        let q = QkvRow::of(self).stride.max(self.own_q_dim()).max(self.out_dim());
        let dense = self.widest_ffn(|dim| gate_up(dim).1).max(self.hidden).max(q);
        let pairs = |moe: &Moe| moe.used.saturating_mul(self.hidden.next_multiple_of(32));
        dense.max(self.moe.as_ref().map_or(0, pairs))
    }

    /// Values of a token where a gate of so many takes `row` of them: those of all its experts, or
    /// of the widest dense feed-forward.
    pub(super) fn widest_ffn(&self, row: impl Fn(u32) -> u32) -> u32 {
        let of = |moe: &Moe| moe.used.saturating_mul(row(moe.ffn)).max(row(moe.shared_ffn));
        row(self.ffn).max(self.moe.as_ref().map_or(0, of))
    }

    /// The experts of layer `l`, if it has any.
    pub(super) fn moe_of(&self, l: u32) -> Option<&Moe> {
        self.moe.as_ref().filter(|moe| moe.layers[l as usize])
    }

    /// Bytes of K and V of one token in all layers, stored as `kv`.
    pub fn kv_bytes_per_token(&self, kv: KvType) -> u64 {
        u64::from(self.layers) * self.caches() * self.cache_bytes_per_token(kv)
    }

    /// Caches of a layer: K and V, or the latent alone.
    pub fn caches(&self) -> u64 {
        if self.latent.is_some() { 1 } else { 2 }
    }

    /// Bytes of K, or of V, of one token in one layer.
    pub fn cache_bytes_per_token(&self, kv: KvType) -> u64 {
        u64::from(self.kv_heads) * kv.row_bytes(self.head_dim)
    }

    /// The rotation of layer `l`.
    pub fn rope_of(&self, l: u32) -> Option<&Rope> {
        match self.rotations[l as usize] {
            Rotation::None => None,
            Rotation::Global => Some(&self.rope),
            Rotation::Local => self.local_rope.as_ref(),
        }
    }

    /// Where the rows of `part` of layer `l` are stored; the part has `rows` of them.
    pub(super) fn stored(&self, part: Part, l: u32, rows: u32) -> Stored {
        let stem = self.dialect.stem(self.family, part, l);
        let (q, kv) = (self.q_dim(), self.kv_dim());
        let (first, of) = match part {
            _ if !self.family.fused => (0, rows),
            Part::Q => (0, q + 2 * kv),
            Part::K => (q, q + 2 * kv),
            Part::V => (q + kv, q + 2 * kv),
            Part::Gate => (0, 2 * self.ffn),
            Part::Up => (self.ffn, 2 * self.ffn),
            _ => (0, rows),
        };
        Stored { stem, first, of }
    }

    /// The rows of `part` that are stored as adjacent rotary pairs.
    pub(super) fn pairs(&self, part: Part) -> Option<Pairs> {
        if let Some(Latent { rank, rope, nope, .. }) = self.latent
            && self.adjacent_pairs
        {
            return match part {
                Part::Q | Part::QUp => Some(Pairs { head: nope + rope, first: nope, len: rope }),
                Part::LatentDown => Some(Pairs { head: rank + rope, first: rank, len: rope }),
                _ => None,
            };
        }
        let head = self.head_dim;
        match part {
            Part::Q | Part::K if self.adjacent_pairs => Some(Pairs { head, first: 0, len: head }),
            _ => None,
        }
    }

    /// The widest window of all layers; `None` if any sees everything. Keys further back than
    /// this are never read again.
    pub fn widest_window(&self) -> Option<u32> {
        let widest = |all: Option<u32>, one: &Option<u32>| Some(all?.max((*one)?));
        self.windows.iter().fold(Some(0), widest)
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
        for rope in [Some(&self.rope), self.local_rope.as_ref()].into_iter().flatten() {
            if !rope.rotary.is_multiple_of(8) || rope.rotary > self.head_dim {
                let (rotary, head) = (rope.rotary, self.head_dim);
                let problem = format!("{rotary} of a head of {head}, not a multiple of 8");
                return fail("rope dimensions", problem);
            }
        }
        // Rows of q are counted in 32 bits, those of fused tensors too.
        if self.heads >= 1 << 20 || self.ffn >= 1 << 29 {
            let (heads, ffn) = (self.heads, self.ffn);
            return fail("heads and ffn", format!("{heads} and {ffn} are too many"));
        }
        if let Some((key, problem)) = self.latent.and_then(|latent| self.against(latent)) {
            return fail(key, problem);
        }
        if let Some(Moe { experts, used, .. }) = self.moe
            && (experts > EXPERTS_MAX || used > USED_MAX || used > experts)
        {
            let problem = format!(
                "{used} of {experts} experts; at most {USED_MAX} of {EXPERTS_MAX} are supported"
            );
            return fail("experts", problem);
        }
        if !self.hidden.is_multiple_of(4) {
            return fail("hidden_size", format!("{} is no multiple of 4", self.hidden));
        }
        Ok(())
    }

    /// The key of a latent's widths that kernels cannot do with, and why.
    fn against(&self, latent: Latent) -> Option<(&'static str, String)> {
        let Latent { q_rank, rank, rope, nope, value } = latent;
        let heads = self.heads;
        if !rank.is_multiple_of(32) || !(nope + rope).is_multiple_of(32) || value >= 1 << 16 {
            let problem = format!(
                "latents of {rank}, q of {nope} + {rope}: multiples of 32 are supported; \
                 values {value}"
            );
            return Some(("kv_lora_rank", problem));
        }
        // Rows of q, keys and values of all heads are counted in 32 bits, together too.
        if u64::from(heads) * (u64::from(nope + rope) + u64::from(value)) >= 1 << 30 {
            let problem = format!("{heads} heads of {nope} + {rope} and {value} are too many");
            return Some(("head_count", problem));
        }
        // The values of all heads lie where q was: a tail behind them would still be of q.
        if !(heads * value).is_multiple_of(32) {
            let problem = format!("{heads} heads of {value}: no multiple of 32 in all");
            return Some(("v_head_dim", problem));
        }
        if let Some(q_rank) = q_rank.filter(|rank| !rank.is_multiple_of(4)) {
            return Some(("q_lora_rank", format!("{q_rank} is no multiple of 4")));
        }
        // Adjacent pairs become halves by the latent's own width, whatever is rotated of it.
        let rotary = self.rope.rotary;
        let problem = || format!("rotates {rotary} of the {rope} beside a latent, not all");
        (rotary != rope).then(|| ("partial_rotary_factor", problem()))
    }
}

/// A count that must fit kernels' 32-bit indices.
pub(super) fn count(file: &str, key: &str, value: u64) -> Result<u32, ModelError> {
    u32::try_from(value).ok().filter(|v| *v > 0 && *v < 1 << 30).ok_or_else(|| {
        let problem = format!("{value} is out of range 1..2^30");
        ModelError::Config { file: file.into(), key: key.into(), problem }
    })
}

/// A number that must be above 0: what divides by it, or takes its root, gives no number else.
pub(super) fn above_zero(file: &str, key: &str, value: f32) -> Result<f32, ModelError> {
    if value > 0.0 {
        return Ok(value);
    }
    let problem = format!("{value} is not above 0");
    Err(ModelError::Config { file: file.into(), key: key.into(), problem })
}

/// A count of layers; lists of one entry each are made for it.
pub(super) fn layers(file: &str, key: &str, value: u64) -> Result<u32, ModelError> {
    let value = count(file, key, value)?;
    if value < 1 << 16 {
        return Ok(value);
    }
    let problem = format!("{value} are too many");
    Err(ModelError::Config { file: file.into(), key: key.into(), problem })
}

/// Rows of the embedding, whatever else the file says of its vocabulary.
pub(super) fn vocab(weights: &Weights, name: &str, hidden: u32) -> Result<u32, ModelError> {
    let rows = weights.tensor(name).map_or(0, crate::weights::Tensor::rows);
    weights.expect(name, &[rows, u64::from(hidden)])?;
    count(weights.name(), name, rows)
}

/// Per layer, whether its window applies: all but every `n`-th (1-based).
pub(super) fn all_but(layers: u32, n: u32) -> impl Iterator<Item = bool> {
    (0..layers).map(move |l| n == 0 || !(l + 1).is_multiple_of(n))
}
