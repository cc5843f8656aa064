//! GGUF's tensor type ids. A further format is one row here, one file in `blocks`, and a variant
//! of `base::Format`.

use crate::base::Format;

/// Id, GGUF's own name, and the format it is read as. Ids with no row were never given out.
const TYPES: &[(u32, &str, Option<Format>)] = &[
    (0, "F32", Some(Format::F32)),
    (1, "F16", Some(Format::F16)),
    (2, "Q4_0", Some(Format::Q4_0)),
    (3, "Q4_1", Some(Format::Q4_1)),
    (4, "Q4_2", None),
    (5, "Q4_3", None),
    (6, "Q5_0", Some(Format::Q5_0)),
    (7, "Q5_1", Some(Format::Q5_1)),
    (8, "Q8_0", Some(Format::Q8_0)),
    (9, "Q8_1", None),
    (10, "Q2_K", Some(Format::Q2_K)),
    (11, "Q3_K", Some(Format::Q3_K)),
    (12, "Q4_K", Some(Format::Q4_K)),
    (13, "Q5_K", Some(Format::Q5_K)),
    (14, "Q6_K", Some(Format::Q6_K)),
    (15, "Q8_K", None),
    (16, "IQ2_XXS", None),
    (17, "IQ2_XS", None),
    (18, "IQ3_XXS", None),
    (19, "IQ1_S", None),
    (20, "IQ4_NL", Some(Format::IQ4_NL)),
    (21, "IQ3_S", None),
    (22, "IQ2_S", None),
    (23, "IQ4_XS", Some(Format::IQ4_XS)),
    (24, "I8", None),
    (25, "I16", None),
    (26, "I32", None),
    (27, "I64", None),
    (28, "F64", None),
    (29, "IQ1_M", None),
    (30, "BF16", Some(Format::BF16)),
    (31, "Q4_0_4_4", None),
    (32, "Q4_0_4_8", None),
    (33, "Q4_0_8_8", None),
    (34, "TQ1_0", None),
    (35, "TQ2_0", None),
    (36, "IQ4_NL_4_4", None),
    (37, "IQ4_NL_4_8", None),
    (38, "IQ4_NL_8_8", None),
    (39, "MXFP4", None),
    (40, "NVFP4", None),
    (41, "Q1_0", None),
];

/// The format of a type id, or the reason why there is none.
pub(super) fn format_of(id: u32) -> Result<Format, String> {
    let supported = || {
        let names: Vec<_> = TYPES.iter().filter(|t| t.2.is_some()).map(|t| t.1).collect();
        names.join(" ")
    };
    match TYPES.iter().find(|t| t.0 == id) {
        Some((_, _, Some(format))) => Ok(*format),
        Some((_, name, None)) => {
            Err(format!("{name} (id {id}) is not supported; supported: {}", supported()))
        }
        None => Err(format!("unknown id {id}; supported: {}", supported())),
    }
}

/// The type id that GGUF gives a format.
pub fn gguf_type(format: Format) -> u32 {
    TYPES.iter().find(|t| t.2 == Some(format)).expect("every format has a row").0
}
