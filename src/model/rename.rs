//! The same checkpoint in the other kind of file: what each tensor is called there, and what
//! changes in it.

use super::Spec;
use super::names::{Dialect, Part};
use std::collections::BTreeMap;

/// What becomes of a tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Renamed {
    /// The name without `.weight` or `.bias`.
    pub stem: String,
    /// Rows of each head of this many change order: to adjacent rotary pairs (true) or to halves.
    pub pairs: Option<(u32, bool)>,
    /// Added to every value.
    pub shift: f32,
}

/// Names of a layer's tensors; those of experts differ in more than their names. Where two have
/// one name (the norm between attention and feed-forward), the first is meant.
const PARTS: [Part; 16] = [
    Part::Embedding,
    Part::FinalNorm,
    Part::Head,
    Part::AttentionNorm,
    Part::Q,
    Part::K,
    Part::V,
    Part::QNorm,
    Part::KNorm,
    Part::AttentionOut,
    Part::FfnNorm,
    Part::AttentionPostNorm,
    Part::Gate,
    Part::Up,
    Part::Down,
    Part::FfnPostNorm,
];

fn is_norm(part: Part) -> bool {
    matches!(
        part,
        Part::FinalNorm
            | Part::AttentionNorm
            | Part::QNorm
            | Part::KNorm
            | Part::AttentionPostNorm
            | Part::FfnNorm
            | Part::FfnPostNorm
    )
}

/// Stem in the file of `spec` → what it becomes in a file of dialect `to`.
pub fn renamed(spec: &Spec, to: Dialect) -> BTreeMap<String, Renamed> {
    let family = spec.family;
    let gguf = to == Dialect::Gguf;
    let offset = if family.norm_minus_one && !gguf { 1.0 } else { 0.0 };
    let adjacent = family.gguf_pairs && gguf;
    let mut out = BTreeMap::new();
    for layer in 0..spec.layers.max(1) {
        for part in PARTS {
            let turned = matches!(part, Part::Q | Part::K) && spec.adjacent_pairs != adjacent;
            let what = Renamed {
                stem: to.stem(family, part, layer),
                pairs: turned.then_some((spec.head_dim, adjacent)),
                shift: if is_norm(part) { spec.norm_offset - offset } else { 0.0 },
            };
            out.entry(spec.dialect.stem(family, part, layer)).or_insert(what);
        }
    }
    out
}
