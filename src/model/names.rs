//! How the two kinds of file call the same tensors.

use super::Family;
use super::family::{EXPERTS, Norms};

/// A tensor's place in a decoder; those of a layer come with its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Embedding,
    FinalNorm,
    Head,
    AttentionNorm,
    Q,
    K,
    V,
    QNorm,
    KNorm,
    AttentionOut,
    /// Of a latent: q by way of a narrow row, where it is; the shared row of keys and values, and
    /// what makes keys and values of all heads from it.
    QDown,
    QDownNorm,
    QUp,
    LatentDown,
    LatentNorm,
    LatentUp,
    /// The same in two, one head after the other, that of keys transposed.
    LatentKeys,
    LatentValues,
    AttentionPostNorm,
    FfnNorm,
    Gate,
    Up,
    Down,
    FfnPostNorm,
    /// Logits of the experts.
    Router,
    /// Added to the experts' scores for the choice alone; a whole name.
    RouterBias,
    /// Of one expert; all of a layer are one tensor in GGUF files.
    ExpertGate(u32),
    ExpertUp(u32),
    ExpertDown(u32),
    /// Of the experts that every token uses, as one.
    SharedGate,
    SharedUp,
    SharedDown,
}

/// The naming of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    Gguf,
    Hf {
        /// `model.`, or nothing in checkpoints saved without the outer module.
        prefix: &'static str,
    },
}

impl Dialect {
    /// The name without `.weight` or `.bias`.
    pub fn stem(self, family: &Family, part: Part, layer: u32) -> String {
        match self {
            Dialect::Gguf => gguf(family, part, layer),
            Dialect::Hf { prefix } => hf(family, part, layer, prefix),
        }
    }

    /// What the names of the tensors of a layer begin with.
    pub fn layer(self, layer: u32) -> String {
        match self {
            Dialect::Gguf => format!("blk.{layer}."),
            Dialect::Hf { prefix } => format!("{prefix}layers.{layer}."),
        }
    }
}

fn gguf(family: &Family, part: Part, layer: u32) -> String {
    let tail = match part {
        Part::Embedding => return "token_embd".into(),
        Part::FinalNorm => return "output_norm".into(),
        Part::Head => return "output".into(),
        Part::Q | Part::K | Part::V if family.fused => "attn_qkv",
        Part::Gate if family.fused => "ffn_up",
        Part::AttentionNorm => "attn_norm",
        Part::Q => "attn_q",
        Part::K => "attn_k",
        Part::V => "attn_v",
        Part::QNorm => "attn_q_norm",
        Part::KNorm => "attn_k_norm",
        Part::AttentionOut => "attn_output",
        Part::QDown => "attn_q_a",
        Part::QDownNorm => "attn_q_a_norm",
        Part::QUp => "attn_q_b",
        Part::LatentDown => "attn_kv_a_mqa",
        Part::LatentNorm => "attn_kv_a_norm",
        Part::LatentUp => "attn_kv_b",
        Part::LatentKeys => "attn_k_b",
        Part::LatentValues => "attn_v_b",
        Part::AttentionPostNorm => "post_attention_norm",
        Part::FfnNorm => "ffn_norm",
        Part::Gate => "ffn_gate",
        Part::Up => "ffn_up",
        Part::Down => "ffn_down",
        Part::FfnPostNorm => "post_ffw_norm",
        Part::Router => "ffn_gate_inp",
        Part::RouterBias => "exp_probs_b.bias",
        Part::ExpertGate(_) => "ffn_gate_exps",
        Part::ExpertUp(_) => "ffn_up_exps",
        Part::ExpertDown(_) => "ffn_down_exps",
        Part::SharedGate => "ffn_gate_shexp",
        Part::SharedUp => "ffn_up_shexp",
        Part::SharedDown => "ffn_down_shexp",
    };
    format!("blk.{layer}.{tail}")
}

fn hf(family: &Family, part: Part, layer: u32, prefix: &str) -> String {
    let names = family.experts.unwrap_or(EXPERTS);
    let expert = |e: u32, name: &str| {
        let block = names.block;
        format!("{prefix}layers.{layer}.{block}.experts.{e}.{name}")
    };
    let tail = match part {
        Part::Router => return format!("{prefix}layers.{layer}.{}.gate", names.block),
        Part::RouterBias => "mlp.gate.e_score_correction_bias",
        Part::ExpertGate(e) => return expert(e, names.gate),
        Part::ExpertUp(e) => return expert(e, names.up),
        Part::ExpertDown(e) => return expert(e, names.down),
        Part::SharedGate => "mlp.shared_experts.gate_proj",
        Part::SharedUp => "mlp.shared_experts.up_proj",
        Part::SharedDown => "mlp.shared_experts.down_proj",
        Part::Embedding => return format!("{prefix}embed_tokens"),
        Part::FinalNorm => return format!("{prefix}norm"),
        Part::Head => return "lm_head".into(),
        Part::Q | Part::K | Part::V if family.fused => "self_attn.qkv_proj",
        Part::Gate | Part::Up if family.fused => "mlp.gate_up_proj",
        Part::AttentionNorm => "input_layernorm",
        Part::Q => "self_attn.q_proj",
        Part::K => "self_attn.k_proj",
        Part::V => "self_attn.v_proj",
        Part::QNorm => "self_attn.q_norm",
        Part::KNorm => "self_attn.k_norm",
        Part::AttentionOut => "self_attn.o_proj",
        Part::QDown => "self_attn.q_a_proj",
        Part::QDownNorm => "self_attn.q_a_layernorm",
        Part::QUp => "self_attn.q_b_proj",
        Part::LatentDown => "self_attn.kv_a_proj_with_mqa",
        Part::LatentNorm => "self_attn.kv_a_layernorm",
        Part::LatentUp => "self_attn.kv_b_proj",
        Part::LatentKeys => "self_attn.k_b_proj",
        Part::LatentValues => "self_attn.v_b_proj",
        // What follows attention in a block that normalises before is the feed-forward's norm.
        Part::FfnNorm if family.norms == Norms::Before => "post_attention_layernorm",
        Part::FfnNorm => "pre_feedforward_layernorm",
        Part::AttentionPostNorm => "post_attention_layernorm",
        Part::Gate => "mlp.gate_proj",
        Part::Up => "mlp.up_proj",
        Part::Down => "mlp.down_proj",
        Part::FfnPostNorm => "post_feedforward_layernorm",
    };
    format!("{prefix}layers.{layer}.{tail}")
}
