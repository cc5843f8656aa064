//! The WGSL texts, compiled in. The row `shaders::sources_match_folder` holds this list to the
//! files in `shaders/`.

macro_rules! sources {
    ($($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../shaders/", $path, ".wgsl")))),*]
    };
}

/// (path below `shaders/` without its ending, text); imports lie in `lib/`.
pub const SOURCES: &[(&str, &str)] = sources! {
    "act_glu"
    "attn_merge"
    "attn_paged"
    "embed"
    "moe_combine"
    "moe_group"
    "moe_route"
    "mul_expert"
    "mul_expert_vec"
    "mul_heads"
    "mul_mat"
    "mul_vec"
    "norm_qk"
    "norm_rms"
    "rope_kv"
    "sample"
    "sample_edit"
    "sample_mask"
    "sample_stats"
    "soft_cap"
    "lib/act_gelu_tanh"
    "lib/act_silu"
    "lib/attn_fold"
    "lib/attn_lanes"
    "lib/attn_shared"
    "lib/expert_io"
    "lib/head_io"
    "lib/iq4_steps"
    "lib/kv_f16"
    "lib/kv_f32"
    "lib/kv_q8"
    "lib/load_half"
    "lib/load_whole"
    "lib/mul_io"
    "lib/mul_lanes"
    "lib/mul_streams"
    "lib/mul_tile"
    "lib/nibbles"
    "lib/pair_scales"
    "lib/put_f16"
    "lib/put_f32"
    "lib/put_q8"
    "lib/quant_bf16"
    "lib/quant_f16"
    "lib/quant_f32"
    "lib/quant_iq4_nl"
    "lib/quant_iq4_xs"
    "lib/quant_q2_k"
    "lib/quant_q3_k"
    "lib/quant_q4_0"
    "lib/quant_q4_1"
    "lib/quant_q4_k"
    "lib/quant_q5_0"
    "lib/quant_q5_1"
    "lib/quant_q5_k"
    "lib/quant_q6_k"
    "lib/quant_q8_0"
    "lib/rms"
    "lib/spread"
    "lib/streams_buffer"
    "lib/streams_texel"
    "lib/two_bits"
    "lib/words_u32"
    "lib/words_u64"
    "lib/x_plain"
    "lib/x_spread"
    "lib/x_window"
};

/// The text of `shaders/PATH.wgsl`.
pub fn source(path: &str) -> Option<&'static str> {
    SOURCES.iter().find(|s| s.0 == path).map(|s| s.1)
}
