//! The WGSL texts, compiled in. The row `shaders::sources_match_folder` holds this list to the
//! files in `shaders/`.

use super::variants::TABLE_TEXT;
use crate::base::checksum;

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
    "mul_gemm"
    "mul_heads"
    "mul_mat"
    "mul_pack"
    "mul_unit"
    "mul_vec"
    "norm_qk"
    "norm_rms"
    "rope_kv"
    "sample"
    "sample_edit"
    "sample_mask"
    "sample_stats"
    "soft_cap"
    "to_halves"
    "lib/attn_fold"
    "lib/attn_lanes"
    "lib/attn_shared"
    "lib/bit_words"
    "lib/bytes"
    "lib/dot_floats"
    "lib/dot_packed"
    "lib/dots_iq4_nl"
    "lib/dots_iq4_xs"
    "lib/dots_q2_k"
    "lib/dots_q3_k"
    "lib/dots_q4_0"
    "lib/dots_q4_1"
    "lib/dots_q4_k"
    "lib/dots_q5_0"
    "lib/dots_q5_1"
    "lib/dots_q5_k"
    "lib/dots_q6_k"
    "lib/dots_q8_0"
    "lib/expert_io"
    "lib/gates"
    "lib/head_io"
    "lib/iq4_steps"
    "lib/iq4_words"
    "lib/kv_f16"
    "lib/kv_f32"
    "lib/kv_q8"
    "lib/load_half"
    "lib/load_whole"
    "lib/mul_dots"
    "lib/mul_dots_lanes"
    "lib/mul_dots_shared"
    "lib/mul_io"
    "lib/mul_lanes"
    "lib/mul_shared"
    "lib/mul_streams"
    "lib/mul_tile"
    "lib/nibble_words"
    "lib/nibbles"
    "lib/norm_bytes"
    "lib/norm_rows"
    "lib/pack_block"
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
    "lib/spread8"
    "lib/streams_buffer"
    "lib/streams_texel"
    "lib/two_bit_words"
    "lib/two_bits"
    "lib/unit_16"
    "lib/unit_8"
    "lib/words_u32"
    "lib/words_u64"
    "lib/x8"
    "lib/x8_plain"
    "lib/x8_spread"
    "lib/x8_window"
    "lib/x_halves"
    "lib/x_plain"
    "lib/x_spread"
    "lib/x_window"
};

/// The text of `shaders/PATH.wgsl`.
pub fn source(path: &str) -> Option<&'static str> {
    SOURCES.iter().find(|s| s.0 == path).map(|s| s.1)
}

/// A number that any change of the texts or of the variants' table changes.
pub fn stamp() -> u64 {
    let texts = SOURCES.iter().flat_map(|(path, text)| [path.as_bytes(), text.as_bytes()]);
    checksum(texts.chain([TABLE_TEXT.as_bytes()]))
}
