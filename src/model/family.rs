//! The families of models this version runs, as data: what a config or a GGUF file of each means
//! beyond its own keys. A family never has code of its own in the forward pass.
//!
//! Sources: the families' model cards and papers; `transformers` for the meaning of config.json;
//! llama.cpp's converter for which GGUF files reorder the rows of q and k.

/// Where a block normalises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norms {
    /// What enters attention and feed-forward.
    Before,
    /// What leaves them, before it is added to the residual (OLMo 2).
    After,
    /// Both (Gemma 2 and 3).
    Both,
}

/// Norms of q and k before they are rotated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QkNorm {
    None,
    /// Each head by itself, one weight vector for all heads.
    Heads,
    /// The whole row.
    Row,
}

/// The gate of the feed-forward: `act(gate) * up`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// Biases that a family's files must have; others are used where a file has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bias {
    None,
    /// Of q, k and v.
    Qkv,
    /// Of q, k, v and the output.
    Attention,
}

/// Which layers see a window of keys, where the file does not say so layer by layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowRule {
    /// The family has no windows.
    Never,
    /// All layers, if there is a window at all.
    All,
    /// All but every n-th.
    AllBut(u32),
    /// Layers from `max_window_layers` on, if `use_sliding_window` says so.
    From,
}

/// How a family's safetensors call their experts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpertNames {
    pub block: &'static str,
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
}

/// One family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// As the documents call it.
    pub name: &'static str,
    /// `model_type` of config.json.
    pub hf: &'static str,
    /// `general.architecture` of GGUF files; the first family with it reads them.
    pub gguf: Option<&'static str>,
    pub norms: Norms,
    /// Safetensors store norm weights as w - 1 (GGUF files of all families store w).
    pub norm_minus_one: bool,
    pub qk_norm: QkNorm,
    pub bias: Bias,
    /// q, k and v are rows of one tensor, and so are gate and up.
    pub fused: bool,
    /// GGUF files hold the rows of q and k as adjacent rotary pairs.
    pub gguf_pairs: bool,
    pub activation: Activation,
    /// The head is the embedding where config.json does not say.
    pub tied: bool,
    /// Embeddings are multiplied by sqrt(hidden).
    pub root_scale: bool,
    pub windows: WindowRule,
    /// Every n-th layer does not rotate, where the file does not say which.
    pub no_rope_every: Option<u32>,
    /// Base of the rotation of window layers, where it is not that of the others.
    pub local_theta: Option<u32>,
    /// Base of the rotation if the file does not say.
    pub theta: u32,
    /// The multipliers of Granite.
    pub multipliers: bool,
    pub experts: Option<ExpertNames>,
    /// Weights of the chosen experts sum to 1 where the file does not say.
    pub normalises: bool,
    /// Keys and values are made from a shared latent row (DeepSeek V2).
    pub latent: bool,
}

const LLAMA: Family = Family {
    name: "Llama",
    hf: "llama",
    gguf: Some("llama"),
    norms: Norms::Before,
    norm_minus_one: false,
    qk_norm: QkNorm::None,
    bias: Bias::None,
    fused: false,
    gguf_pairs: true,
    activation: Activation::Silu,
    tied: false,
    root_scale: false,
    windows: WindowRule::Never,
    no_rope_every: None,
    local_theta: None,
    theta: 10_000,
    multipliers: false,
    experts: None,
    normalises: true,
    latent: false,
};

const QWEN3: Family = Family {
    name: "Qwen 3",
    hf: "qwen3",
    gguf: Some("qwen3"),
    qk_norm: QkNorm::Heads,
    gguf_pairs: false,
    windows: WindowRule::From,
    ..LLAMA
};

const GEMMA2: Family = Family {
    name: "Gemma 2",
    hf: "gemma2",
    gguf: Some("gemma2"),
    norms: Norms::Both,
    norm_minus_one: true,
    gguf_pairs: false,
    activation: Activation::GeluTanh,
    tied: true,
    root_scale: true,
    windows: WindowRule::AllBut(2),
    ..LLAMA
};

/// Names of experts beside a dense block of the same layout.
pub(super) const EXPERTS: ExpertNames =
    ExpertNames { block: "mlp", gate: "gate_proj", up: "up_proj", down: "down_proj" };

/// All families.
pub const FAMILIES: [Family; 13] = [
    LLAMA,
    Family { name: "Mistral", hf: "mistral", windows: WindowRule::All, ..LLAMA },
    Family {
        name: "Mixtral",
        hf: "mixtral",
        windows: WindowRule::All,
        experts: Some(ExpertNames { block: "block_sparse_moe", gate: "w1", up: "w3", down: "w2" }),
        ..LLAMA
    },
    Family {
        name: "Qwen 2",
        hf: "qwen2",
        gguf: Some("qwen2"),
        bias: Bias::Qkv,
        gguf_pairs: false,
        windows: WindowRule::From,
        ..LLAMA
    },
    QWEN3,
    Family {
        name: "Qwen 3 MoE",
        hf: "qwen3_moe",
        gguf: Some("qwen3moe"),
        experts: Some(EXPERTS),
        ..QWEN3
    },
    GEMMA2,
    Family {
        name: "Gemma 3",
        hf: "gemma3_text",
        gguf: Some("gemma3"),
        qk_norm: QkNorm::Heads,
        windows: WindowRule::AllBut(6),
        local_theta: Some(10_000),
        theta: 1_000_000,
        ..GEMMA2
    },
    Family {
        name: "Phi 3",
        hf: "phi3",
        gguf: Some("phi3"),
        fused: true,
        gguf_pairs: false,
        windows: WindowRule::All,
        ..LLAMA
    },
    Family {
        name: "SmolLM 3",
        hf: "smollm3",
        gguf: Some("smollm3"),
        windows: WindowRule::From,
        no_rope_every: Some(4),
        ..LLAMA
    },
    Family {
        name: "OLMo 2",
        hf: "olmo2",
        gguf: Some("olmo2"),
        norms: Norms::After,
        qk_norm: QkNorm::Row,
        gguf_pairs: false,
        ..LLAMA
    },
    Family { name: "Granite", hf: "granite", gguf: Some("granite"), multipliers: true, ..LLAMA },
    Family {
        name: "DeepSeek V2",
        hf: "deepseek_v2",
        gguf: Some("deepseek2"),
        experts: Some(EXPERTS),
        normalises: false,
        latent: true,
        ..LLAMA
    },
];

impl Family {
    /// The family that config.json calls `model_type`.
    pub fn of_hf(model_type: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.hf == model_type)
    }

    /// The family that reads GGUF files of `architecture`; with experts, one that has them.
    pub fn of_gguf(architecture: &str, experts: bool) -> Option<&'static Self> {
        let mut all = FAMILIES.iter().filter(|family| family.gguf == Some(architecture));
        all.find(|family| family.experts.is_some() || !experts)
    }
}
