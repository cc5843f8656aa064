//! The same checkpoint in the other kind of file: what each tensor is called there, what it is
//! made of, and what changes in it.

use super::names::{Dialect, Part};
use super::spec::Pairs;
use super::{Moe, Spec};

/// A tensor of the other file.
#[derive(Clone, PartialEq, Debug)]
pub struct Renamed {
    /// The name without `.weight` or `.bias`.
    pub stem: String,
    /// Stems of what it is made of.
    pub from: Vec<String>,
    pub place: Place,
    /// Rows that change order: to adjacent rotary pairs (true) or to halves.
    pub pairs: Option<(Pairs, bool)>,
    /// Added to every value.
    pub shift: f32,
    /// GGUF files hold it as f32, whatever the others are: a rounded router chooses other experts.
    pub precise: bool,
}

/// How a tensor is made of its sources: GGUF files hold all experts of a layer in one tensor,
/// safetensors each by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Whole,
    /// All sources, along a new first axis.
    Stack,
    /// One entry of the source's first axis.
    Entry(u32),
}

/// Those of a layer. Where two have one name (the norm between attention and feed-forward), the
/// first is meant.
const PARTS: [Part; 18] = [
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
    Part::Router,
    Part::RouterBias,
    Part::SharedGate,
    Part::SharedUp,
    Part::SharedDown,
];

const EXPERT_PARTS: [fn(u32) -> Part; 3] = [Part::ExpertGate, Part::ExpertUp, Part::ExpertDown];

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

/// Every tensor that the checkpoint of `spec` may have in a file of dialect `to`.
pub fn renamed(spec: &Spec, to: Dialect) -> Vec<Renamed> {
    let mut out = vec![one(spec, to, Part::Embedding, 0), one(spec, to, Part::FinalNorm, 0)];
    if !spec.tied_head {
        out.push(one(spec, to, Part::Head, 0));
    }
    for layer in 0..spec.layers {
        out.extend(PARTS.map(|part| one(spec, to, part, layer)));
        if let Some(moe) = spec.moe_of(layer) {
            out.extend(EXPERT_PARTS.iter().flat_map(|part| experts(spec, to, moe, *part, layer)));
        }
    }
    out
}

fn one(spec: &Spec, to: Dialect, part: Part, layer: u32) -> Renamed {
    let family = spec.family;
    let gguf = to == Dialect::Gguf;
    let offset = if family.norm_minus_one && !gguf { 1.0 } else { 0.0 };
    let adjacent = family.gguf_pairs && gguf;
    let head = spec.head_dim;
    let turned = matches!(part, Part::Q | Part::K) && spec.adjacent_pairs != adjacent;
    Renamed {
        stem: to.stem(family, part, layer),
        from: vec![spec.dialect.stem(family, part, layer)],
        place: Place::Whole,
        pairs: turned.then_some((Pairs { head, first: 0, len: head }, adjacent)),
        shift: if is_norm(part) { spec.norm_offset - offset } else { 0.0 },
        precise: part == Part::Router,
    }
}

/// One matrix of every expert of a layer.
fn experts(spec: &Spec, to: Dialect, moe: &Moe, part: fn(u32) -> Part, layer: u32) -> Vec<Renamed> {
    let family = spec.family;
    let (stacked, apart) = (0..1, 0..moe.experts);
    let names = |dialect: Dialect| -> Vec<String> {
        let which = if dialect == Dialect::Gguf { stacked.clone() } else { apart.clone() };
        which.map(|e| dialect.stem(family, part(e), layer)).collect()
    };
    let from = names(spec.dialect);
    let many = names(to).into_iter().zip(0..);
    many.map(|(stem, e)| Renamed {
        stem,
        from: from.clone(),
        place: if to == Dialect::Gguf { Place::Stack } else { Place::Entry(e) },
        pairs: None,
        shift: 0.0,
        precise: false,
    })
    .collect()
}
