//! How the two kinds of file call the same tensors.

/// A tensor's place in a decoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Embedding,
    FinalNorm,
    Head,
    AttentionNorm(u32),
    Q(u32),
    K(u32),
    V(u32),
    AttentionOut(u32),
    FfnNorm(u32),
    Gate(u32),
    Up(u32),
    Down(u32),
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
    pub fn stem(self, place: Place) -> String {
        match self {
            Dialect::Gguf => gguf(place),
            Dialect::Hf { prefix } => hf(place, prefix),
        }
    }
}

fn gguf(place: Place) -> String {
    let (layer, tail) = match place {
        Place::Embedding => return "token_embd".into(),
        Place::FinalNorm => return "output_norm".into(),
        Place::Head => return "output".into(),
        Place::AttentionNorm(l) => (l, "attn_norm"),
        Place::Q(l) => (l, "attn_q"),
        Place::K(l) => (l, "attn_k"),
        Place::V(l) => (l, "attn_v"),
        Place::AttentionOut(l) => (l, "attn_output"),
        Place::FfnNorm(l) => (l, "ffn_norm"),
        Place::Gate(l) => (l, "ffn_gate"),
        Place::Up(l) => (l, "ffn_up"),
        Place::Down(l) => (l, "ffn_down"),
    };
    format!("blk.{layer}.{tail}")
}

fn hf(place: Place, prefix: &str) -> String {
    let (layer, tail) = match place {
        Place::Embedding => return format!("{prefix}embed_tokens"),
        Place::FinalNorm => return format!("{prefix}norm"),
        Place::Head => return "lm_head".into(),
        Place::AttentionNorm(l) => (l, "input_layernorm"),
        Place::Q(l) => (l, "self_attn.q_proj"),
        Place::K(l) => (l, "self_attn.k_proj"),
        Place::V(l) => (l, "self_attn.v_proj"),
        Place::AttentionOut(l) => (l, "self_attn.o_proj"),
        Place::FfnNorm(l) => (l, "post_attention_layernorm"),
        Place::Gate(l) => (l, "mlp.gate_proj"),
        Place::Up(l) => (l, "mlp.up_proj"),
        Place::Down(l) => (l, "mlp.down_proj"),
    };
    format!("{prefix}layers.{layer}.{tail}")
}
