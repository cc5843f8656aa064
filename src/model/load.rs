//! The model on a device, and its sizes: they come first, and are refused with figures if they
//! cannot fit; then the [`Loader`] brings the weights.

use super::loader::{Loader, NOT_YET};
use super::rows::{QkvRow, gate_up, stride};
use super::{ModelError, Moe, Rope, Spec};
use crate::base::{Activations, Format, KvType};
use crate::kernels::attn::{Heads, partial_values};
use crate::kernels::experts::{Experts, Route};
use crate::kernels::mul::{Matrix, activations, halves_bytes, packed_stride};
use crate::kernels::{layout, sample};
use crate::record::{Binding, Device, DeviceError, Facts};
use crate::weights::Weights;
use std::collections::{BTreeMap, BTreeSet};

/// Sizes that the engine chooses.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How keys and values are stored.
    pub kv: KvType,
    /// How products take what they read, where their formats let them choose.
    pub activations: Activations,
    pub block_size: u32,
    /// KV blocks of the pool; one more is made, for padding.
    pub blocks: u32,
    /// Tokens of one step.
    pub step_tokens_max: u32,
    /// Rows sampled in one step.
    pub sequences_max: u32,
    /// Positions of one sequence.
    pub context_max: u32,
    /// Memory that weights, KV and scratch may take; `None` if unknown.
    pub memory_bytes: Option<u64>,
}

impl Options {
    /// Rows that one step may answer: one for each sequence, and every token of a prompt that is
    /// scored.
    pub fn answers_max(&self) -> u32 {
        self.sequences_max.saturating_add(self.step_tokens_max).next_multiple_of(4)
    }
}

/// Bytes a model takes on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub weights: u64,
    pub kv: u64,
    pub scratch: u64,
}

impl Budget {
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.kv).saturating_add(self.scratch)
    }
}

/// Told of (bytes read so far, bytes in all).
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Partial results of split attention that one step may hold, per head.
const PARTIALS_PER_HEAD: u32 = 512;

/// Products of one x, with their biases where there are any. Where several lie side by side, the
/// parts of a matrix name the columns where its outputs go.
pub(super) struct Linear {
    /// Of each format one, or more where their columns do not meet.
    pub w: Vec<Matrix>,
    /// By column.
    pub bias: Option<Binding>,
    /// Two that are one, their rows in turns of [`TURN`](crate::kernels::mul::TURN).
    pub in_turns: bool,
}

/// What makes q, k and v.
pub(super) enum Attention {
    Heads {
        qkv: Linear,
        /// Norms of q and k.
        norms: Option<[Binding; 2]>,
    },
    Latent {
        /// The narrow row that q is made of, where it goes that way, and the latent.
        down: Linear,
        /// Norm of the narrow row.
        q_norm: Option<Binding>,
        q: Linear,
        norm: Binding,
        /// Per head: folds the making of keys into q, and that of values into the output.
        key_up: Experts,
        value_up: Experts,
    },
}

impl Attention {
    fn products(&self) -> Vec<Matrix> {
        match self {
            Self::Heads { qkv, .. } => qkv.w.clone(),
            Self::Latent { q, down, .. } => [&q.w[..], &down.w].concat(),
        }
    }

    /// A matrix per head.
    fn stacks(&self) -> Vec<&Experts> {
        match self {
            Self::Heads { .. } => Vec::new(),
            Self::Latent { key_up, value_up, .. } => vec![key_up, value_up],
        }
    }
}

/// A gated feed-forward: `down(act(gate x) * (up x))`.
pub(super) struct Gated {
    pub gate_up: Linear,
    pub down: Linear,
    /// Values of the gate.
    pub dim: u32,
}

/// A mixture of such, and one that every token uses, where there is one.
pub(super) struct Mixture {
    pub router: Matrix,
    /// Added to the scores for the choice alone.
    pub router_bias: Option<Binding>,
    pub gate: Experts,
    pub up: Experts,
    pub down: Experts,
    pub shared: Option<Gated>,
}

/// What follows attention.
pub(super) enum FeedForward {
    Dense(Gated),
    Mixture(Mixture),
}

/// The weights of one layer.
pub(super) struct Layer {
    pub attention_norm: Option<Binding>,
    pub attention: Attention,
    pub out: Linear,
    pub attention_post_norm: Option<Binding>,
    pub ffn_norm: Option<Binding>,
    pub ffn: FeedForward,
    pub ffn_post_norm: Option<Binding>,
}

impl Layer {
    /// The matrices that are multiplied by all rows.
    pub fn products(&self) -> Vec<Matrix> {
        let mut out = self.attention.products();
        out.extend_from_slice(&self.out.w);
        let gated = |f: &Gated| [&f.gate_up.w[..], &f.down.w].concat();
        match &self.ffn {
            FeedForward::Dense(f) => out.extend(gated(f)),
            FeedForward::Mixture(m) => {
                out.push(m.router.clone());
                out.extend(m.shared.iter().flat_map(gated));
            }
        }
        out
    }

    /// All matrices; of experts and heads, the first.
    pub fn matrices(&self) -> Vec<Matrix> {
        let mut out = self.products();
        let mut stacks = self.attention.stacks();
        if let FeedForward::Mixture(m) = &self.ffn {
            stacks.extend([&m.gate, &m.up, &m.down]);
        }
        out.extend(stacks.into_iter().filter_map(Experts::first));
        out
    }
}

/// All weights of a model.
pub(super) struct Weighed {
    pub embedding: Matrix,
    pub head: Matrix,
    pub final_norm: Binding,
    pub layers: Vec<Layer>,
}

/// The cache of one layer, block by block; of latents, one buffer for both.
pub(super) struct Cache {
    pub k: Binding,
    pub v: Binding,
}

impl Cache {
    /// Each buffer once.
    pub fn buffers(&self) -> impl Iterator<Item = Binding> {
        [Some(self.k), (self.v != self.k).then_some(self.v)].into_iter().flatten()
    }
}

/// Buffers of one step.
pub(super) struct Scratch {
    pub x: Binding,
    pub h: Binding,
    /// Rows as [`QkvRow`] says.
    pub qkv: Binding,
    /// Of a latent: q before, and the output after, it is folded.
    pub unfolded: Binding,
    /// Rows that a product reads, as bytes; in that mode only.
    pub packed: Binding,
    pub attention: Binding,
    /// Rows as [`gate_up`] says.
    pub gate_up: Binding,
    pub gated: Binding,
    pub router: Binding,
    pub routing: Binding,
    pub expert_out: Binding,
    pub last: Binding,
    pub logits: Binding,
    pub weights: Binding,
    pub partial: Binding,
    pub meta: Binding,
    pub rows: Binding,
    pub edits: Binding,
    pub masks: Binding,
    pub out: Binding,
    /// Rows of any product as matrix units read them.
    pub halves: Binding,
}

/// A model on a device.
pub struct Model {
    pub spec: Spec,
    pub options: Options,
    /// Matrices whose every byte is zero.
    pub blank: Vec<String>,
    pub(super) facts: Facts,
    pub(super) embedding: Matrix,
    pub(super) head: Matrix,
    pub(super) final_norm: Binding,
    /// Table of [`Spec::rope`], and of [`Spec::local_rope`] or the same again.
    pub(super) ropes: [Binding; 2],
    pub(super) layers: Vec<Layer>,
    pub(super) caches: Vec<Cache>,
    pub(super) scratch: Scratch,
}

impl Model {
    /// Sizes of `weights` on a device with `facts`; fails where a single part cannot fit.
    pub fn budget(
        spec: &Spec,
        weights: &Weights,
        options: &Options,
        facts: &Facts,
    ) -> Result<Budget, ModelError> {
        let mut bytes = 0u64;
        for tensor in weights.tensors().values() {
            let rows = tensor.rows();
            let cols = tensor.shape.iter().skip(1).product::<u64>().max(1);
            let streams = layout::stream_bytes(tensor.format, rows, cols);
            bytes = bytes.saturating_add(streams.map_or(u64::MAX, |s| s.total));
        }
        let kv = spec.kv_bytes_per_token(options.kv).saturating_mul(pool_tokens(options));
        let ropes = [Some(&spec.rope), spec.local_rope.as_ref()].into_iter().flatten();
        let rotary = ropes.map(|rope| u64::from(rope.rotary)).sum::<u64>();
        let rope = u64::from(options.context_max) * rotary * 4;
        let scratch = rope + scratch_sizes(spec, options, facts).iter().map(|s| s.1).sum::<u64>();
        Ok(Budget { weights: bytes, kv, scratch })
    }

    /// Puts the model on `device`. Where the device has not the memory for the KV cache asked for,
    /// `options` of the result say what it has got.
    pub fn load(
        weights: &Weights,
        device: &mut dyn Device,
        options: Options,
        progress: Progress<'_>,
    ) -> Result<Self, ModelError> {
        let spec = Spec::read(weights)?;
        let facts = device.facts().clone();
        let budget = Self::budget(&spec, weights, &options, &facts)?;
        if let Some(have) = options.memory_bytes.or(facts.memory_bytes)
            && budget.total() > have
        {
            return Err(ModelError::DoesNotFit {
                file: weights.name().into(),
                weights: budget.weights,
                kv: budget.kv,
                scratch: budget.scratch,
                needed: budget.total(),
                have,
            });
        }
        let mut loader = Loader::new(weights, device, &spec, progress);
        let looked_at = loader.look()?;
        let shape = Self::shape(&spec, options, &facts, looked_at)?;
        loader.begin(&shape.variants());
        let weighed = loader.load()?;
        let (options, rooms) = rooms(&mut loader, &spec, options, &facts)?;
        let blank = loader.blank();
        Ok(Self { blank, ..Self::of(spec, options, facts, weighed, rooms) })
    }

    /// The shapes of all products but those of experts, each once, as they would be launched.
    pub fn products(
        weights: &Weights,
        device: &mut dyn Device,
    ) -> Result<Vec<(Format, [u32; 2])>, ModelError> {
        let spec = Spec::read(weights)?;
        let found = Loader::new(weights, device, &spec, &mut |_, _| {}).look()?;
        let layers = found.layers.iter().flat_map(Layer::products);
        let shape = |w: Matrix| (w.format, [w.rows, w.cols]);
        let all: BTreeSet<_> = layers.chain([found.head]).map(shape).collect();
        Ok(all.into_iter().collect())
    }

    fn of(spec: Spec, options: Options, facts: Facts, weighed: Weighed, rooms: Rooms) -> Self {
        let Weighed { embedding, head, final_norm, layers } = weighed;
        let Rooms { caches, ropes, scratch } = rooms;
        let blank = Vec::new();
        Self {
            spec,
            options,
            blank,
            facts,
            embedding,
            head,
            final_norm,
            ropes,
            layers,
            caches,
            scratch,
        }
    }

    /// The model without a device: what it records says which variants it needs, and runs nowhere.
    fn shape(
        spec: &Spec,
        options: Options,
        facts: &Facts,
        weighed: Weighed,
    ) -> Result<Self, ModelError> {
        let mut room = |_: &str, bytes| Ok(Binding { bytes, ..NOT_YET });
        let scratch = scratch(spec, &options, facts, &mut room)?;
        let caches = (0..spec.layers).map(|_| Cache { k: NOT_YET, v: NOT_YET }).collect();
        let rooms = Rooms { caches, ropes: [NOT_YET; 2], scratch };
        Ok(Self::of(spec.clone(), options, facts.clone(), weighed, rooms))
    }

    /// What products take of the rows they read, by the format of their matrices.
    pub fn activations(&self) -> BTreeMap<String, Activations> {
        let layers = self.layers.iter().flat_map(Layer::matrices);
        let formats = layers.chain([self.head.clone()]).map(|w| w.format);
        let taken = |format| activations(format, self.options.activations);
        formats.map(|format| (format.to_string(), taken(format))).collect()
    }

    /// The heads as attention sees them.
    pub(super) fn heads(&self) -> Heads {
        let Spec { heads, kv_heads, head_dim, .. } = self.spec;
        Heads { heads, kv_heads, head_dim }
    }

    /// Bytes of one KV block in all layers.
    pub fn block_bytes(&self) -> u64 {
        self.block_parts(0).map(|part| part.bytes).sum()
    }

    /// Where the keys and values of a block lie, layer by layer, each part once.
    pub fn block_parts(&self, block: u32) -> impl Iterator<Item = Binding> {
        let token = self.spec.cache_bytes_per_token(self.options.kv);
        let bytes = token * u64::from(self.options.block_size);
        let part = move |cache: Binding| Binding {
            offset: cache.offset + u64::from(block) * bytes,
            bytes,
            ..cache
        };
        self.caches.iter().flat_map(Cache::buffers).map(part)
    }

    /// Partial slots of one step.
    pub(super) fn partials_max(&self) -> u32 {
        PARTIALS_PER_HEAD * self.spec.heads
    }

    /// Rows whose logits are computed at once: what one binding holds, a multiple of 4.
    pub fn logit_rows(spec: &Spec, options: &Options, facts: &Facts) -> u32 {
        let row = u64::from(stride(spec.vocab)) * 4;
        let fits = (facts.binding_bytes_max / row).min(128) as u32;
        options.sequences_max.next_multiple_of(4).min(fits / 4 * 4).max(4)
    }
}

/// Positions of the pool and of the block after it, which is scratch: padding rows write there.
pub(super) fn pool_tokens(options: &Options) -> u64 {
    (u64::from(options.blocks) + 1) * u64::from(options.block_size)
}

/// Words of the per-step metadata: tokens, positions, slots, rows, tables, work items, merges, and
/// up to two more lists of tokens for what is asked of prompts. In a padded batch a sequence may
/// have a row of its own and one of padding.
fn meta_words(options: &Options) -> u64 {
    let (tokens, rows) = (u64::from(options.step_tokens_max), 2 * u64::from(options.sequences_max));
    let table = u64::from(options.context_max.div_ceil(options.block_size)) + 1;
    tokens * 5 + rows * (1 + table + 4) + 8 * (tokens + u64::from(PARTIALS_PER_HEAD)) + 64
}

/// Name and bytes of every scratch buffer, in the order of [`Scratch`].
fn scratch_sizes(spec: &Spec, options: &Options, facts: &Facts) -> Vec<(&'static str, u64)> {
    let tokens = u64::from(options.step_tokens_max);
    let samples = u64::from(options.sequences_max.next_multiple_of(4));
    let answers = u64::from(options.answers_max());
    let logit_rows = u64::from(Model::logit_rows(spec, options, facts));
    let row = |dim: u32| u64::from(stride(dim)) * 4;
    let partials = u64::from(PARTIALS_PER_HEAD * spec.heads);
    let logits = logit_rows * row(spec.vocab);
    let edits = samples * u64::from(edits_per_row(spec, options) * sample::EDIT_WORDS) * 4;
    let edits = edits.min(facts.binding_bytes_max / 256 * 256);
    let unfolded = spec.latent.map_or(0, |_| spec.own_q_dim().max(spec.out_dim()));
    let (route, pairs) = match &spec.moe {
        Some(Moe { experts, used, .. }) => {
            let tokens = options.step_tokens_max;
            let route = Route { tokens, experts: *experts, used: *used };
            (route, u64::from(*used))
        }
        None => (Route { tokens: 0, experts: 0, used: 0 }, 0),
    };
    let halves = match facts.matrix_side {
        0 => 0,
        _ => halves_bytes(options.step_tokens_max, spec.widest_row()),
    };
    vec![
        ("x", tokens * row(spec.hidden)),
        ("h", tokens * row(spec.hidden)),
        ("q, k and v", tokens * u64::from(QkvRow::of(spec).stride) * 4),
        ("unfolded", tokens * row(unfolded)),
        ("packed activations", packed_bytes(spec, options, tokens.max(logit_rows))),
        ("attention", tokens * row(spec.q_dim())),
        ("gate and up", tokens * u64::from(spec.widest_ffn(|dim| gate_up(dim).1)) * 4),
        ("gated", tokens * u64::from(spec.widest_ffn(stride)) * 4),
        ("router logits", tokens * row(route.experts)),
        ("routing", route.words() * 4),
        ("expert outputs", tokens * pairs * row(spec.hidden)),
        ("last rows", logit_rows * row(spec.hidden)),
        ("logits", logits),
        ("sampling weights", logits),
        ("attention partials", partials * u64::from(partial_values(spec.head_dim)) * 4),
        ("step metadata", meta_words(options) * 4),
        ("sampling rows", answers * u64::from(sample::ROW_WORDS) * 4),
        ("sampling edits", edits),
        ("sampling masks", samples * u64::from(sample::mask_words(spec.vocab)) * 4),
        ("sampled", answers * u64::from(sample::OUT_WORDS) * 4),
        ("halves", halves),
    ]
}

/// Bytes of the widest rows that a product reads, packed.
fn packed_bytes(spec: &Spec, options: &Options, rows: u64) -> u64 {
    if options.activations == Activations::F32 {
        return 0;
    }
    let narrow = spec.latent.and_then(|latent| latent.q_rank).unwrap_or(0);
    let read = [spec.hidden, spec.out_dim(), narrow].map(packed_stride);
    // Of a token, a row for each of its experts.
    let widest = read.into_iter().fold(spec.widest_ffn(packed_stride), u32::max);
    rows * u64::from(widest) * 4
}

/// Edits of logits one row may bring: every token it has seen, and the bias entries.
fn edits_per_row(spec: &Spec, options: &Options) -> u32 {
    options.context_max.min(spec.vocab) + 1024 + 64
}

/// What is made beside the weights.
struct Rooms {
    caches: Vec<Cache>,
    ropes: [Binding; 2],
    scratch: Scratch,
}

/// Makes caches, tables and scratch. Where memory runs out, the KV cache is halved until all fit.
fn rooms(
    loader: &mut Loader<'_>,
    spec: &Spec,
    mut options: Options,
    facts: &Facts,
) -> Result<(Options, Rooms), ModelError> {
    let before = loader.made();
    loop {
        match rooms_of(loader, spec, &options, facts) {
            Err(ModelError::Device(DeviceError::OutOfMemory { .. })) if options.blocks > 1 => {
                loader.free_from(before);
                options.blocks /= 2;
                let pool = options.blocks.saturating_mul(options.block_size);
                options.context_max = options.context_max.min(pool);
            }
            done => return Ok((options, done?)),
        }
    }
}

fn rooms_of(
    loader: &mut Loader<'_>,
    spec: &Spec,
    options: &Options,
    facts: &Facts,
) -> Result<Rooms, ModelError> {
    let caches = caches(loader, spec, options)?;
    let mut table = |label: &str, rope: &Rope| {
        let table = rope.table(options.context_max);
        loader.buffer(label, bytemuck::cast_slice(&table))
    };
    let rope = table("rope table", &spec.rope)?;
    let local = match &spec.local_rope {
        Some(local) => table("local rope table", local)?,
        None => rope,
    };
    let scratch = scratch(spec, options, facts, &mut |label, bytes| loader.zeros(label, bytes))?;
    Ok(Rooms { caches, ropes: [rope, local], scratch })
}

fn caches(
    loader: &mut Loader<'_>,
    spec: &Spec,
    options: &Options,
) -> Result<Vec<Cache>, ModelError> {
    let bytes = spec.cache_bytes_per_token(options.kv) * pool_tokens(options);
    let mut caches = Vec::new();
    for l in 0..spec.layers {
        let k = loader.zeros(&format!("K cache of layer {l}"), bytes)?;
        let v = match spec.latent {
            None => loader.zeros(&format!("V cache of layer {l}"), bytes)?,
            Some(_) => k,
        };
        caches.push(Cache { k, v });
    }
    Ok(caches)
}

fn scratch(
    spec: &Spec,
    options: &Options,
    facts: &Facts,
    make: &mut dyn FnMut(&str, u64) -> Result<Binding, ModelError>,
) -> Result<Scratch, ModelError> {
    let mut sizes = scratch_sizes(spec, options, facts).into_iter();
    let mut next = || {
        let (label, bytes) = sizes.next().expect("as many as the fields of Scratch");
        make(label, bytes)
    };
    Ok(Scratch {
        x: next()?,
        h: next()?,
        qkv: next()?,
        unfolded: next()?,
        packed: next()?,
        attention: next()?,
        gate_up: next()?,
        gated: next()?,
        router: next()?,
        routing: next()?,
        expert_out: next()?,
        last: next()?,
        logits: next()?,
        weights: next()?,
        partial: next()?,
        meta: next()?,
        rows: next()?,
        edits: next()?,
        masks: next()?,
        out: next()?,
        halves: next()?,
    })
}
