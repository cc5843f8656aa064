//! The storage formats of weights: a name, how many values one block holds, and its bytes.
//! What the bytes mean is known in `weights` (raw blocks) and `kernels::layout` (streams) only.

/// A storage format. Values of a row are cut into blocks of [`Format::block_len`].
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[allow(non_camel_case_types, reason = "the formats' own spelling")]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
}

impl Format {
    pub const ALL: [Format; 15] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2_K,
        Format::Q3_K,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
        Format::IQ4_NL,
        Format::IQ4_XS,
    ];

    /// The lower-case name used in shader files, variants and output.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Values in one block.
    pub fn block_len(self) -> usize {
        self.facts().1
    }

    /// Bytes of one block as stored in a file.
    pub fn block_bytes(self) -> usize {
        self.facts().2
    }

    fn facts(self) -> (&'static str, usize, usize) {
        match self {
            Format::F32 => ("f32", 1, 4),
            Format::F16 => ("f16", 1, 2),
            Format::BF16 => ("bf16", 1, 2),
            Format::Q4_0 => ("q4_0", 32, 18),
            Format::Q4_1 => ("q4_1", 32, 20),
            Format::Q5_0 => ("q5_0", 32, 22),
            Format::Q5_1 => ("q5_1", 32, 24),
            Format::Q8_0 => ("q8_0", 32, 34),
            Format::Q2_K => ("q2_k", 256, 84),
            Format::Q3_K => ("q3_k", 256, 110),
            Format::Q4_K => ("q4_k", 256, 144),
            Format::Q5_K => ("q5_k", 256, 176),
            Format::Q6_K => ("q6_k", 256, 210),
            Format::IQ4_NL => ("iq4_nl", 32, 18),
            Format::IQ4_XS => ("iq4_xs", 256, 136),
        }
    }

    /// Bytes of `values` values in a file; `None` if that is no whole number of blocks or
    /// does not fit `u64`.
    pub fn bytes_of(self, values: u64) -> Option<u64> {
        let (_, len, bytes) = self.facts();
        if !values.is_multiple_of(len as u64) {
            return None;
        }
        (values / len as u64).checked_mul(bytes as u64)
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
